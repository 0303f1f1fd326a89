//! Turns the `event` lines of the kernel's report into a capture.
//!
//! `kernel/linux/src/record.rs` writes the lines. Each fault that the kernel served becomes one
//! access to its page, each memory call a call with its result. The capture therefore has no
//! accesses except those that faulted. A replay on one CPU takes the same faults in the same
//! order.
//!
//! Not guaranteed: the order of events that overlapped on several CPUs.

use super::BootError;
use pagewright_capture::trace::{
    AccessOrigin, AccessRun, AccessStream, AddressLayout, CapturedFile, Compression, ExecImage, FileId, ImageBacking,
    ImageMapping, MappingSource, MemCall, MemOp, PAGE_SIZE, PageNo, Pid, Prot, RawMapFlags, TaskEvent, Tid, TraceEvent,
    TraceFile, TraceHeader, TraceWriter, UserAddr,
};
use pagewright_types::IsaKind;
use std::collections::BTreeMap;
use std::path::Path;

/// An `event` line: the process, the thread, the name of the event and its arguments.
struct EventLine<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> EventLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.strip_prefix("event ")?.split(' ');
        let mut id = || u32::from_str_radix(words.next()?, 16).ok();
        let (pid, tid) = (id()?, id()?);
        Some(Self { pid, tid, name: words.next()?, rest: words.collect() })
    }

    fn number(&self, index: usize) -> Option<u64> {
        u64::from_str_radix(self.rest.get(index)?, 16).ok()
    }

    fn address(&self, index: usize) -> Option<UserAddr> {
        self.number(index).map(UserAddr)
    }
}

/// Files by path, each with its number and the end of its highest mapping, in bytes.
#[derive(Default)]
struct Files<'a>(BTreeMap<&'a str, (FileId, u64)>);

impl<'a> Files<'a> {
    /// Adds a mapping of `len` bytes of a file, from `offset` on.
    fn note(&mut self, path: &'a str, offset: u64, len: u64) {
        // Files are numbered from 1 in the order of their first use.
        let next = FileId(self.0.len() as u32 + 1);
        let known = self.0.entry(path).or_insert((next, 0));
        known.1 = known.1.max(offset + len);
    }

    fn of(lines: &[EventLine<'a>]) -> Self {
        let mut files = Self::default();
        for line in lines {
            let mapped = match line.name {
                "map" => line.rest.get(4).zip(line.number(3)).zip(line.number(1)),
                "mmap" => line.rest.get(6).zip(line.number(4)).zip(line.number(1)),
                _ => None,
            };
            if let Some(((path, offset), len)) = mapped.filter(|((path, _), _)| !matches!(**path, "-" | "[stack]")) {
                files.note(path, offset, len);
            }
            if let ("exec", Some(path)) = (line.name, line.rest.get(3)) {
                files.note(path, 0, 0);
            }
        }
        files
    }

    fn id(&self, path: &str) -> Option<FileId> {
        self.0.get(path).map(|(id, _)| *id)
    }
}

/// Converts a report into a capture and writes it to `path`.
///
/// # Errors
/// [`BootError::Record`] for a line that cannot be parsed, [`BootError::File`] if writing fails.
pub(super) fn write(report: &str, isa: IsaKind, command: Vec<String>, path: &Path) -> Result<(), BootError> {
    let texts = report.lines().filter(|line| line.starts_with("event "));
    let parse = |text| EventLine::parse(text).ok_or_else(|| BootError::Record(text.to_owned()));
    let lines = texts.map(parse).collect::<Result<Vec<_>, _>>()?;
    let files = Files::of(&lines);
    let header = TraceHeader {
        command,
        tool: concat!("pagewright-kernel ", env!("CARGO_PKG_VERSION")).to_owned(),
        isa,
        page_size: PAGE_SIZE,
        mappings: MappingSource::SystemCalls,
        layout: AddressLayout::Linux,
        native: None,
    };
    let out = TraceFile::create(path).map_err(BootError::file(path))?;
    let mut writer = TraceWriter::new(out, &header, Compression::Fast).map_err(BootError::file(path))?;
    let mut push = |event: TraceEvent| writer.push(&event).map_err(BootError::file(path));
    push(TraceEvent::Task(Box::new(TaskEvent::Begin { pid: Pid(1), tid: Tid(1) })))?;
    let mut known: Vec<_> = files.0.iter().collect();
    known.sort_by_key(|(_, (id, _))| *id);
    for (path, (id, size)) in known {
        push(TraceEvent::File(Box::new(CapturedFile { id: *id, path: (*path).to_owned(), size: Some(*size) })))?;
    }
    let mut current = (1, 1);
    let mut rest = lines.iter().peekable();
    while let Some(line) = rest.next() {
        if (line.pid, line.tid) != current {
            current = (line.pid, line.tid);
            push(TraceEvent::Switch { pid: Pid(line.pid), tid: Tid(line.tid) })?;
        }
        let mut mappings = Vec::new();
        while line.name == "exec"
            && let Some(mapping) = rest.next_if(|next| next.name == "map" && next.tid == line.tid)
        {
            mappings.push(mapping);
        }
        let event = event(line, &mappings, &files);
        push(event.ok_or_else(|| BootError::Record(format!("{} {}", line.name, line.rest.join(" "))))?)?;
    }
    let (_, out) = writer.finish().map_err(BootError::file(path))?;
    out.commit().map_err(BootError::file(path))
}

fn event(line: &EventLine<'_>, mappings: &[&EventLine<'_>], files: &Files<'_>) -> Option<TraceEvent> {
    let task = |task: TaskEvent| Some(TraceEvent::Task(Box::new(task)));
    let child = || line.number(0).map(|id| id as u32);
    match line.name {
        "run" => run(line).map(TraceEvent::Run),
        "exec" => task(TaskEvent::Exec { image: image(line, mappings, files)? }),
        "thread" => task(TaskEvent::CloneThread { tid: Tid(child()?) }),
        "fork" => task(TaskEvent::Fork { child: Pid(child()?), tid: Tid(child()?), vfork: false }),
        "vfork" => task(TaskEvent::Fork { child: Pid(child()?), tid: Tid(child()?), vfork: true }),
        "end" => task(TaskEvent::ExitThread {}),
        "exit" => task(TaskEvent::ExitProcess { status: child()? }),
        "reaped" => task(TaskEvent::Reaped { child: Pid(child()?) }),
        _ => {
            let (op, result) = call(line, files)?;
            Some(TraceEvent::Call(Box::new(MemCall { op, result: Ok(result) })))
        }
    }
}

/// One access, of the type that faulted.
fn run(line: &EventLine<'_>) -> Option<AccessRun> {
    let (kind, origin) = (*line.rest.get(1)?, *line.rest.get(2)?);
    let write = kind == "w";
    Some(AccessRun {
        page: PageNo(line.number(0)?),
        reads: u32::from(!write),
        writes: u32::from(write),
        stream: if kind == "x" { AccessStream::Fetch } else { AccessStream::Data },
        origin: if origin == "k" { AccessOrigin::Kernel } else { AccessOrigin::User },
        write_first: write,
    })
}

fn image(line: &EventLine<'_>, mappings: &[&EventLine<'_>], files: &Files<'_>) -> Option<ExecImage> {
    let path = *line.rest.get(3)?;
    let mapping = |line: &&EventLine<'_>| {
        let backing = match *line.rest.get(4)? {
            "-" => ImageBacking::Anonymous {},
            "[stack]" => ImageBacking::Stack {},
            path => ImageBacking::File { file: files.id(path)?, offset: line.number(3)? },
        };
        // The memory manager rounds lengths up, too.
        let len = line.number(1)?.next_multiple_of(PAGE_SIZE);
        Some(ImageMapping { start: line.address(0)?, len, prot: Prot(line.number(2)? as u32), backing })
    };
    let mut mappings = mappings.iter().map(mapping).collect::<Option<Vec<_>>>()?;
    mappings.sort_by_key(|mapping| mapping.start.0);
    Some(ExecImage {
        executable: files.id(path)?,
        args: vec![path.to_owned()],
        mappings,
        brk: line.address(0)?,
        stack_top: line.address(1)?,
        stack_limit: line.number(2)?,
    })
}

fn call(line: &EventLine<'_>, files: &Files<'_>) -> Option<(MemOp, u64)> {
    if line.name == "munlockall" {
        return Some((MemOp::Munlockall {}, 0));
    }
    if line.name == "mlockall" {
        return Some((MemOp::Mlockall { flags: line.number(0)? as u32 }, 0));
    }
    let addr = line.address(0)?;
    let len = || line.number(1);
    let word = |index: usize| line.number(index).map(|number| number as u32);
    Some(match line.name {
        "mremap" => {
            let (new_len, flags, new_addr) = (line.number(2)?, word(3)?, line.address(4)?);
            (MemOp::Mremap { addr, old_len: len()?, new_len, flags, new_addr }, line.number(5)?)
        }
        "mlock" => (MemOp::Mlock { addr, len: len()?, flags: word(2)? }, 0),
        "munlock" => (MemOp::Munlock { addr, len: len()? }, 0),
        "msync" => (MemOp::Msync { addr, len: len()?, flags: word(2)? }, 0),
        "mincore" => (MemOp::Mincore { addr, len: len()? }, 0),
        "mmap" => {
            let file = match *line.rest.get(6)? {
                "-" => None,
                path => Some(files.id(path)?),
            };
            let (prot, flags) = (Prot(word(2)?), RawMapFlags(word(3)?));
            let op = MemOp::Mmap { addr, len: len()?, prot, flags, file, offset: line.number(4)? };
            (op, line.number(5)?)
        }
        "munmap" => (MemOp::Munmap { addr, len: len()? }, 0),
        "mprotect" => (MemOp::Mprotect { addr, len: len()?, prot: Prot(word(2)?) }, 0),
        "madvise" => (MemOp::Madvise { addr, len: len()?, advice: word(2)? }, 0),
        "brk" => (MemOp::Brk { addr }, line.number(1)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_capture::trace::TraceReader;

    #[test]
    fn every_event_line_is_in_the_capture() {
        let report = "say hello\nevent 1 1 exec 4000 7ffffffff000 800000 /bin/a\nevent 1 1 map 1000 518 1 0 /bin/a\n\
                      event 1 1 map 7fffff000000 21000 3 0 [stack]\nevent 1 1 run 1 x u\nevent 1 1 fork 2\n\
                      event 2 2 brk 0 4000\nevent 2 2 exit 0\nevent 1 1 reaped 2\nevent 1 1 exit 3\nexit 3\n";
        let path = std::env::temp_dir().join(format!("pagewright-capture-{}", std::process::id()));
        write(report, IsaKind::X86_64, vec!["a".to_owned()], &path).expect("it is written");
        let mut reader = TraceReader::open(&path).expect("it is a trace");
        let (mut batch, mut events) = (Vec::new(), Vec::new());
        while reader.next_batch(&mut batch).expect("it is whole") {
            events.append(&mut batch);
        }
        std::fs::remove_file(&path).expect("it is there");
        let exec = events.iter().find_map(|event| match event {
            TraceEvent::Task(task) => match &**task {
                TaskEvent::Exec { image } => Some(image.mappings.len()),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(exec, Some(2));
        assert_eq!(events.iter().filter(|event| matches!(event, TraceEvent::Switch { .. })).count(), 2);
        assert!(write("event 1 1 nonsense\n", IsaKind::X86_64, Vec::new(), &path).is_err());
    }
}
