//! The merge of all processes of a capture into one sequence of events.
//!
//! Causality comes first: a child starts after its fork, a `wait` that returns a child continues
//! after the child's exit, and a `vfork` parent continues after its child's exec or exit. Otherwise
//! the processes take turns of [`QUANTUM`] log items each, in order of creation.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewright_recorder::launch::AARCH64;
use pagewright_recorder::log::Record;
use pagewright_types::IsaKind;

use super::context::Context;
use super::error::ImportError;
use super::lines::Lines;
use super::parser::{self, LogItem};
use super::process::{Process, StopReason};

/// Number of log items in a turn of a process: a few hundred microseconds of instructions.
const QUANTUM: u32 = 500_000;
/// Number of lines at the start of a log that contain its preamble.
const PREAMBLE: usize = 16;

/// The logs of a capture, by process.
#[derive(Debug)]
pub(super) struct LogSet {
    pub(super) root: u32,
    pub(super) isa: IsaKind,
    logs: BTreeMap<u32, PathBuf>,
}

/// The contents of a log's preamble.
#[derive(Debug, Default)]
struct Preamble {
    pid: Option<u32>,
    parent: Option<u32>,
    command: Vec<String>,
    is_arm: bool,
}

/// Reads the first record of a log that has records.
fn first_record(lines: &mut Lines) -> Result<Preamble, ImportError> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match lines.next_record(&mut Vec::new())? {
        Some(Record::Image(image)) => Ok(Preamble {
            pid: Some(image.pid),
            parent: Some(image.parent),
            command: image.args.into_iter().map(text).collect(),
            is_arm: image.machine == AARCH64,
        }),
        Some(Record::Child { pid, parent, .. }) => {
            Ok(Preamble { pid: Some(pid), parent: Some(parent), ..Preamble::default() })
        }
        _ => Err(ImportError::Empty { path: lines.path().to_owned() }),
    }
}

fn preamble(path: &Path) -> Result<Preamble, ImportError> {
    let mut lines = Lines::open(path, &Arc::default())?;
    if lines.has_records() {
        return first_record(&mut lines);
    }
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
    /// Reads the preambles of the logs and finds the root; also returns the root's command line.
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
        let isa = if found.is_arm { IsaKind::Aarch64 } else { IsaKind::X86_64 };
        Ok((Self { root, isa, logs }, command))
    }

    fn log(&self, pid: u32) -> Option<&Path> {
        self.logs.get(&pid).map(PathBuf::as_path)
    }
}

/// The event for which a process sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// The exit of some child; the process then checks which one.
    ChildExit,
    /// The exec or exit of this child.
    Vfork(u32),
}

/// Writes the events of all logs to the trace of the context.
pub(super) fn merge<W: Write>(logs: &LogSet, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
    let lines = Lines::open(&logs.logs[&logs.root], &cx.options.read)?;
    let mut ready = VecDeque::from([Process::root(lines, logs.root, cx)?]);
    let mut asleep: Vec<(Sleep, Process)> = Vec::new();
    while let Some(mut process) = ready.pop_front() {
        let pid = process.captured_pid;
        match process.advance(QUANTUM, cx)? {
            StopReason::Quantum => ready.push_back(process),
            StopReason::Forked { child, vfork } => {
                let Some(log) = logs.log(child) else {
                    let (path, line) = (process.lines.path().to_owned(), process.lines.number());
                    return Err(ImportError::MissingLog { path, line, child });
                };
                let forked = process.fork(child, Lines::open(log, &cx.options.read)?, vfork, cx)?;
                if vfork {
                    asleep.push((Sleep::Vfork(child), process));
                    ready.push_front(forked);
                } else {
                    ready.push_front(process);
                    ready.push_back(forked);
                }
            }
            StopReason::Waits => asleep.push((Sleep::ChildExit, process)),
            StopReason::Execed => {
                wake(&mut asleep, &mut ready, |sleep| sleep == Sleep::Vfork(pid));
                ready.push_front(process);
            }
            StopReason::Exited => {
                wake(&mut asleep, &mut ready, |sleep| sleep == Sleep::ChildExit || sleep == Sleep::Vfork(pid));
            }
        }
    }
    match logs.logs.iter().find(|&(&pid, _)| cx.process(pid).is_none()) {
        Some((&pid, path)) => Err(ImportError::Orphan { path: path.clone(), pid }),
        None => Ok(()),
    }
}

fn wake(asleep: &mut Vec<(Sleep, Process)>, ready: &mut VecDeque<Process>, due: impl Fn(Sleep) -> bool) {
    ready.extend(asleep.extract_if(.., |(sleep, _)| due(*sleep)).map(|(_, process)| process));
}
