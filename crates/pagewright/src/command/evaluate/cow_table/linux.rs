//! Linux's fork on this computer, of a process with as much touched memory.
//!
//! Key type: [`LinuxFork`]. The process is this one. The arenas of our own machines are not copied
//! (`MADV_DONTFORK`), but its code, heap and stacks are: about what the smallest size shows.
//! The memory has base pages only (`MADV_NOHUGEPAGE`). The child waits, and is killed.
//!
//! Not guaranteed: that the host's hypervisor and mitigations cost what they would elsewhere.

use super::parent::{SpanClock, cuts};
use fork::{Fork, fork};
use memmap2::{Advice, MmapMut};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pause};
use pagewright_types::PAGE_SIZE;
use std::fs;

/// Memory of this process that its forks copy.
pub(super) struct LinuxFork {
    map: MmapMut,
}

/// The bytes that Linux could give to programs now (`MemAvailable`); 0 if it does not say.
pub(super) fn available() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

impl LinuxFork {
    /// Maps `bytes` in `mappings` mappings and touches every page; `None` if Linux refuses.
    pub(super) fn try_new(bytes: u64, mappings: u64) -> Option<Self> {
        let mut map = MmapMut::map_anon(bytes as usize).ok()?;
        map.advise(Advice::NoHugePage).ok()?;
        for (offset, len) in cuts(bytes, mappings).skip(1).step_by(2) {
            map.advise_range(Advice::DontDump, offset as usize, len as usize).ok()?;
        }
        touch(&mut map);
        Some(Self { map })
    }

    /// The microseconds of a fork; `None` if Linux refuses.
    ///
    /// Then every page of the parent is its own again.
    pub(super) fn time(&mut self) -> Option<f64> {
        let clock = SpanClock::Cpu.start();
        let child = match fork().ok()? {
            Fork::Child => loop {
                // Waits to be killed, without a store to its memory.
                pause();
            },
            Fork::Parent(child) => Pid::from_raw(child),
        };
        let time = clock.elapsed();
        kill(child, Signal::SIGKILL).ok()?;
        waitpid(child, None).ok()?;
        touch(&mut self.map);
        Some(time.as_secs_f64() * 1e6)
    }
}

fn touch(map: &mut MmapMut) {
    map.iter_mut().step_by(PAGE_SIZE as usize).for_each(|byte| *byte = std::hint::black_box(1));
}
