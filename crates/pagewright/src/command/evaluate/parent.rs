//! A process that forks, with its memory mapped, and the ways of a fork.
//!
//! Key types: [`Parent`], on a machine of its own; [`ForkMode`], what a fork does with page tables.
//!
//! Not guaranteed: contents. On a [`TableMachine`] each page has its frame with a record, one
//! reference and one mapping, and nothing in it.

use super::EvaluateError;
use pagewright_arch::Isa;
use pagewright_host::{Arc, HostMachine, HostMemory, Platform, TableMachine, ThreadClock};
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmSetting, MmSettings, Space};
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{
    Access, CpuId, CpuMask, FrameRange, Level, NodeId, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr,
};
use std::fmt::Display;
use std::time::Duration;

/// What a fork does with the page tables of private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::command) enum ForkMode {
    /// It copies them, as Linux does.
    Classic,
    /// It shares them.
    Shared,
    /// It shares them unless the parent is small.
    Auto,
}

impl ForkMode {
    pub(super) const ALL: [Self; 3] = [Self::Classic, Self::Shared, Self::Auto];
    /// The two ways themselves.
    pub(super) const BOTH: [Self; 2] = [Self::Classic, Self::Shared];
    /// The ways that cycles compare with a classic fork.
    pub(super) const AGAINST_CLASSIC: [Self; 2] = [Self::Shared, Self::Auto];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Shared => "shared",
            Self::Auto => "auto",
        }
    }

    /// The word of `cow_page_tables`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Classic => "never",
            Self::Shared => "always",
            Self::Auto => "auto",
        }
    }
}

/// Bytes of a stack.
const STACK: u64 = 132 << 10;
/// Frames beside those of the pages and tables of the parent and a child.
const SPARE_FRAMES: u32 = 8192;

/// A process on a machine of its own, whose one CPU runs it.
pub(in crate::command) struct Parent<P: Platform> {
    pub(in crate::command) mm: Mm<P>,
    pub(in crate::command) space: Arc<Space<P>>,
}

/// The page of a thread's TID, the stack at the top of user memory, and a page of data below it.
pub(super) struct ProgramPages {
    pub(super) tid: PageRange,
    pub(super) stack: PageRange,
    pub(super) data: PageRange,
}

/// An error of the memory manager.
pub(super) fn failed(error: impl Display) -> EvaluateError {
    EvaluateError::Machine(error.to_string())
}

/// The frames of a machine for `bytes` of memory, with the tables of a parent and of a child.
pub(super) fn frames_for(bytes: u64) -> u32 {
    let pages = (bytes / PAGE_SIZE) as u32;
    pages + 2 * pages.div_ceil(Level::ENTRIES as u32) + SPARE_FRAMES
}

impl<I: Isa> Parent<TableMachine<I>> {
    /// A process without memory, on a machine for `bytes` of it.
    pub(super) fn without_contents(bytes: u64) -> Result<Self, EvaluateError> {
        let frames = frames_for(bytes);
        Self::on(TableMachine::try_new(frames)?, FrameRange::new(Pfn::new(0), Pfn::new(frames)))
    }
}

impl Parent<HostMachine> {
    /// A process without memory, on a machine whose pages have contents.
    ///
    /// No other machine uses the memory at the same time.
    pub(super) fn with_contents(memory: HostMemory) -> Result<Self, EvaluateError> {
        Self::on(HostMachine::new(memory, 1), memory.frames())
    }
}

impl<P: Platform> Parent<P> {
    /// A process without memory, on a machine with these frames.
    pub(in crate::command) fn on(machine: P, frames: FrameRange) -> Result<Self, EvaluateError> {
        let ranges = [frames];
        let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: CpuMask::of(CpuId::new(0)) }];
        let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
        let mm = Mm::try_new(machine, &layout, MmSettings::default()).map_err(failed)?;
        let space = mm.new_space().map_err(failed)?;
        mm.tlb().switch_to(space.table().context());
        Ok(Self { mm, space })
    }

    /// Maps private memory and faults it in; at an address that the memory manager chooses, for 0.
    pub(super) fn populate(&self, addr: VirtAddr, bytes: u64) -> Result<PageRange, EvaluateError> {
        self.map(addr, bytes, MapFlags::POPULATE)
    }

    /// Maps and fills what a Linux program has beside the memory that it allocates.
    pub(super) fn populate_program(&self) -> Result<ProgramPages, EvaluateError> {
        let end = P::Isa::USER_END.raw();
        let page = |addr: u64| VirtAddr::new(addr / PAGE_SIZE * PAGE_SIZE);
        let data = self.populate(page(end / 3 * 2), PAGE_SIZE)?;
        let stack = self.populate(page(end - STACK), STACK)?;
        Ok(ProgramPages { tid: self.populate(VirtAddr::ZERO, PAGE_SIZE)?, stack, data })
    }

    /// Maps private memory with more flags, as [`populate`](Self::populate) does.
    pub(in crate::command) fn map(
        &self,
        addr: VirtAddr,
        bytes: u64,
        more: MapFlags,
    ) -> Result<PageRange, EvaluateError> {
        let place = if addr == VirtAddr::ZERO { MapFlags::empty() } else { MapFlags::FIXED };
        let flags = place | more | MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
        let request = MapRequest { addr, len: bytes, rights: Rights::RW, flags, file: None };
        let start = self.mm.mmap(&self.space, &request).map_err(failed)?;
        Ok(PageRange::new(start, start.add(bytes)))
    }

    /// Cuts a mapping into `count` mappings of about the same size.
    ///
    /// Every other one is left out of core dumps, so that neighbours are not merged.
    pub(super) fn cut(&self, range: PageRange, count: u64) -> Result<(), EvaluateError> {
        cuts(range.len(), count).skip(1).step_by(2).try_for_each(|(offset, len)| {
            self.mm.madvise(&self.space, range.start().add(offset), len, Advice::DontDump).map_err(failed)
        })
    }

    /// Lets later forks share page tables, or copy them.
    pub(in crate::command) fn set(&self, mode: ForkMode) -> Result<(), EvaluateError> {
        self.set_word(mode.word())
    }

    /// Sets `cow_page_tables` to a word.
    pub(super) fn set_word(&self, word: &str) -> Result<(), EvaluateError> {
        let setting = MmSetting::CowPageTables;
        let value = setting.parse(word).ok_or_else(|| failed(word))?;
        self.mm.settings().set(setting, value).map_err(failed)
    }

    /// Stores to one page of a space.
    pub(in crate::command) fn store(&self, space: &Space<P>, va: VirtAddr) -> Result<(), EvaluateError> {
        self.mm.fault(space, va, Access::Write).map(drop).map_err(failed)
    }

    /// Stores to one page of a range, after the last child has ended.
    ///
    /// All tables that the parent has lent are its own again.
    pub(super) fn take_back(&self, range: PageRange) -> Result<(), EvaluateError> {
        self.store(&self.space, range.start())
    }

    /// Stores to every page of a range of the parent's.
    ///
    /// After the last child has ended, all its pages are exclusive again, and so are its tables.
    pub(super) fn store_to_all(&self, range: PageRange) -> Result<(), EvaluateError> {
        range.iter().try_for_each(|va| self.store(&self.space, va))
    }

    /// Forks, and returns the CPU time that it took.
    pub(in crate::command) fn fork(&self) -> Result<(Arc<Space<P>>, Duration), EvaluateError> {
        let clock = SpanClock::Cpu.start();
        let child = self.mm.fork(&self.space);
        let time = clock.elapsed();
        Ok((child.map_err(failed)?, time))
    }

    /// The microseconds of a fork, whose child ends without an access.
    pub(super) fn time_fork(&self) -> Result<f64, EvaluateError> {
        let (child, time) = self.fork()?;
        self.mm.end_space(&child);
        Ok(time.as_secs_f64() * 1e6)
    }
}

/// The clock for a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanClock {
    /// Monotonic time, for a span so short that other threads rarely interrupt it.
    Monotonic,
    /// The thread's CPU time.
    Cpu,
}

impl SpanClock {
    pub(super) fn start(self) -> ThreadClock {
        match self {
            Self::Monotonic => ThreadClock::start(),
            Self::Cpu => ThreadClock::start_cpu_time(),
        }
    }
}

/// Offsets and lengths of `count` parts of `bytes`, all whole pages.
pub(in crate::command) fn cuts(bytes: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    let at = move |index: u64| bytes / PAGE_SIZE * index / count * PAGE_SIZE;
    (0..count).map(move |index| (at(index), at(index + 1) - at(index)))
}
