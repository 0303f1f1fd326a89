//! The captures of the project are readable, consistent, and as their README says.

use rustc_hash::{FxHashMap, FxHashSet};
use std::fs;
use std::path::PathBuf;

use pagewright_capture::trace::{
    AddressLayout, MemOp, PAGE_SIZE, PageNo, Pid, RawMapFlags, TaskEvent, Tid, TraceEvent, TraceReader,
};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

fn captures() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pwt"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn six_captures_fit_eight_megabytes_and_the_readme_has_their_numbers() {
    let readme = fs::read_to_string(directory().join("README.md")).unwrap();
    let (mut bytes, mut threaded, mut forking) = (0, false, false);
    for path in captures() {
        let mut reader = TraceReader::open(&path).unwrap();
        let mut batch = Vec::new();
        while reader.next_batch(&mut batch).unwrap() {}
        let summary = reader.summary().unwrap();
        let size = fs::metadata(&path).unwrap().len();
        let row = format!(
            "| `{}` | {size} | {} | {} | {} | {} |",
            path.file_name().unwrap().display(),
            summary.accesses,
            summary.events,
            summary.processes,
            summary.threads
        );
        assert!(readme.contains(&row), "README.md lacks the row\n{row}");
        bytes += size;
        threaded |= summary.threads > summary.processes;
        forking |= summary.processes > 1;
    }
    assert_eq!(captures().len(), 6);
    assert!(bytes <= 8_000_000, "{bytes} bytes");
    assert!(threaded && forking);
}

/// The pages that a process has mapped, by the events of the trace.
#[derive(Clone, Default)]
struct Mapped {
    pages: FxHashSet<PageNo>,
    brk: (u64, u64),
}

impl Mapped {
    fn range(addr: u64, len: u64) -> impl Iterator<Item = PageNo> {
        (addr / PAGE_SIZE..(addr + len).div_ceil(PAGE_SIZE)).map(PageNo)
    }

    fn apply(&mut self, op: &MemOp, result: u64) {
        match *op {
            MemOp::Mmap { len, flags, addr, .. } => {
                assert!(
                    !flags.contains(RawMapFlags::FIXED) || addr.0 == result,
                    "mmap returned another address than that of MAP_FIXED"
                );
                if !flags.contains(RawMapFlags::FIXED) {
                    assert!(
                        !Self::range(result, len).any(|page| self.pages.contains(&page)),
                        "{result:#x}: mmap returned a range that is mapped"
                    );
                }
                self.pages.extend(Self::range(result, len));
            }
            MemOp::Munmap { addr, len } => Self::range(addr.0, len).for_each(|page| {
                self.pages.remove(&page);
            }),
            MemOp::Mremap { addr, old_len, new_len, .. } => {
                Self::range(addr.0, old_len).for_each(|page| {
                    self.pages.remove(&page);
                });
                self.pages.extend(Self::range(result, new_len));
            }
            MemOp::Brk { .. } => self.brk.1 = result,
            MemOp::Mprotect { .. }
            | MemOp::Madvise { .. }
            | MemOp::Mlock { .. }
            | MemOp::Munlock { .. }
            | MemOp::Mlockall { .. }
            | MemOp::Munlockall {}
            | MemOp::Msync { .. }
            | MemOp::Mincore { .. }
            | MemOp::Membarrier { .. }
            | MemOp::Other { .. } => {}
            MemOp::Inferred { .. } => panic!("no capture of the project has inferred mappings"),
        }
    }

    fn has(&self, page: PageNo) -> bool {
        let addr = page.addr().0;
        self.pages.contains(&page) || (self.brk.0 <= addr && addr < self.brk.1)
    }
}

/// The processes and threads of a trace.
#[derive(Default)]
struct Tasks {
    live: FxHashMap<Pid, Mapped>,
    threads: FxHashMap<Tid, Pid>,
    ended: FxHashSet<Pid>,
    current: (Pid, Tid),
}

impl Tasks {
    fn apply(&mut self, task: &TaskEvent) {
        let (pid, tid) = self.current;
        match task {
            TaskEvent::Begin { pid, tid } => {
                self.live.insert(*pid, Mapped::default());
                self.threads.insert(*tid, *pid);
                self.current = (*pid, *tid);
            }
            TaskEvent::Exec { image } => {
                let mut mapped = Mapped { brk: (image.brk.0, image.brk.0), ..Mapped::default() };
                for mapping in &image.mappings {
                    let before = mapped.pages.len() as u64;
                    mapped.pages.extend(Mapped::range(mapping.start.0, mapping.len));
                    assert_eq!(before + mapping.len / PAGE_SIZE, mapped.pages.len() as u64, "image mappings overlap");
                }
                // The stack may grow to its limit.
                mapped.pages.extend(Mapped::range(image.stack_top.0 - image.stack_limit, image.stack_limit));
                self.live.insert(pid, mapped);
            }
            TaskEvent::CloneThread { tid } => assert_eq!(self.threads.insert(*tid, pid), None),
            TaskEvent::Fork { child, tid, .. } => {
                let copy = self.live[&pid].clone();
                assert!(self.live.insert(*child, copy).is_none());
                self.threads.insert(*tid, *child);
            }
            TaskEvent::ExitThread {} => assert_eq!(self.threads.remove(&tid), Some(pid)),
            TaskEvent::ExitProcess { .. } => {
                assert!(self.live.remove(&pid).is_some() && self.ended.insert(pid));
            }
            TaskEvent::Reaped { child } => {
                assert!(self.ended.remove(child), "process {child} is reaped twice, or before its exit")
            }
        }
    }
}

#[test]
fn every_access_is_to_mapped_memory() {
    for path in captures() {
        let mut reader = TraceReader::open(&path).unwrap();
        assert_eq!(reader.header().layout, AddressLayout::Linux);
        let mut tasks = Tasks::default();
        let mut batch = Vec::new();
        while reader.next_batch(&mut batch).unwrap() {
            for event in &batch {
                match event {
                    TraceEvent::Run(run) => {
                        let mapped = tasks.live.get(&tasks.current.0).expect("the current process has not exited");
                        assert!(mapped.has(run.page), "{}: {run:?} is not mapped", path.display());
                    }
                    TraceEvent::Switch { pid, tid } => {
                        assert_eq!(tasks.threads.get(tid), Some(pid), "the thread of a switch exists");
                        tasks.current = (*pid, *tid);
                    }
                    TraceEvent::Task(task) => tasks.apply(task),
                    TraceEvent::Call(call) => {
                        if let Ok(result) = call.result {
                            tasks.live.get_mut(&tasks.current.0).unwrap().apply(&call.op, result);
                        }
                    }
                    TraceEvent::File(_) => {}
                }
            }
        }
        assert!(tasks.live.is_empty(), "{}: every process exits", path.display());
    }
}

#[test]
fn every_image_has_counts_of_linux() {
    for path in captures() {
        let mut reader = TraceReader::open(&path).unwrap();
        let native = reader.header().native.clone().expect("the capture was recorded with a native run");
        let mut batch = Vec::new();
        let (mut images, mut forks) = (0, 0);
        while reader.next_batch(&mut batch).unwrap() {
            for event in &batch {
                if let TraceEvent::Task(task) = event {
                    images += usize::from(matches!(**task, TaskEvent::Exec { .. }));
                    forks += usize::from(matches!(**task, TaskEvent::Fork { .. }));
                }
            }
        }
        assert_eq!(native.images.len(), images + forks, "{}: each image has counts", path.display());
        let ended = native.images.iter().filter(|image| image.peak_rss_bytes.is_some());
        assert!(ended.clone().count() > 0 && ended.clone().all(|image| image.page_table_bytes > Some(0)));
    }
}
