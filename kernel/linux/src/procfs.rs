//! Files below `/proc` that show the state of processes.
//!
//! [`find`] makes an inode for a path when it is opened or looked at, also for one of the files of
//! the machine ([`machine_files`]). Most files are text as it was then ([`InodeKind::Text`]); the
//! OOM score is read and written each time, and text about mappings is made as it is read.
//!
//! Not guaranteed: files that Linux has and [`OF_PROCESS`] does not, and fields of `stat` and
//! `status` that no program here needs.

use crate::call::may_trace;
use crate::credentials::{Credentials, TracingIds};
use crate::errno::Errno;
use crate::file::{DescriptorTable, FsContext, OpenFile, OpenTarget};
use crate::inode::{Inode, InodeKind};
use crate::limits::ProcessLimits;
use crate::machine_files;
use crate::mappings_text::{MappingsFile, MappingsText};
use crate::memory::{SpaceHandle, mm};
use crate::mount;
use crate::node_files;
use crate::process_memory::{MemoryView, ProcessMemory};
use crate::ramfs;
use crate::run_queue::Scheduling;
use crate::task::{TaskId, Thread, scheduler};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt::{self, Write};
use linux_raw_sys::general as linux;
use pagewright_mm::counters::RssKind;
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

const READ_ONLY: u32 = 0o100_444;
const WRITABLE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_555;
const LINK: u32 = 0o120_000;

/// The file at a path, if it is one of these.
///
/// # Errors
/// `ENOENT` for a file of a process that does not exist.
pub(crate) fn find(thread: &Thread, path: &str) -> Option<Result<Arc<Inode>, Errno>> {
    #[cfg(feature = "oracle")]
    if let Some(text) = crate::report::page_counts::file(path) {
        return Some(Ok(Inode::new(path, 0o100_400, InodeKind::Text(text.into_bytes()))));
    }
    if !path.starts_with("/proc/") && !path.starts_with("/sys/") {
        return None;
    }
    let rest = path.strip_prefix("/proc/").unwrap_or_default();
    let (first, name) = rest.split_once('/').unwrap_or((rest, ""));
    if let Some(process) = process_named(thread, first) {
        if let Some(open) = descriptor(thread, path) {
            return Some(
                open.map(|open| Inode::new(path, link_mode(&open), InodeKind::Link(descriptor_target(&open)))),
            );
        }
        return of_process(thread, process, path, name);
    }
    machine_files::find(path).map(Ok)
}

/// Follows the first link or `..` that a path passes through below `/proc` or `/sys`.
///
/// With `follow`, a last link below `/sys` is followed, too; one of `/proc` leads to a file.
///
/// # Errors
/// Those of the link.
pub(crate) fn follow(thread: &Thread, path: &str, follow: bool) -> Result<Option<String>, Errno> {
    if path.starts_with("/sys/") {
        return Ok(follow_in_sysfs(path, follow));
    }
    let Some(rest) = path.strip_prefix("/proc/") else { return Ok(None) };
    // A link has a name below its process, and something below itself.
    let last = path.ends_with("/..").then_some(path.len());
    for end in path.match_indices('/').map(|(end, _)| end).skip(3).chain(last).filter(|_| rest.contains('/')) {
        if let Some(directory) = path[..end].strip_suffix("/..") {
            return Ok(Some(format!("{}{}", ramfs::parent(directory), &path[end..])));
        }
        match find(thread, &path[..end]).transpose()?.as_deref().map(|node| &node.kind) {
            Some(InodeKind::Link(target)) => return Ok(Some(format!("{target}{}", &path[end..]))),
            Some(InodeKind::Directory) => {}
            Some(_) => return Err(Errno::ENOTDIR),
            None => return Err(Errno::ENOENT),
        }
    }
    Ok(None)
}

/// Follows the first link or `..` of a path below `/sys`, whose links are relative.
///
/// It is not checked that the directories exist.
fn follow_in_sysfs(path: &str, follow: bool) -> Option<String> {
    let last = (follow || path.ends_with("/..")).then_some(path.len());
    path.match_indices('/').map(|(end, _)| end).skip(2).chain(last).find_map(|end| {
        let (prefix, rest) = path.split_at(end);
        if let Some(directory) = prefix.strip_suffix("/..") {
            return Some(format!("{}{rest}", ramfs::parent(directory)));
        }
        let target = node_files::link(prefix)?;
        Some(format!("{}{rest}", ramfs::absolute(ramfs::parent(prefix), &target)))
    })
}

/// The names and modes of the files of a process.
const OF_PROCESS: [(&str, u32); 17] = [
    ("clear_refs", 0o100_200),
    ("cmdline", READ_ONLY),
    ("comm", READ_ONLY),
    ("cwd", LINK | 0o777),
    ("environ", 0o100_400),
    ("exe", LINK | 0o777),
    ("limits", READ_ONLY),
    ("maps", READ_ONLY),
    ("mem", 0o100_600),
    ("mounts", READ_ONLY),
    ("oom_score_adj", WRITABLE),
    ("pagemap", 0o100_400),
    ("smaps", READ_ONLY),
    ("smaps_rollup", READ_ONLY),
    ("stat", READ_ONLY),
    ("statm", READ_ONLY),
    ("status", READ_ONLY),
];

/// The names and modes of what a directory has beyond the tree of files.
pub(crate) fn entries(directory: &str) -> Result<Vec<(String, u32)>, Errno> {
    let numbers = |ids: Vec<u32>, mode| ids.into_iter().map(|id| (id.to_string(), mode)).collect::<Vec<_>>();
    let mut of_machine: Vec<_> = machine_files::entries(directory).into_iter().collect();
    if directory == "/proc" {
        of_machine.extend(numbers(scheduler().processes.keys().map(|id| id.0).collect(), DIRECTORY));
    }
    let Some((id, rest)) = directory.strip_prefix("/proc/").map(|rest| rest.split_once('/').unwrap_or((rest, "")))
    else {
        return Ok(of_machine);
    };
    let Ok(id) = id.parse().map(TaskId) else { return Ok(of_machine) };
    let files = OF_PROCESS.iter().map(|(name, mode)| ((*name).to_string(), *mode));
    Ok(match rest {
        "" => files.chain(["fd", "task"].map(|name| (name.to_string(), DIRECTORY))).collect(),
        "fd" => numbers(table_of(id)?.lock().numbers(), LINK),
        "task" => numbers(threads_of(id), DIRECTORY),
        _ if rest.starts_with("task/") => files.collect(),
        _ => Vec::new(),
    })
}

/// The numbers of the threads of a process.
fn threads_of(id: TaskId) -> Vec<u32> {
    let scheduler = scheduler();
    scheduler.threads.iter().filter(|(_, entry)| entry.process == id).map(|(id, _)| id.0).collect()
}

/// The descriptors of a process.
fn table_of(id: TaskId) -> Result<Arc<Mutex<DescriptorTable>>, Errno> {
    scheduler().processes.get(&id).and_then(|process| process.files.upgrade()).ok_or(Errno::ENOENT)
}

/// The process whose directory in `/proc` has this name; `self` is the caller's.
fn process_named(thread: &Thread, name: &str) -> Option<TaskId> {
    if name == "self" { Some(thread.process) } else { name.parse().ok().map(TaskId) }
}

/// The process whose directory an inode is (`tgid_pidfd_to_pid`).
///
/// # Errors
/// `EBADF` for what is no such directory, `ESRCH` if the process was reaped.
pub(crate) fn process_of(thread: &Thread, node: &Inode) -> Result<Arc<TaskId>, Errno> {
    let path = node.path();
    let id = path.strip_prefix("/proc/").and_then(|name| process_named(thread, name)).ok_or(Errno::EBADF)?;
    scheduler().processes.get(&id).map(|process| process.handle.clone()).ok_or(Errno::ESRCH)
}

/// The open file that a link below `/proc/PID/fd` leads to.
///
/// # Errors
/// `ENOENT`; `EACCES` for a process that the caller may not look into.
pub(crate) fn descriptor(thread: &Thread, path: &str) -> Option<Result<Arc<OpenFile>, Errno>> {
    let (id, number) = path.strip_prefix("/proc/")?.split_once("/fd/")?;
    let id = process_named(thread, id)?;
    let number: u64 = number.parse::<u32>().ok()?.into();
    Some(descriptor_of(thread, id, number))
}

/// The file behind a link of a process that leads to a file and not to a path: `fd/N` and `exe`.
///
/// # Errors
/// As [`descriptor`]; `ENXIO` if it is no file of the tree and no shared memory.
pub(crate) fn linked(thread: &Thread, path: &str) -> Option<Result<Arc<Inode>, Errno>> {
    if let Some(open) = descriptor(thread, path) {
        return Some(open.and_then(|open| open.inode().cloned().ok_or(Errno::ENXIO)));
    }
    let id = path.strip_prefix("/proc/")?.strip_suffix("/exe")?;
    let id = process_named(thread, id)?;
    Some(ProcessView::of(id).ok_or(Errno::ENOENT).and_then(|view| view.program(thread)))
}

fn descriptor_of(thread: &Thread, id: TaskId, number: u64) -> Result<Arc<OpenFile>, Errno> {
    let handle = scheduler().processes.get(&id).map(|process| process.handle.clone()).ok_or(Errno::ENOENT)?;
    if !may_trace(thread, &handle, TracingIds::Files)? {
        return Err(Errno::EACCES);
    }
    let table = table_of(id)?;
    let open = table.lock().get(number).map(|known| known.open.clone());
    open.map_err(|_| Errno::ENOENT)
}

/// What the link of a descriptor says.
fn descriptor_target(open: &OpenFile) -> String {
    match &open.target {
        OpenTarget::Inode(node) => path_of(node),
        OpenTarget::Pipe(end) => end.fifo().map_or_else(|| format!("pipe:[{}]", end.number()), |node| path_of(node)),
        OpenTarget::Socket(_) => format!("socket:[{}]", open.number),
        OpenTarget::Process(_) => "anon_inode:[pidfd]".to_string(),
        OpenTarget::Event(_) => "anon_inode:[eventfd]".to_string(),
        OpenTarget::Epoll(_) => "anon_inode:[eventpoll]".to_string(),
    }
}

/// The path of an inode, which says if it was removed (`d_path`).
pub(crate) fn path_of(node: &Inode) -> String {
    let path = node.path();
    if path.starts_with('/') && node.attributes().links > 0 {
        path
    } else {
        format!("/{} (deleted)", path.trim_start_matches('/'))
    }
}

/// What the files of a process show, as the scheduler has it.
struct ProcessView {
    handle: Arc<TaskId>,
    id: TaskId,
    parent: TaskId,
    group: TaskId,
    session: TaskId,
    name: String,
    arguments: Arc<[u8]>,
    environment: Arc<[u8]>,
    limits: ProcessLimits,
    fs: Weak<Mutex<FsContext>>,
    threads: u32,
    credentials: Arc<Credentials>,
    state: char,
    /// User and kernel time, and that of reaped children, in ticks of 1/100 s.
    ticks: [u64; 4],
    /// That of the thread; of the first one for the process.
    scheduling: Scheduling,
    space: Option<Arc<SpaceHandle>>,
    /// The user and the group that own the files (`task_dump_owner`).
    owner: (u32, u32),
}

impl ProcessView {
    fn of(id: TaskId) -> Option<Self> {
        let mut scheduler = scheduler();
        scheduler.processes.get(&id)?;
        let name = scheduler.name_of(id);
        let state = scheduler.state_of(id);
        let scheduling = scheduler.threads.get(&id).map_or_else(Scheduling::of_init, |entry| entry.scheduling);
        let process = scheduler.process(id);
        let (own, children) = (process.usage.user_and_kernel_ns(), process.children_usage.user_and_kernel_ns());
        Some(Self {
            handle: process.handle.clone(),
            id,
            parent: if process.parent == id { TaskId(0) } else { process.parent },
            group: process.group,
            session: process.session,
            name,
            arguments: process.arguments.clone(),
            environment: process.environment.clone(),
            limits: process.limits.clone(),
            fs: process.fs.clone(),
            threads: process.threads,
            credentials: process.credentials.clone(),
            state,
            ticks: [own.0, own.1, children.0, children.1].map(|ns| ns / 10_000_000),
            scheduling,
            space: process.space.upgrade(),
            owner: if process.is_dumpable {
                (process.credentials.user.effective, process.credentials.group.effective)
            } else {
                (0, 0)
            },
        })
    }

    /// Fails unless a thread may look into the process.
    fn check_look(&self, thread: &Thread) -> Result<(), Errno> {
        if may_trace(thread, &self.handle, TracingIds::Files)? { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// The working directory, for a thread that may look into the process.
    fn directory(&self, thread: &Thread) -> Result<String, Errno> {
        self.check_look(thread)?;
        let fs = self.fs.upgrade().ok_or(Errno::ENOENT)?;
        let directory = fs.lock().directory.clone();
        Ok(directory.path())
    }

    /// The environment, for a thread that may look into the process.
    fn environment(&self, thread: &Thread) -> Result<Vec<u8>, Errno> {
        self.check_look(thread)?;
        Ok(if self.space.is_some() { self.environment.to_vec() } else { Vec::new() })
    }

    /// The file of the program, for a thread that may look into the process.
    fn program(&self, thread: &Thread) -> Result<Arc<Inode>, Errno> {
        self.check_look(thread)?;
        Ok(self.space.as_ref().ok_or(Errno::ENOENT)?.program().inode().clone())
    }

    /// A file of the memory.
    fn memory(&self, view: MemoryView) -> InodeKind {
        let space = self.space.as_ref().map_or_else(Weak::new, Arc::downgrade);
        InodeKind::Memory(ProcessMemory::new(self.handle.clone(), space, view))
    }

    /// A file about the mappings.
    fn text(&self, file: MappingsFile) -> InodeKind {
        self.memory(MemoryView::Text(Mutex::new(MappingsText::new(file))))
    }

    /// The text of the file with this name.
    fn show(&self, name: &str) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let out = &mut text;
        match name {
            "cmdline" => out.write_str(&String::from_utf8_lossy(&self.arguments))?,
            "comm" => writeln!(out, "{}", self.name)?,
            "limits" => self.limits.show(out)?,
            "mounts" => mount::show(out)?,
            "stat" => self.show_stat(out)?,
            "status" => self.show_status(out)?,
            "statm" => self.show_statm(out)?,
            _ => {}
        }
        Ok(text)
    }

    /// `/proc/PID/stat`; fields that are not known are 0.
    fn show_stat(&self, out: &mut dyn Write) -> fmt::Result {
        let Self { id, parent, group, session, name, threads, state, ticks, scheduling, .. } = self;
        let (faults, size, resident) = self.space.as_ref().map_or(((0, 0), 0, 0), |space| {
            let space = &space.0;
            ((space.minor_faults(), space.major_faults()), space.map().read().bytes(), space.rss().pages())
        });
        write!(out, "{} ({name}) {state} {} {} {} 0 -1 0 ", id.0, parent.0, group.0, session.0)?;
        write!(out, "{} 0 {} 0 ", faults.0, faults.1)?;
        let (shown, nice) = (scheduling.shown_priority(), scheduling.nice);
        write!(out, "{} {} {} {} {shown} {nice} ", ticks[0], ticks[1], ticks[2], ticks[3])?;
        write!(out, "{threads} 0 0 {size} {resident} {} 0 0 0 0 0 0 0 0 0 0 0 0 17 0 ", u64::MAX)?;
        writeln!(out, "{} {} 0 0 0 0 0 0 0 0 0 0 0", scheduling.priority, scheduling.policy)
    }

    /// `/proc/PID/status`.
    fn show_status(&self, out: &mut dyn Write) -> fmt::Result {
        let state = match self.state {
            'Z' => "Z (zombie)",
            'S' => "S (sleeping)",
            'D' => "D (disk sleep)",
            'T' => "T (stopped)",
            _ => "R (running)",
        };
        let (id, parent) = (self.id.0, self.parent.0);
        writeln!(out, "Name:\t{}\nUmask:\t0022\nState:\t{state}\nTgid:\t{id}\nNgid:\t0\nPid:\t{id}", self.name)?;
        writeln!(out, "PPid:\t{parent}\nTracerPid:\t0")?;
        let Credentials { user, group, groups, capabilities, no_new_privileges, .. } = &*self.credentials;
        for (name, ids) in [("Uid", user), ("Gid", group)] {
            writeln!(out, "{name}:\t{}\t{}\t{}\t{}", ids.real, ids.effective, ids.saved, ids.files)?;
        }
        out.write_str("Groups:\t")?;
        groups.iter().try_for_each(|group| write!(out, "{group} "))?;
        writeln!(out)?;
        if let Some(space) = &self.space {
            mm().show_status(&space.0, out)?;
        }
        writeln!(out, "Threads:\t{}", self.threads)?;
        let sets = [
            ("CapInh", capabilities.inheritable),
            ("CapPrm", capabilities.permitted),
            ("CapEff", capabilities.effective),
            ("CapBnd", capabilities.bounding),
        ];
        sets.iter().try_for_each(|(name, set)| writeln!(out, "{name}:\t{:016x}", set.0))?;
        writeln!(out, "NoNewPrivs:\t{}", u8::from(*no_new_privileges))?;
        // Every process may use every node (`cpuset_task_status_allowed`).
        let allowed = mm().node_mask().word();
        writeln!(out, "Mems_allowed:\t{:08x},{:08x}", allowed >> 32, allowed as u32)?;
        writeln!(out, "Mems_allowed_list:\t{}", node_files::node_list())
    }

    /// `/proc/PID/statm`, in pages; the part of libraries and of dirty pages is always 0.
    fn show_statm(&self, out: &mut dyn Write) -> fmt::Result {
        let Some(space) = &self.space else { return writeln!(out, "0 0 0 0 0 0 0") };
        let (map, rss) = (space.0.map().read(), space.0.rss());
        let shared = rss.pages() - rss.of(RssKind::Anon);
        writeln!(out, "{} {} {shared} {} 0 0 0", map.bytes() / PAGE_SIZE, rss.pages(), map.code().len() / PAGE_SIZE)
    }
}

/// The mode of the link of a descriptor (`tid_fd_update_inode`).
fn link_mode(open: &OpenFile) -> u32 {
    const READS: u32 = 0o500;
    const WRITES: u32 = 0o300;
    LINK | if open.can_read() { READS } else { 0 } | if open.can_write() { WRITES } else { 0 }
}

/// A file of a process or of one of its threads, or a directory of them.
fn of_process(thread: &Thread, id: TaskId, path: &str, name: &str) -> Option<Result<Arc<Inode>, Errno>> {
    let Some(mut view) = ProcessView::of(id) else { return Some(Err(Errno::ENOENT)) };
    let mut name = name.trim_end_matches('/');
    let directory = |name: &str| {
        let path = format!("/proc/{}/{name}", id.0);
        Some(Ok(Inode::new(path.trim_end_matches('/'), DIRECTORY, InodeKind::Directory)))
    };
    if matches!(name, "" | "fd" | "task") {
        return directory(name);
    }
    if let Some(rest) = name.strip_prefix("task/") {
        let (number, of_thread) = rest.split_once('/').unwrap_or((rest, ""));
        let Some(number) = number.parse().ok().filter(|number| threads_of(id).contains(number)) else {
            return Some(Err(Errno::ENOENT));
        };
        if of_thread.is_empty() {
            return directory(name);
        }
        let (scheduler, number) = (scheduler(), TaskId(number));
        (view.id, view.name, view.state) = (number, scheduler.name_of(number), scheduler.state_of(number));
        name = of_thread;
    }
    let (_, mode) = OF_PROCESS.iter().find(|(known, _)| *known == name)?;
    let kind = match name {
        "cwd" => view.directory(thread).map(InodeKind::Link),
        "environ" => view.environment(thread).map(InodeKind::Text),
        "exe" => view.program(thread).map(|node| InodeKind::Link(path_of(&node))),
        "oom_score_adj" => Ok(InodeKind::OomScoreAdj(view.handle)),
        "mem" => Ok(view.memory(MemoryView::Bytes)),
        "pagemap" => {
            Ok(view.memory(MemoryView::Pagemap { shows_frames: thread.credentials.has(linux::CAP_SYS_ADMIN) }))
        }
        "clear_refs" => Ok(view.memory(MemoryView::ClearRefs)),
        "maps" => Ok(view.text(MappingsFile::Maps)),
        "smaps" => Ok(view.text(MappingsFile::Smaps)),
        "smaps_rollup" => Ok(view.text(MappingsFile::SmapsRollup)),
        _ => view.show(name).map(|text| InodeKind::Text(text.into_bytes())).map_err(|_| Errno::ENOMEM),
    };
    Some(kind.map(|kind| {
        let node = Inode::new(path, *mode, kind);
        node.change(|attributes| (attributes.uid, attributes.gid) = view.owner);
        node
    }))
}

/// The limits of `oom_score_adj` (`OOM_SCORE_ADJ_MIN`, `OOM_SCORE_ADJ_MAX`).
const ADJUSTMENT: core::ops::RangeInclusive<i32> = -1000..=1000;

/// The adjustment of a process, as its file shows it.
pub(crate) fn show_oom_score_adj(handle: &Arc<TaskId>) -> Result<String, Errno> {
    let scheduler = scheduler();
    let process = scheduler.process_of(handle).ok_or(Errno::ESRCH)?;
    Ok(format!("{}\n", process.oom_score_adj))
}

/// Sets the adjustment of a process from what a program wrote.
pub(crate) fn store_oom_score_adj(handle: &Arc<TaskId>, bytes: &[u8]) -> Result<(), Errno> {
    let text = core::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok());
    let value = text.filter(|value| ADJUSTMENT.contains(value)).ok_or(Errno::EINVAL)?;
    let mut scheduler = scheduler();
    scheduler.process_of(handle).ok_or(Errno::ESRCH)?;
    scheduler.process(**handle).oom_score_adj = value;
    Ok(())
}
