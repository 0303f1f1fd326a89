//! Linux's fork on this computer, of a process with as much touched memory.
//!
//! Key type: [`LinuxFork`]. The process is this one. The arenas of our own machines are not copied
//! (`MADV_DONTFORK`), but its code, heap and stacks are: about what the smallest size shows.
//! The memory has base pages only (`MADV_NOHUGEPAGE`), unless it is to have huge ones. The child
//! waits, and is killed.
//!
//! Not guaranteed: that the host's hypervisor and mitigations cost what they would elsewhere.

use super::evaluate::cuts;
use fork::{Fork, fork};
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pause};
use pagewright_host::ThreadClock;
use pagewright_types::{Level, PAGE_SIZE};
use std::fs::{self, File};
use std::ops::Range;

/// Bytes of addresses that a last-level table maps.
const TABLE_SPAN: u64 = PAGE_SIZE * Level::ENTRIES as u64;

/// The most bytes of other data: those of a last-level cache or more.
const MOST_OTHER_DATA: usize = 64 << 20;
/// Bytes of a line of a cache, or fewer.
const CACHE_LINE: usize = 64;

/// Memory of this process that its forks copy.
pub(super) struct LinuxFork {
    map: MmapMut,
    /// The parts of it whose pages are touched before each fork.
    touched: Vec<Range<usize>>,
    /// Mappings of a file, which forks copy without their pages.
    _files: Vec<MmapRaw>,
    /// What is stored to before each fork, and not copied by it.
    other_data: Option<MmapMut>,
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
        let map = MmapMut::map_anon(bytes as usize).ok()?;
        map.advise(Advice::NoHugePage).ok()?;
        for (offset, len) in cuts(bytes, mappings).skip(1).step_by(2) {
            map.advise_range(Advice::DontDump, offset as usize, len as usize).ok()?;
        }
        let every = 0..map.len();
        Some(Self::touching(map, vec![every], Vec::new()))
    }

    /// Maps memory with so many touched pages below each last-level table; `None` if Linux refuses.
    pub(super) fn try_tables(pages: impl ExactSizeIterator<Item = u64>) -> Option<Self> {
        let map = aligned(pages.len() as u64 * TABLE_SPAN)?;
        map.0.advise(Advice::NoHugePage).ok()?;
        let starts = (map.1..).step_by(TABLE_SPAN as usize);
        let touched = starts.zip(pages).map(|(start, pages)| start..start + (pages * PAGE_SIZE) as usize);
        let touched = touched.collect();
        Some(Self::touching(map.0, touched, Vec::new()))
    }

    /// Maps and touches so many huge pages; `None` if Linux refuses the mapping.
    ///
    /// Linux decides how many of them it makes huge.
    pub(super) fn try_huge(leaves: u64) -> Option<Self> {
        let bytes = leaves * TABLE_SPAN;
        let (map, start) = aligned(bytes)?;
        map.advise(Advice::HugePage).ok()?;
        let touched = start..start + bytes as usize;
        Some(Self::touching(map, Vec::from([touched]), Vec::new()))
    }

    /// Maps the first page of a file so many times, and a page of memory; `None` if Linux refuses.
    pub(super) fn try_files(mappings: usize) -> Option<Self> {
        let file = File::open("/proc/self/exe").ok()?;
        let map = || MmapOptions::new().len(PAGE_SIZE as usize).map_raw_read_only(&file).ok();
        let files = (0..mappings).map(|_| map()).collect::<Option<_>>()?;
        let map = MmapMut::map_anon(PAGE_SIZE as usize).ok()?;
        Some(Self::touching(map, Vec::new(), files))
    }

    fn touching(map: MmapMut, touched: Vec<Range<usize>>, files: Vec<MmapRaw>) -> Self {
        let mut fork = Self { map, touched, _files: files, other_data: None };
        fork.touch();
        fork
    }

    /// Stores to `bytes` of other data before each fork, at most 64 MiB; `None` if Linux refuses.
    ///
    /// So does a program that works between its forks: its page tables leave the caches. Forks do
    /// not copy that data.
    pub(super) fn after_stores(mut self, bytes: u64) -> Option<Self> {
        let data = MmapMut::map_anon((bytes as usize).clamp(CACHE_LINE, MOST_OTHER_DATA)).ok()?;
        data.advise(Advice::DontFork).ok()?;
        self.other_data = Some(data);
        self.store_other_data();
        Some(self)
    }

    /// The microseconds of a fork; `None` if Linux refuses.
    ///
    /// Then every page of the parent is its own again.
    pub(super) fn time(&mut self) -> Option<f64> {
        let clock = ThreadClock::start_cpu_time();
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
        self.touch();
        self.store_other_data();
        Some(time.as_secs_f64() * 1e6)
    }

    fn store_other_data(&mut self) {
        let lines = self.other_data.iter_mut().flat_map(|data| data.iter_mut().step_by(CACHE_LINE));
        lines.for_each(|byte| *byte = std::hint::black_box(1));
    }

    fn touch(&mut self) {
        for range in &self.touched {
            let bytes = self.map[range.clone()].iter_mut();
            bytes.step_by(PAGE_SIZE as usize).for_each(|byte| *byte = std::hint::black_box(1));
        }
    }
}

/// Maps memory, and returns where in it so many bytes begin that last-level tables map whole.
fn aligned(bytes: u64) -> Option<(MmapMut, usize)> {
    let map = MmapOptions::new().len((bytes + TABLE_SPAN) as usize).no_reserve_swap().map_anon().ok()?;
    let start = map.as_ptr().addr().next_multiple_of(TABLE_SPAN as usize) - map.as_ptr().addr();
    Some((map, start))
}
