//! The parser of lackey's log lines.
//!
//! An access has a line of its own. All other text comes from several parts of valgrind that do not
//! always end their lines, so a line is a sequence of [`LogItem`]s. Logs have, for example:
//!
//! - the result of a call on a later line (`[async] ...`), or alone on a line after the preamble of
//!   the forked child;
//! - a note of the scheduler, or an access, on the line of a call;
//! - an `execve` without a result, whose line continues with the preamble of the new image.

/// The kind of an access, a letter in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    /// `I`: an instruction fetch.
    Fetch,
    /// `L`: a load.
    Load,
    /// `S`: a store.
    Store,
    /// `M`: a load followed by a store.
    Modify,
}

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) kind: AccessKind,
    pub(super) addr: u64,
    pub(super) size: u64,
}

/// The result of a call in its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// `Success(…)` or `Failure(…)`.
    Done(Result<u64, u16>),
    /// `NoWriteResult`: the call does not return (`rt_sigreturn`).
    NoResult,
    /// `[async] ...`: a later item of the same thread has the result.
    Pending,
    /// None: the next bare result is that of the call, if there is one (`execve` has none).
    NotPrinted,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arg {
    pub(super) value: u64,
    /// The string to which it points, if valgrind prints it.
    pub(super) text: Option<Vec<u8>>,
}

/// A system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Syscall {
    /// Valgrind's number of the thread, from 1; later threads reuse it.
    pub(super) slot: u32,
    pub(super) number: u32,
    pub(super) args: Vec<Arg>,
    pub(super) outcome: CallOutcome,
}

impl Syscall {
    /// The value of an argument; 0 if the log has no such argument.
    pub(super) fn arg(&self, at: usize) -> u64 {
        self.args.get(at).map_or(0, |arg| arg.value)
    }
}

/// The reason why a thread acquires valgrind's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockReason {
    /// The thread is new.
    Started,
    /// A signal interrupted its system call, whose result the log does not have.
    Signal,
    /// The thread continues.
    Other,
}

/// An item of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogItem {
    Access(Access),
    Syscall(Syscall),
    /// `SYSCALL[p,t](n) ... [async] --> …`: the result of a pending call.
    Completed {
        slot: u32,
        outcome: CallOutcome,
    },
    /// ` --> …`: a result without its call.
    BareResult(CallOutcome),
    /// `clone(fork): process p created child c`.
    Forked {
        child: u32,
    },
    /// `SCHED[t]: acquired lock`.
    Acquired {
        slot: u32,
        why: LockReason,
    },
    /// The first line of the preamble.
    Banner {
        pid: u32,
    },
    /// The command line in the preamble.
    Command(Vec<String>),
    /// The parent in the preamble.
    Parent {
        pid: u32,
    },
    /// `Process terminating with default action of signal n`.
    Killed {
        signal: u32,
    },
    /// Text that the importer does not need.
    Ignored,
}

/// Parses a line that is an access; returns `None` for any other line.
pub(super) fn access(line: &[u8]) -> Option<Access> {
    let (kind, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (AccessKind::Fetch, rest),
        [b' ', b'L', b' ', rest @ ..] => (AccessKind::Load, rest),
        [b' ', b'S', b' ', rest @ ..] => (AccessKind::Store, rest),
        [b' ', b'M', b' ', rest @ ..] => (AccessKind::Modify, rest),
        _ => return None,
    };
    let mut addr = 0u64;
    let mut at = 0;
    loop {
        let digit = match *rest.get(at)? {
            byte @ b'0'..=b'9' => byte - b'0',
            byte @ b'a'..=b'f' => byte - b'a' + 10,
            b',' if at > 0 => break,
            _ => return None,
        };
        addr = addr.checked_mul(16)? | u64::from(digit);
        at += 1;
    }
    Some(Access { kind, addr, size: decimal(&rest[at + 1..])? })
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses the first item of `rest` and removes it; returns `None` if `rest` is empty.
///
/// # Errors
/// [`NotALogItem`] for text that lackey does not write.
pub(super) fn item(rest: &mut &[u8]) -> Result<Option<LogItem>, NotALogItem> {
    let text = trim_start(rest);
    if text.is_empty() {
        *rest = &[];
        return Ok(None);
    }
    // The line of a data access begins with a space.
    let blank = rest.len() - text.len();
    if let Some(access) = access(text).or_else(|| access(&rest[blank.checked_sub(1)?..])) {
        *rest = &[];
        return Ok(Some(LogItem::Access(access)));
    }
    let (item, tail) = if let Some(tail) = text.strip_prefix(b"SYSCALL[") {
        syscall(tail).ok_or(NotALogItem)?
    } else if text.starts_with(b"--> ") {
        let (outcome, tail) = outcome(text).ok_or(NotALogItem)?;
        (LogItem::BareResult(outcome), tail)
    } else if let Some(tail) = text.strip_prefix(b"--") {
        (note(numbered(tail, b"--").ok_or(NotALogItem)?.1), &b""[..])
    } else if let Some(tail) = text.strip_prefix(b"==") {
        let (pid, tail) = numbered(tail, b"==").ok_or(NotALogItem)?;
        (preamble(pid, trim_start(tail)), &b""[..])
    } else if let Some(found) = forked(text) {
        found
    } else if text.starts_with(b"SCHEDSETJMP(") {
        (LogItem::Ignored, &b""[..])
    } else {
        return Err(NotALogItem);
    };
    *rest = tail;
    Ok(Some(item))
}

/// The text is not an item of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotALogItem;

fn trim_start(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&byte| byte == b' ').count()..]
}

/// Parses a decimal number that `end` follows; returns the text after `end`.
fn numbered<'a>(text: &'a [u8], end: &[u8]) -> Option<(u32, &'a [u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = u32::try_from(decimal(&text[..digits])?).ok()?;
    Some((number, text[digits..].strip_prefix(end)?))
}

/// The index of the first `needle` in `text`.
pub(super) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

fn note(text: &[u8]) -> LogItem {
    let Some(at) = find(text, b"SCHED[") else { return LogItem::Ignored };
    let Some((slot, rest)) = numbered(&text[at + b"SCHED[".len()..], b"]:") else { return LogItem::Ignored };
    let Some(at) = find(rest, b"acquired lock (") else { return LogItem::Ignored };
    let why = match &rest[at + b"acquired lock (".len()..] {
        by if by.starts_with(b"thread_wrapper(starting") => LockReason::Started,
        by if by.starts_with(b"async_signalhandler") => LockReason::Signal,
        _ => LockReason::Other,
    };
    LogItem::Acquired { slot, why }
}

fn preamble(pid: u32, text: &[u8]) -> LogItem {
    if text.starts_with(b"Lackey, ") {
        LogItem::Banner { pid }
    } else if let Some(command) = text.strip_prefix(b"Command: ") {
        LogItem::Command(words(command))
    } else if let Some(parent) = text.strip_prefix(b"Parent PID: ") {
        decimal(parent).map_or(LogItem::Ignored, |pid| LogItem::Parent { pid: pid as u32 })
    } else if let Some(signal) = text.strip_prefix(b"Process terminating with default action of signal ") {
        numbered(signal, b" ").map_or(LogItem::Ignored, |(signal, _)| LogItem::Killed { signal })
    } else {
        LogItem::Ignored
    }
}

/// The words of a command line, in which valgrind quotes spaces and some others by a backslash.
fn words(text: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = Vec::new();
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' => words.push(String::from_utf8_lossy(&std::mem::take(&mut word)).into_owned()),
            b'\\' => word.extend(bytes.next()),
            byte => word.push(byte),
        }
    }
    words.push(String::from_utf8_lossy(&word).into_owned());
    words
}

/// Parses `clone(fork): process p created child c`, and the same of `fork` and `vfork`.
fn forked(text: &[u8]) -> Option<(LogItem, &[u8])> {
    let at = [&b"clone(fork): process "[..], b"fork: process ", b"vfork: process "]
        .iter()
        .find_map(|prefix| text.strip_prefix(*prefix))?;
    let (_, rest) = numbered(at, b" created child ")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some((LogItem::Forked { child: u32::try_from(decimal(&rest[..digits])?).ok()? }, &rest[digits..]))
}

/// Parses the text after `SYSCALL[`.
fn syscall(text: &[u8]) -> Option<(LogItem, &[u8])> {
    let (_, rest) = numbered(text, b",")?;
    let (slot, rest) = numbered(rest, b"](")?;
    let (number, rest) = numbered(rest, b") ")?;
    if let Some(rest) = rest.strip_prefix(b"... [async] ") {
        let (outcome, rest) = outcome(rest)?;
        return Some((LogItem::Completed { slot, outcome }, rest));
    }
    if rest.starts_with(b"unimplemented") {
        // The result is an item of its own, on the next line.
        return Some((
            LogItem::Syscall(Syscall { slot, number, args: Vec::new(), outcome: CallOutcome::NotPrinted }),
            b"",
        ));
    }
    // `sys_name ( args )`, `sys_name[ARG3=='arg'] (args)`, `exit( 0 )`.
    let open = find(rest, b"(")?;
    let rest = &rest[open + 1..];
    let (args, rest) = match arguments(rest, number) {
        Some(found) => found,
        // Valgrind prints some arguments in unknown formats. If the trace does not depend on the
        // call, the capture is not refused.
        None if !needs_arguments(number) => (Vec::new(), after_arguments(rest)?),
        None => return None,
    };
    let text = trim_start(rest.strip_prefix(b"[sync]").unwrap_or(rest));
    let (outcome, rest) = outcome(text).unwrap_or((CallOutcome::NotPrinted, rest));
    Some((LogItem::Syscall(Syscall { slot, number, args, outcome }), rest))
}

/// Parses `--> [pre-success] Success(0x…)` and its variants; also returns the text after it.
fn outcome(text: &[u8]) -> Option<(CallOutcome, &[u8])> {
    let rest = trim_start(text.strip_prefix(b"-->")?);
    if let Some(rest) = rest.strip_prefix(b"[async] ...") {
        return Some((CallOutcome::Pending, rest));
    }
    let rest = match rest.strip_prefix(b"[pre-success]").or_else(|| rest.strip_prefix(b"[pre-fail]")) {
        Some(rest) => trim_start(rest),
        None => rest,
    };
    if let Some(rest) = rest.strip_prefix(b"NoWriteResult") {
        return Some((CallOutcome::NoResult, rest));
    }
    let (success, rest) = match rest.strip_prefix(b"Success(") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix(b"Failure(")?),
    };
    let close = rest.iter().position(|&byte| byte == b')')?;
    // A call with two results prints two values (`Success(0x3:0x4)`); the first is that of rax.
    let first = rest[..close].split(|&byte| byte == b':').next()?;
    let value = hexadecimal(first.strip_prefix(b"0x")?)?;
    let result = if success { Ok(value) } else { Err(u16::try_from(value).ok()?) };
    Some((CallOutcome::Done(result), &rest[close + 1..]))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| Some(value << 4 | u64::from((byte as char).to_digit(16)?)))
}

/// Whether valgrind prints this argument of this call in hexadecimal without a prefix.
fn is_bare_hexadecimal(number: u32, index: usize) -> bool {
    matches!((number, index), (super::nr::CLONE, 0) | (super::nr::ARCH_PRCTL, 1))
}

/// Whether the trace depends on the arguments of this call.
fn needs_arguments(number: u32) -> bool {
    use super::nr;
    matches!(
        number,
        nr::MMAP | nr::MUNMAP | nr::MPROTECT | nr::MREMAP | nr::MADVISE | nr::BRK | nr::CLONE | nr::EXECVE | nr::WAIT4
    )
}

/// The text after arguments that cannot be parsed.
fn after_arguments(text: &[u8]) -> Option<&[u8]> {
    let end = [&b")[sync] -->"[..], b") -->"].iter().filter_map(|end| find(text, end)).min()?;
    Some(&text[end + 1..])
}

/// Parses arguments up to their closing parenthesis; also returns the text after it.
fn arguments(text: &[u8], number: u32) -> Option<(Vec<Arg>, &[u8])> {
    let mut rest = trim_start(text);
    let mut args = Vec::new();
    if let Some(tail) = rest.strip_prefix(b")") {
        return Some((args, tail));
    }
    loop {
        let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
        let token = &rest[..len];
        rest = &rest[len..];
        let value = if let Some(digits) = token.strip_prefix(b"0x") {
            hexadecimal(digits)?
        } else if is_bare_hexadecimal(number, args.len()) {
            hexadecimal(token)?
        } else if let Some(digits) = token.strip_prefix(b"-") {
            decimal(digits)?.wrapping_neg()
        } else {
            decimal(token)?
        };
        let mut string = None;
        if rest.first() == Some(&b'(') {
            let end = end_of_string(&rest[1..])?;
            string = Some(rest[1..=end].to_vec());
            rest = &rest[end + 2..];
        }
        args.push(Arg { value, text: string });
        let next = trim_start(rest);
        if let Some(tail) = next.strip_prefix(b")") {
            return Some((args, tail));
        }
        rest = trim_start(next.strip_prefix(b",")?);
    }
}

/// The length of a printed string.
///
/// Valgrind does not escape parentheses in it. The string ends before a parenthesis that the rest
/// of the call follows.
fn end_of_string(text: &[u8]) -> Option<usize> {
    (0..text.len()).find(|&at| {
        let tail = &text[at..];
        tail.starts_with(b"), ") || tail.starts_with(b") )")
    })
}

#[cfg(test)]
mod tests;
