//! The processes of a capture, each with its own log, become one sequence of events.
//!
//! Causality decides where it says something: a child starts behind its fork, a `wait` that
//! returned a child goes on behind the child's end, a parent in `vfork` behind its child's exec or
//! end. Otherwise processes take turns, [`QUANTUM`] pieces of log each, in order of birth.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::ImportError;
use super::lines::Lines;
use super::parser::{self, LogItem};
use super::process::{Process, StopReason};

/// Pieces of log that a process runs for before the next one does: some hundred microseconds' worth
/// of instructions.
const QUANTUM: u32 = 500_000;
/// Lines in which a preamble must have shown itself.
const PREAMBLE: usize = 16;

/// The logs of a capture, by the process that wrote them.
#[derive(Debug)]
pub(super) struct LogSet {
    pub(super) root: u32,
    logs: BTreeMap<u32, PathBuf>,
}

/// What a log's preamble says.
#[derive(Debug, Default)]
struct Preamble {
    pid: Option<u32>,
    parent: Option<u32>,
    command: Vec<String>,
}

fn preamble(path: &Path) -> Result<Preamble, ImportError> {
    let mut lines = Lines::open(path)?;
    let mut found = Preamble::default();
    for _ in 0..PREAMBLE {
        let Some(line) = lines.next()? else { break };
        let mut rest = line;
        match parser::item(&mut rest) {
            Ok(Some(LogItem::Banner { pid })) => found.pid = Some(pid),
            Ok(Some(LogItem::Parent { pid })) => found.parent = Some(pid),
            Ok(Some(LogItem::Command(words))) => found.command = words,
            Ok(_) => {}
            Err(parser::NotALogItem) => {
                let text = String::from_utf8_lossy(line).chars().take(60).collect();
                return Err(ImportError::Syntax { path: path.to_owned(), line: lines.number(), text });
            }
        }
    }
    if lines.number() == 0 {
        return Err(ImportError::Empty { path: path.to_owned() });
    }
    Ok(found)
}

impl LogSet {
    /// Look at the preambles of `paths`, and find out whose log is the root's.
    ///
    /// Also returns the root's command line.
    pub(super) fn new(paths: &[PathBuf]) -> Result<(Self, Vec<String>), ImportError> {
        let mut logs: BTreeMap<u32, PathBuf> = BTreeMap::new();
        let mut preambles = BTreeMap::new();
        for path in paths {
            let preamble = preamble(path)?;
            let pid = preamble.pid.unwrap_or(0);
            if let Some(first) = logs.insert(pid, path.clone()) {
                return Err(ImportError::TwoLogs { first, second: path.clone(), pid });
            }
            preambles.insert(pid, preamble);
        }
        let mut roots =
            preambles.iter().filter(|(_, preamble)| !preamble.parent.is_some_and(|pid| logs.contains_key(&pid)));
        let (&root, found) = roots.next().ok_or(ImportError::NoLogs)?;
        if let Some((other, _)) = roots.next() {
            return Err(ImportError::TwoRoots { first: logs[&root].clone(), second: logs[other].clone() });
        }
        let command = found.command.clone();
        Ok((Self { root, logs }, command))
    }

    fn log(&self, pid: u32) -> Option<&Path> {
        self.logs.get(&pid).map(PathBuf::as_path)
    }
}

/// LockReason a process sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// Until a child has ended; it looks for itself which one.
    Waits,
    /// Until this child has execed or ended.
    Vfork(u32),
}

/// Merge the logs of a family into the context's trace.
pub(super) fn merge<W: Write>(family: &LogSet, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
    let lines = Lines::open(&family.logs[&family.root])?;
    let mut ready = VecDeque::from([Process::root(lines, family.root, cx)?]);
    let mut asleep: Vec<(Sleep, Process)> = Vec::new();
    while let Some(mut process) = ready.pop_front() {
        let pid = process.captured_pid;
        match process.advance(QUANTUM, cx)? {
            StopReason::Quantum => ready.push_back(process),
            StopReason::Forked { child, vfork } => {
                let Some(log) = family.log(child) else {
                    let (path, line) = (process.lines.path().to_owned(), process.lines.number());
                    return Err(ImportError::MissingLog { path, line, child });
                };
                let born = process.fork(child, Lines::open(log)?, vfork, cx)?;
                if vfork {
                    asleep.push((Sleep::Vfork(child), process));
                    ready.push_front(born);
                } else {
                    ready.push_front(process);
                    ready.push_back(born);
                }
            }
            StopReason::Waits => asleep.push((Sleep::Waits, process)),
            StopReason::Execed => {
                wake(&mut asleep, &mut ready, |sleep| sleep == Sleep::Vfork(pid));
                ready.push_front(process);
            }
            StopReason::Ended => {
                wake(&mut asleep, &mut ready, |sleep| sleep == Sleep::Waits || sleep == Sleep::Vfork(pid));
            }
        }
    }
    match family.logs.iter().find(|&(&pid, _)| cx.process(pid).is_none()) {
        Some((&pid, path)) => Err(ImportError::Orphan { path: path.clone(), pid }),
        None => Ok(()),
    }
}

fn wake(asleep: &mut Vec<(Sleep, Process)>, ready: &mut VecDeque<Process>, due: impl Fn(Sleep) -> bool) {
    ready.extend(asleep.extract_if(.., |(sleep, _)| due(*sleep)).map(|(_, process)| process));
}
