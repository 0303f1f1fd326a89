//! The buffers in user memory that system calls read and write, as a table.
//!
//! The kernel's copies fault pages in, as the program's accesses do. A row has a call and its
//! buffers. The length of a buffer is fixed by the ABI, or is an argument, or the result.
//!
//! Not guaranteed: calls that are not in the table, and buffers behind a second pointer (`iovec`,
//! `msghdr`), which the log does not print.

use super::nr;
use super::parser::Arg;
use crate::trace::PAGE_SIZE;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The kernel reads user memory.
    Read,
    /// The kernel writes user memory.
    Write,
}

/// The length of a buffer, in bytes.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// A constant.
    Fixed(u64),
    /// The value of an argument.
    Arg(usize),
    /// One byte for each page of an argument, which is a length in bytes.
    Pages(usize),
    /// The result of the call.
    Result,
    /// An argument times the size of an element.
    Array(usize, u64),
    /// The length of a string in the log, with its NUL.
    Text,
}

use Direction::{Read, Write};
use Length::{Arg as Argument, Array, Fixed, Pages, Result as Returned, Text};

/// The argument that is the address of the buffer, its direction and its length.
type Buffer = (usize, Direction, Length);

// Sizes of the x86-64 ABI.
const STAT: Length = Fixed(144);
const TIMESPEC: Length = Fixed(16);
const SIGACTION: Length = Fixed(32);
const RUSAGE: Length = Fixed(144);
const FD_SET: Length = Fixed(128);

/// A buffer that a call copied: address, length in bytes, direction.
pub(super) type Touch = (u64, u64, Direction);

/// The buffers that a call copied, in the order of its arguments.
///
/// A failed call only reads.
pub(super) fn touches(number: u32, args: &[Arg], result: Result<u64, u16>) -> impl Iterator<Item = Touch> {
    buffers(number).iter().filter_map(move |&(at, direction, length)| {
        let arg = args.get(at)?;
        if arg.value == 0 || (direction == Write && result.is_err()) {
            return None;
        }
        let value = |at: usize| args.get(at).map(|arg| arg.value);
        let length = match length {
            Fixed(bytes) => bytes,
            Argument(at) => value(at)?,
            Array(at, size) => value(at)?.checked_mul(size)?,
            Pages(at) => value(at)?.div_ceil(PAGE_SIZE),
            Returned => result.ok()?,
            Text => arg.text.as_ref()?.len() as u64 + 1,
        };
        // The kernel copies at most MAX_RW_COUNT bytes.
        (length > 0 && length <= 0x7fff_f000).then_some((arg.value, length, direction))
    })
}

fn buffers(number: u32) -> &'static [Buffer] {
    match number {
        nr::READ | nr::PREAD64 | nr::GETDENTS64 | nr::RECVFROM => &[(1, Write, Returned)],
        nr::GETXATTR | nr::LGETXATTR => &[(0, Read, Text), (1, Read, Text), (2, Write, Returned)],
        nr::GETRANDOM => &[(0, Write, Returned)],
        nr::GETCWD => &[(0, Write, Returned)],
        nr::READLINK => &[(0, Read, Text), (1, Write, Returned)],
        nr::READLINKAT => &[(1, Read, Text), (2, Write, Returned)],
        nr::WRITE | nr::PWRITE64 | nr::SENDTO => &[(1, Read, Returned)],
        nr::READV | nr::WRITEV => &[(1, Read, Array(2, 16))],
        nr::SENDMSG | nr::RECVMSG => &[(1, Read, Fixed(56))],
        nr::STAT | nr::LSTAT => &[(0, Read, Text), (1, Write, STAT)],
        nr::FSTAT => &[(1, Write, STAT)],
        nr::NEWFSTATAT => &[(1, Read, Text), (2, Write, STAT)],
        nr::STATX => &[(1, Read, Text), (4, Write, Fixed(256))],
        nr::STATFS => &[(0, Read, Text), (1, Write, Fixed(120))],
        nr::FSTATFS => &[(1, Write, Fixed(120))],
        nr::OPEN | nr::ACCESS | nr::CHDIR | nr::MKDIR | nr::RMDIR | nr::CREAT | nr::UNLINK | nr::CHMOD | nr::CHOWN => {
            &[(0, Read, Text)]
        }
        nr::OPENAT | nr::MKDIRAT | nr::UNLINKAT | nr::FACCESSAT | nr::FACCESSAT2 | nr::FCHMODAT => &[(1, Read, Text)],
        nr::RENAME | nr::LINK => &[(0, Read, Text), (1, Read, Text)],
        nr::RENAMEAT | nr::RENAMEAT2 => &[(1, Read, Text), (3, Read, Text)],
        nr::UTIMENSAT => &[(1, Read, Text), (2, Read, Fixed(32))],
        nr::MEMFD_CREATE => &[(0, Read, Text)],
        nr::RT_SIGACTION => &[(1, Read, SIGACTION), (2, Write, SIGACTION)],
        nr::RT_SIGPROCMASK => &[(1, Read, Argument(3)), (2, Write, Argument(3))],
        nr::SIGALTSTACK => &[(0, Read, Fixed(24)), (1, Write, Fixed(24))],
        nr::PIPE | nr::PIPE2 => &[(0, Write, Fixed(8))],
        nr::SOCKETPAIR => &[(3, Write, Fixed(8))],
        nr::CONNECT | nr::BIND => &[(1, Read, Argument(2))],
        nr::ACCEPT4 => &[(2, Write, Fixed(4))],
        nr::POLL => &[(0, Read, Array(1, 8)), (0, Write, Array(1, 8))],
        nr::PPOLL => &[(0, Read, Array(1, 8)), (2, Read, TIMESPEC), (0, Write, Array(1, 8))],
        nr::SELECT | nr::PSELECT6 => &[(1, Write, FD_SET), (2, Write, FD_SET), (3, Write, FD_SET), (4, Read, TIMESPEC)],
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT => &[(1, Write, Fixed(12))],
        nr::EPOLL_CTL => &[(3, Read, Fixed(12))],
        nr::NANOSLEEP => &[(0, Read, TIMESPEC)],
        nr::CLOCK_NANOSLEEP => &[(2, Read, TIMESPEC)],
        nr::WAIT4 => &[(1, Write, Fixed(4)), (3, Write, RUSAGE)],
        nr::WAITID => &[(2, Write, Fixed(128)), (4, Write, RUSAGE)],
        nr::UNAME => &[(0, Write, Fixed(390))],
        nr::GETTIMEOFDAY => &[(0, Write, TIMESPEC), (1, Write, Fixed(8))],
        nr::GETRLIMIT => &[(1, Write, Fixed(16))],
        nr::PRLIMIT64 => &[(2, Read, Fixed(16)), (3, Write, Fixed(16))],
        nr::GETRUSAGE => &[(1, Write, RUSAGE)],
        nr::SYSINFO => &[(0, Write, Fixed(112))],
        nr::TIMES => &[(0, Write, Fixed(32))],
        nr::TIME => &[(0, Write, Fixed(8))],
        nr::CLOCK_GETTIME | nr::CLOCK_GETRES => &[(1, Write, TIMESPEC)],
        nr::SCHED_GETAFFINITY => &[(2, Write, Returned)],
        nr::FUTEX => &[(0, Read, Fixed(4))],
        nr::MINCORE => &[(2, Write, Pages(1))],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(values: &[u64]) -> Vec<Arg> {
        values.iter().map(|&value| Arg { value, text: None }).collect()
    }

    fn of(number: u32, args: &[Arg], result: Result<u64, u16>) -> Vec<Touch> {
        touches(number, args, result).collect()
    }

    #[test]
    fn a_length_is_an_argument_a_result_or_that_of_a_string() {
        assert_eq!(of(nr::READ, &args(&[3, 0x1000, 4096]), Ok(100)), [(0x1000, 100, Write)]);
        assert_eq!(of(nr::READ, &args(&[3, 0x1000, 4096]), Ok(0)), [], "a read at the end of the file writes nothing");
        assert_eq!(of(nr::POLL, &args(&[0x1000, 3, 0]), Ok(1)), [(0x1000, 24, Read), (0x1000, 24, Write)]);
        let mut open = args(&[0xffff_ff9c, 0x2000, 0]);
        open[1].text = Some(b"/etc".to_vec());
        assert_eq!(of(nr::OPENAT, &open, Err(2)), [(0x2000, 5, Read)], "a failed open reads its path");
    }

    #[test]
    fn null_buffers_and_writes_of_failed_calls_are_no_touches() {
        assert_eq!(of(nr::WAIT4, &args(&[u64::MAX, 0, 0, 0]), Ok(7)), []);
        assert_eq!(of(nr::FSTAT, &args(&[3, 0x1000]), Err(9)), []);
        assert_eq!(of(nr::RT_SIGACTION, &args(&[2, 0x1000, 0, 8]), Ok(0)), [(0x1000, 32, Read)]);
        assert_eq!(of(nr::READ, &args(&[3, 0x1000, u64::MAX]), Ok(u64::MAX)), [], "no call copies that many bytes");
    }
}
