//! Files below `/proc` and `/sys` that show the state of processes and of the machine.
//!
//! [`find`] makes an inode for a path when it is opened or looked at. Most files are text as it was
//! then ([`InodeKind::Text`]); settings and the OOM score are read and written each time.
//!
//! Not guaranteed: files that Linux has and this table does not, and fields of `stat` and `status`
//! that no program here needs.

use crate::credentials::{Credentials, TracingIds};
use crate::errno::Errno;
use crate::file::{DescriptorTable, OpenFile, OpenTarget};
use crate::inode::{Inode, InodeKind};
use crate::memory::{SpaceHandle, mm};
use crate::task::{TaskId, Thread, scheduler};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use pagewright_arch::Effects;
use pagewright_mm::MmSetting;
use pagewright_mm::counters::RssKind;
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

const READ_ONLY: u32 = 0o100_444;
const WRITABLE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_555;
const LINK: u32 = 0o120_000;

/// The settings of the memory manager that take effect only when the machine is set up.
const FIXED: [MmSetting; 2] = [MmSetting::MinFreeKbytes, MmSetting::WatermarkScaleFactor];

/// The file at a path, if it is one of these.
///
/// # Errors
/// `ENOENT` for a file of a process that does not exist.
pub(crate) fn find(thread: &Thread, path: &str) -> Option<Result<Arc<Inode>, Errno>> {
    #[cfg(feature = "oracle")]
    if let Some(text) = crate::report::page_counts::file(path) {
        return Some(Ok(Inode::new(path, 0o100_400, InodeKind::Text(text))));
    }
    if !path.starts_with("/proc/") && !path.starts_with("/sys/") {
        return None;
    }
    let rest = path.strip_prefix("/proc/").unwrap_or_default();
    let (first, name) = rest.split_once('/').unwrap_or((rest, ""));
    let process = match first {
        "self" => Some(thread.process),
        number => number.parse().ok().map(TaskId),
    };
    if let Some(process) = process {
        if let Some(open) = descriptor(thread, path) {
            return Some(
                open.map(|open| Inode::new(path, link_mode(&open), InodeKind::Link(descriptor_target(&open)))),
            );
        }
        return of_process(process, path, name);
    }
    if let Some(cpu) = path.strip_prefix(CPUS) {
        let is_cpu = |cpu: &str| cpu.strip_prefix("/cpu")?.parse().ok().filter(|cpu| cpus().any(|known| known == *cpu));
        if cpu.is_empty() || is_cpu(cpu).is_some() {
            return Some(Ok(Inode::new(path, DIRECTORY, InodeKind::Directory)));
        }
    }
    of_machine(path).map(Ok)
}

/// The names of the files of a process.
const OF_PROCESS: [&str; 9] =
    ["cmdline", "comm", "maps", "oom_score_adj", "smaps", "smaps_rollup", "stat", "statm", "status"];

/// The folder of the CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// The names and modes of what a directory has beyond the tree of files.
pub(crate) fn entries(directory: &str) -> Result<Vec<(String, u32)>, Errno> {
    let numbers = |ids: Vec<u32>, mode| ids.into_iter().map(|id| (id.to_string(), mode)).collect::<Vec<_>>();
    if directory == "/proc" {
        return Ok(numbers(scheduler().processes.keys().map(|id| id.0).collect(), DIRECTORY));
    }
    if directory == CPUS {
        let files = ["online", "possible", "present"].map(|name| (name.to_string(), READ_ONLY));
        return Ok(cpus().map(|cpu| (format!("cpu{cpu}"), DIRECTORY)).chain(files).collect());
    }
    let Some((id, rest)) = directory.strip_prefix("/proc/").map(|rest| rest.split_once('/').unwrap_or((rest, "")))
    else {
        return Ok(Vec::new());
    };
    let Ok(id) = id.parse().map(TaskId) else { return Ok(Vec::new()) };
    let files = OF_PROCESS.iter().map(|name| ((*name).to_string(), READ_ONLY));
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

/// The open file that a link below `/proc/PID/fd` leads to.
///
/// # Errors
/// `ENOENT`; `EACCES` for a process that the caller may not look into.
pub(crate) fn descriptor(thread: &Thread, path: &str) -> Option<Result<Arc<OpenFile>, Errno>> {
    let (id, number) = path.strip_prefix("/proc/")?.split_once("/fd/")?;
    let id = if id == "self" { thread.process } else { TaskId(id.parse().ok()?) };
    let number: u64 = number.parse::<u32>().ok()?.into();
    Some(descriptor_of(thread, id, number))
}

fn descriptor_of(thread: &Thread, id: TaskId, number: u64) -> Result<Arc<OpenFile>, Errno> {
    {
        let scheduler = scheduler();
        let process = scheduler.processes.get(&id).ok_or(Errno::ENOENT)?;
        let allowed = || thread.credentials.may_trace(&process.credentials, process.is_dumpable, TracingIds::Files);
        if id != thread.process && !allowed() {
            return Err(Errno::EACCES);
        }
    }
    let table = table_of(id)?;
    let open = table.lock().get(number).map(|known| known.open.clone());
    open.map_err(|_| Errno::ENOENT)
}

/// What the link of a descriptor says.
pub(crate) fn descriptor_target(open: &OpenFile) -> String {
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
fn path_of(node: &Inode) -> String {
    let path = node.path();
    if path.starts_with('/') && node.attributes().links > 0 {
        path
    } else {
        format!("/{} (deleted)", path.trim_start_matches('/'))
    }
}

/// What the files of a process show, as the scheduler has it.
struct ProcessView {
    id: TaskId,
    parent: TaskId,
    group: TaskId,
    name: String,
    arguments: Arc<[u8]>,
    threads: u32,
    credentials: Arc<Credentials>,
    state: char,
    /// User and kernel time, and that of reaped children, in ticks of 1/100 s.
    ticks: [u64; 4],
    space: Option<Arc<SpaceHandle>>,
}

impl ProcessView {
    fn of(id: TaskId) -> Option<Self> {
        let mut scheduler = scheduler();
        scheduler.processes.get(&id)?;
        let name = scheduler.name_of(id);
        let asleep = scheduler.is_asleep(id);
        let process = scheduler.process(id);
        let (own, children) = (process.usage.user_and_kernel_ns(), process.children_usage.user_and_kernel_ns());
        let state = match (process.exit_status, asleep) {
            (Some(_), _) => 'Z',
            (None, true) => 'S',
            (None, false) => 'R',
        };
        Some(Self {
            id,
            parent: if process.parent == id { TaskId(0) } else { process.parent },
            group: process.group,
            name,
            arguments: process.arguments.clone(),
            threads: process.threads,
            credentials: process.credentials.clone(),
            state,
            ticks: [own.0, own.1, children.0, children.1].map(|ns| ns / 10_000_000),
            space: process.space.upgrade(),
        })
    }

    /// `/proc/PID/stat`; fields that are not known are 0.
    fn show_stat(&self, out: &mut dyn Write) -> fmt::Result {
        let Self { id, parent, group, name, threads, state, ticks, .. } = self;
        let (faults, size, resident) = self.space.as_ref().map_or(((0, 0), 0, 0), |space| {
            let space = &space.0;
            ((space.minor_faults(), space.major_faults()), space.map().read().bytes(), space.rss().pages())
        });
        write!(out, "{} ({name}) {state} {} {} 1 0 -1 0 {} 0 {} 0 ", id.0, parent.0, group.0, faults.0, faults.1)?;
        write!(out, "{} {} {} {} 20 0 {threads} 0 0 {size} {resident} ", ticks[0], ticks[1], ticks[2], ticks[3])?;
        writeln!(out, "{} 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0", u64::MAX)
    }

    /// `/proc/PID/status`.
    fn show_status(&self, out: &mut dyn Write) -> fmt::Result {
        let state = match self.state {
            'Z' => "Z (zombie)",
            'S' => "S (sleeping)",
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
        writeln!(out, "NoNewPrivs:\t{}", u8::from(*no_new_privileges))
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
fn of_process(id: TaskId, path: &str, name: &str) -> Option<Result<Arc<Inode>, Errno>> {
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
        let (thread, of_thread) = rest.split_once('/').unwrap_or((rest, ""));
        let Some(thread) = thread.parse().ok().filter(|thread| threads_of(id).contains(thread)) else {
            return Some(Err(Errno::ENOENT));
        };
        if of_thread.is_empty() {
            return directory(name);
        }
        (view.id, view.name) = (TaskId(thread), scheduler().name_of(TaskId(thread)));
        name = of_thread;
    }
    if name == "oom_score_adj" {
        let handle = scheduler().processes.get(&id).map(|process| process.handle.clone());
        let node = handle.map(|handle| Inode::new(path, WRITABLE, InodeKind::OomScoreAdj(handle)));
        return Some(node.ok_or(Errno::ENOENT));
    }
    let mut text = String::new();
    let out = &mut text;
    let shown = match (name, &view.space) {
        ("cmdline", _) => out.write_str(&String::from_utf8_lossy(&view.arguments)),
        ("comm", _) => writeln!(out, "{}", view.name),
        ("stat", _) => view.show_stat(out),
        ("status", _) => view.show_status(out),
        ("statm", _) => view.show_statm(out),
        // A process that has ended has no memory to show.
        ("maps" | "smaps" | "smaps_rollup", None) => Ok(()),
        ("maps", Some(space)) => mm().show_maps(&space.0, out),
        ("smaps", Some(space)) => mm().show_smaps(&space.0, out),
        ("smaps_rollup", Some(space)) => mm().show_smaps_rollup(&space.0, out),
        _ => return None,
    };
    Some(shown.map(|()| Inode::new(path, READ_ONLY, InodeKind::Text(text))).map_err(|_| Errno::ENOMEM))
}

/// A file of the machine.
fn of_machine(path: &str) -> Option<Arc<Inode>> {
    let setting = MmSetting::ALL.iter().find(|setting| setting.path() == path);
    if let Some(setting) = setting {
        let mode = if FIXED.contains(setting) { READ_ONLY } else { WRITABLE };
        return Some(Inode::new(path, mode, InodeKind::Setting(*setting)));
    }
    let mut text = String::new();
    let out = &mut text;
    let shown = match path {
        "/proc/vmstat" => mm().show_vmstat(out),
        "/proc/meminfo" => mm().show_meminfo(out),
        "/proc/swaps" => mm().show_swaps(out),
        "/sys/kernel/debug/page_tables" => mm().show_page_tables(out),
        "/proc/sysvipc/shm" => crate::shm::segments().show(out),
        "/proc/mounts" => writeln!(out, "none / tmpfs rw,relatime 0 0"),
        "/proc/uptime" => {
            let hundredths = pagewright_hal::time::now_ns() / 10_000_000;
            writeln!(out, "{}.{:02} 0.00", hundredths / 100, hundredths % 100)
        }
        "/proc/cpuinfo" => cpus().try_for_each(|cpu| writeln!(out, "processor\t: {cpu}\n")),
        "/proc/sys/kernel/ostype" => writeln!(out, "Linux"),
        "/proc/sys/kernel/osrelease" => writeln!(out, "{}", crate::call::RELEASE),
        "/sys/devices/system/cpu/online" | "/sys/devices/system/cpu/present" | "/sys/devices/system/cpu/possible" => {
            writeln!(out, "{}", range(cpus().count()))
        }
        "/sys/devices/system/node/online" | "/sys/devices/system/node/possible" => {
            writeln!(out, "{}", range(pagewright_hal::boot_info().nodes.len()))
        }
        _ => return None,
    };
    shown.ok()?;
    Some(Inode::new(path, READ_ONLY, InodeKind::Text(text)))
}

fn cpus() -> impl Iterator<Item = usize> {
    0..pagewright_hal::Machine.online().iter().count()
}

/// The numbers from 0 on, as Linux prints a mask.
fn range(count: usize) -> String {
    if count == 1 { "0".to_string() } else { format!("0-{}", count - 1) }
}

/// The value of a setting, as its file shows it.
pub(crate) fn show_setting(setting: MmSetting) -> String {
    format!("{}\n", setting.show(mm().settings().get(setting)))
}

/// Sets a setting from what a program wrote.
///
/// # Errors
/// `EINVAL` for what the setting does not accept, `EPERM` if it takes effect at boot only.
pub(crate) fn store_setting(setting: MmSetting, bytes: &[u8]) -> Result<(), Errno> {
    if FIXED.contains(&setting) {
        return Err(Errno::EPERM);
    }
    let value = core::str::from_utf8(bytes).ok().and_then(|text| setting.parse(text.trim())).ok_or(Errno::EINVAL)?;
    mm().settings().set(setting, value).map_err(|_| Errno::EINVAL)
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
