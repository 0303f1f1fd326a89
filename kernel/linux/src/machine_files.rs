//! Files below `/proc` and `/sys` about the machine, and the directories that they are in.
//!
//! Most files are text as it was when they were opened. Settings of the memory manager and those of
//! the kernel ([`Sysctl`]) are read and written each time. [`node_files`] has the files of NUMA
//! nodes.
//!
//! Not guaranteed: files that Linux has and [`FILES`] does not. What is a constant of this kernel
//! and a setting of Linux is read-only.

use crate::call::{PID_MAX, RELEASE, VERSION};
use crate::errno::Errno;
use crate::file;
use crate::inode::{Inode, InodeKind};
use crate::memory::mm;
use crate::memory_files::MemoryFile;
use crate::mount;
use crate::node_files::{self, cpus, list, node_list, nodes_with_cpus};
use crate::run_queue;
use crate::shm;
use crate::sysctl::Sysctl;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::{self, Write};
use linux_raw_sys::general as linux;
use pagewright_mm::{MmSetting, SettingValues};
use pagewright_types::Level;

const READ_ONLY: u32 = 0o100_444;
const WRITABLE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_555;

/// The settings of the memory manager that take effect only when the machine is set up.
const FIXED: [MmSetting; 2] = [MmSetting::MinFreeKbytes, MmSetting::WatermarkScaleFactor];

/// Writes the text of a file.
type Show = fn(&mut dyn Write) -> fmt::Result;

/// The files that are text.
const FILES: &[(&str, Show)] = &[
    ("/proc/cpuinfo", |out| {
        cpus().try_for_each(|cpu| {
            writeln!(out, "processor\t: {cpu}")?;
            pagewright_hal::describe_cpu(out)
        })
    }),
    ("/proc/filesystems", |out| out.write_str("nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\n")),
    ("/proc/meminfo", |out| mm().show_meminfo(out)),
    ("/proc/mounts", mount::show),
    ("/proc/swaps", |out| mm().show_swaps(out)),
    ("/proc/sys/fs/nr_open", |out| writeln!(out, "{}", file::NR_OPEN)),
    ("/proc/sys/kernel/cap_last_cap", |out| writeln!(out, "{}", linux::CAP_LAST_CAP)),
    // No core dumps are written, as in Linux with an empty pattern.
    ("/proc/sys/kernel/core_pattern", |out| writeln!(out)),
    ("/proc/sys/kernel/ngroups_max", |out| writeln!(out, "{}", linux::NGROUPS_MAX)),
    ("/proc/sys/kernel/osrelease", |out| writeln!(out, "{RELEASE}")),
    ("/proc/sys/kernel/ostype", |out| writeln!(out, "Linux")),
    ("/proc/sys/kernel/overflowgid", |out| writeln!(out, "{OVERFLOW}")),
    ("/proc/sys/kernel/overflowuid", |out| writeln!(out, "{OVERFLOW}")),
    ("/proc/sys/kernel/pid_max", |out| writeln!(out, "{PID_MAX}")),
    ("/proc/sys/kernel/randomize_va_space", |out| writeln!(out, "0")),
    ("/proc/sys/kernel/sched_rr_timeslice_ms", |out| writeln!(out, "100")),
    ("/proc/sys/kernel/sched_rt_period_us", |out| writeln!(out, "{}", run_queue::REAL_TIME_PERIOD_NS / 1000)),
    ("/proc/sys/kernel/sched_rt_runtime_us", |out| writeln!(out, "{}", run_queue::REAL_TIME_RUNTIME_NS / 1000)),
    ("/proc/sys/kernel/shmall", |out| writeln!(out, "{}", shm::SIZE_MAX)),
    ("/proc/sys/kernel/shmmni", |out| writeln!(out, "{}", shm::COUNT_MAX)),
    ("/proc/sys/kernel/version", |out| writeln!(out, "{VERSION}")),
    ("/proc/sys/vm/legacy_va_layout", |out| writeln!(out, "0")),
    ("/proc/sys/vm/nr_hugepages", |out| writeln!(out, "0")),
    ("/proc/sys/vm/nr_overcommit_hugepages", |out| writeln!(out, "0")),
    ("/proc/sys/vm/oom_kill_allocating_task", |out| writeln!(out, "0")),
    ("/proc/sys/vm/panic_on_oom", |out| writeln!(out, "0")),
    ("/proc/sysvipc/shm", |out| shm::segments().show(out)),
    ("/proc/uptime", |out| {
        let hundredths = pagewright_hal::time::now_ns() / 10_000_000;
        writeln!(out, "{}.{:02} 0.00", hundredths / 100, hundredths % 100)
    }),
    ("/proc/version", |out| writeln!(out, "Linux version {RELEASE} {VERSION}")),
    ("/proc/vmstat", |out| mm().show_vmstat(out)),
    ("/sys/devices/system/cpu/online", |out| writeln!(out, "{}", list(cpus()))),
    ("/sys/devices/system/cpu/possible", |out| writeln!(out, "{}", list(cpus()))),
    ("/sys/devices/system/cpu/present", |out| writeln!(out, "{}", list(cpus()))),
    ("/sys/devices/system/node/has_cpu", |out| writeln!(out, "{}", nodes_with_cpus())),
    ("/sys/devices/system/node/has_memory", |out| writeln!(out, "{}", node_list())),
    ("/sys/devices/system/node/has_normal_memory", |out| writeln!(out, "{}", node_list())),
    ("/sys/devices/system/node/online", |out| writeln!(out, "{}", node_list())),
    ("/sys/devices/system/node/possible", |out| writeln!(out, "{}", node_list())),
    ("/sys/kernel/debug/page_tables", |out| mm().show_page_tables(out)),
    ("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", |out| writeln!(out, "{}", Level::PMD.span())),
];

/// The user and the group that stand for one that cannot be shown (`DEFAULT_OVERFLOWUID`).
const OVERFLOW: u32 = 65534;

/// The file or the directory at a path, if it is one of these.
pub(crate) fn find(path: &str) -> Option<Arc<Inode>> {
    if let Some(setting) = MmSetting::ALL.iter().find(|setting| setting.path() == path) {
        let mode = if FIXED.contains(setting) { READ_ONLY } else { WRITABLE };
        return Some(Inode::new(path, mode, InodeKind::Setting(*setting)));
    }
    if let Some((_, mode, file)) = MemoryFile::FILES.iter().find(|(known, ..)| *known == path) {
        return Some(Inode::new(path, *mode, InodeKind::OfMemory(*file)));
    }
    if let Some((_, setting)) = Sysctl::FILES.iter().find(|(known, _)| *known == path) {
        return Some(Inode::new(path, WRITABLE, InodeKind::Sysctl(*setting)));
    }
    if let Some((_, show)) = FILES.iter().find(|(known, _)| *known == path) {
        let mut text = String::new();
        show(&mut text).ok()?;
        return Some(Inode::new(path, READ_ONLY, InodeKind::Text(text.into_bytes())));
    }
    if let Some(found) = node_files::find(path) {
        return Some(found);
    }
    let is_directory = paths().any(|known| below(known, path).is_some());
    is_directory.then(|| Inode::new(path, DIRECTORY, InodeKind::Directory))
}

/// Whether a file can be opened for writing by no one (`sysctl_perm`, `kernfs_fop_open`).
pub(crate) fn is_constant(node: &Inode) -> bool {
    const WRITE: u32 = 0o222;
    let (path, debugfs) = (node.path(), "/sys/kernel/debug/");
    let refuses = path.starts_with("/proc/sys/") || path.starts_with("/sys/") && !path.starts_with(debugfs);
    refuses && node.mode() & WRITE == 0
}

/// The names and modes of what a directory has of these, by name.
pub(crate) fn entries(directory: &str) -> BTreeMap<String, u32> {
    let mut entries = BTreeMap::new();
    for rest in paths().filter_map(|path| below(path, directory)) {
        match rest.split_once('/') {
            Some((name, _)) => entries.insert(name.to_string(), DIRECTORY),
            None => entries.insert(rest.to_string(), READ_ONLY),
        };
    }
    entries.extend(node_files::entries(directory));
    entries
}

fn paths() -> impl Iterator<Item = &'static str> {
    let settings = Sysctl::FILES.iter().map(|(path, _)| *path);
    let of_memory = MemoryFile::FILES.iter().map(|(path, ..)| *path);
    let paths = FILES.iter().map(|(path, _)| *path).chain(of_memory);
    paths.chain(settings).chain(MmSetting::ALL.iter().map(|setting| setting.path()))
}

/// The rest of a path below a directory.
fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    path.strip_prefix(directory)?.strip_prefix('/')
}

/// The directory whose files show all words, and not only the current one (`enabled_show`).
const SHOWS_ALL_WORDS: &str = "/sys/kernel/mm/transparent_hugepage";

/// The value of a setting, as its file shows it.
pub(crate) fn show_setting(setting: MmSetting) -> String {
    let value = mm().settings().get(setting);
    match setting.values() {
        SettingValues::Word(words) if below(setting.path(), SHOWS_ALL_WORDS).is_some() => choice(words, value),
        SettingValues::Word(_) | SettingValues::Number { .. } | SettingValues::PowerOfTwo { .. } => {
            format!("{}\n", setting.show(value))
        }
    }
}

/// The line of all words, with that of number `chosen` in brackets.
fn choice(words: &[&str], chosen: u64) -> String {
    let mut line = String::new();
    for (number, word) in (0..).zip(words) {
        let separator = if number == 0 { "" } else { " " };
        line += &if number == chosen { format!("{separator}[{word}]") } else { format!("{separator}{word}") };
    }
    line + "\n"
}

/// Sets a setting from what a program wrote.
///
/// A word may end with one newline, and has no other space around it (`sysfs_streq`).
///
/// # Errors
/// `EINVAL` for what the setting does not accept.
pub(crate) fn store_setting(setting: MmSetting, bytes: &[u8]) -> Result<(), Errno> {
    let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    let text = match setting.values() {
        SettingValues::Word(_) => text.strip_suffix('\n').unwrap_or(text),
        SettingValues::Number { .. } | SettingValues::PowerOfTwo { .. } => text.trim(),
    };
    let value = setting.parse(text).ok_or(Errno::EINVAL)?;
    mm().settings().set(setting, value).map_err(|_| Errno::EINVAL)
}
