//! What a kernel does with user memory beside what programs ask for by address: pages taken for a
//! device, copies between processes, what `/proc` tells of stores, and pages sent to swap. Made on
//! the memory manager, and judged by the reference memory.
//!
//! A device keeps what it was given and reads and writes it by its frames, while everything else
//! goes on: that is what a pin promises.

use super::world::{Process, World};
use pagewright_arch::Isa;
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty, UserPage, UserPages};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::user::IoVec;
use pagewright_mm::view::PagemapFlags;
use pagewright_model::spec::{CallResult, PinId, PinMode, ProcessVmCopy};
use pagewright_types::{CpuId, NodeId, PAGE_SIZE, PageRange, Pfn, VirtAddr};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Devices that have pages at once; another is left out.
const MOST_DEVICES: usize = 4;
/// Cells of each page that devices use: those that single accesses use, too.
const CELLS: u16 = 3;

/// One of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Pages are pinned for a device.
    Pin {
        /// The first.
        addr: VirtAddr,
        /// How many.
        pages: u64,
        /// Whether the device will write them (`FOLL_WRITE`).
        writes: bool,
        /// Whether it keeps them for long (`FOLL_LONGTERM`).
        long: bool,
        /// Whether a walk without locks is tried first.
        fast: bool,
    },
    /// A device reads what it has, and writes it if it may.
    Device {
        /// Its place among those that have pages, counted round.
        which: usize,
    },
    /// A device gives its pages back.
    Unpin {
        /// Its place.
        which: usize,
    },
    /// `process_vm_readv`, or `process_vm_writev`, of cells.
    Copy {
        /// Whose memory: the place among those that live, counted round.
        process: usize,
        /// Where it is there.
        theirs: VirtAddr,
        /// Where it is here.
        ours: VirtAddr,
        /// Bytes.
        len: u64,
        /// Which way: from here to there.
        writes: bool,
    },
    /// Pages go to swap, if they can.
    ///
    /// No program can tell.
    PageOut {
        /// The first.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// Pages that are not in use go, whosever they are.
    ///
    /// No program can tell.
    Reclaim {
        /// How many.
        pages: u32,
    },
    /// The device is swapped to no longer, and then again (`swapoff`, `swapon`).
    SwapOff,
    /// `/proc/self/clear_refs`, of the marks of stores.
    ClearSoftDirty,
    /// `/proc/self/pagemap`: which pages are marked.
    SoftDirty {
        /// The first page.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
}

impl Kernel {
    /// What it is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pin { fast: false, .. } => "pin_user_pages, kept",
            Self::Pin { fast: true, .. } => "pin_user_pages_fast, kept",
            Self::Device { .. } => "device access",
            Self::Unpin { .. } => "unpin_user_pages",
            Self::Copy { writes: false, .. } => "process_vm_readv",
            Self::Copy { writes: true, .. } => "process_vm_writev",
            Self::PageOut { .. } => "page-out",
            Self::Reclaim { .. } => "reclaim",
            Self::SwapOff => "swapoff",
            Self::ClearSoftDirty => "clear_refs",
            Self::SoftDirty { .. } => "pagemap",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Pin { addr, pages, writes, long, .. } => {
                let (writes, long) = (if *writes { ", to write" } else { "" }, if *long { ", for long" } else { "" });
                write!(f, "{name}({addr}, {pages} pages{writes}{long})")
            }
            Self::Device { which } => write!(f, "device {which} reads and writes what it has"),
            Self::Unpin { which } => write!(f, "device {which} gives its pages back"),
            Self::Copy { process, theirs, ours, len, .. } => {
                write!(f, "{name}(process {process}, {theirs} there, {ours} here, {len:#x})")
            }
            Self::Reclaim { pages } => write!(f, "{name}({pages} pages)"),
            Self::ClearSoftDirty | Self::SwapOff => f.write_str(name),
            Self::PageOut { addr, len } | Self::SoftDirty { addr, len } => write!(f, "{name}({addr}, {len:#x})"),
        }
    }
}

/// A device that has pages.
pub(super) struct Device {
    pages: UserPages,
    ids: Vec<PinId>,
    writes: bool,
}

impl<I: Isa> World<I> {
    pub(super) fn kernel(&self, cpu: CpuId, kernel: Kernel) {
        let Some(process) = self.enter(cpu) else { return };
        let answer = match kernel {
            Kernel::Pin { addr, pages, writes, long, fast } => {
                let range = PageRange::from_len(addr.align_down(PAGE_SIZE), pages * PAGE_SIZE);
                range
                    .ok()
                    .and_then(|range| self.pin(cpu, &process, range, PinMode { write: writes, longterm: long, fast }))
            }
            Kernel::Device { which } => self.device_acts(cpu, which),
            Kernel::Unpin { which } => self.unpin(cpu, which),
            Kernel::Copy { process: place, theirs, ours, len, writes } => {
                let live = self.processes();
                // Another could end meanwhile, if anything else is under way.
                let place = if self.is_told { place % live.len() } else { 0 };
                let other = if self.is_told { Rc::clone(&live[place]) } else { Rc::clone(&process) };
                self.copy(cpu, (&process, ours), (&other, theirs), len, writes)
            }
            Kernel::PageOut { addr, len } => {
                let out = self.lab.on(cpu, |mm| mm.madvise(&process.space, addr, len, Advice::PageOut));
                Some(out.map_or_else(|error| CallResult::Failed(error.errno()), |()| CallResult::Done))
            }
            Kernel::Reclaim { pages } => {
                self.lab.on(cpu, |mm| mm.reclaim(NodeId::new(0), pages));
                Some(CallResult::Done)
            }
            Kernel::SwapOff => Some(self.swap_off(cpu)),
            Kernel::ClearSoftDirty => {
                self.lab.on(cpu, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty));
                if self.is_told {
                    self.spec.borrow_mut().clear_soft_dirty(process.id());
                }
                Some(CallResult::Done)
            }
            Kernel::SoftDirty { addr, len } => self.soft_dirty(cpu, &process, addr, len),
        };
        let Some(answer) = answer else { return self.done.borrow_mut().leave_out() };
        self.say(cpu, kernel.name(), answer);
    }

    /// Whether a call that has just been made was refused memory since `refused` was read; tells
    /// the reference memory.
    fn lacked(&self, refused: u64) -> bool {
        let lacked = self.sim().refused_allocations() > refused;
        self.spec.borrow_mut().set_memory_may_fail(lacked);
        lacked
    }

    fn pin(&self, cpu: CpuId, process: &Process<I>, range: PageRange, mode: PinMode) -> Option<CallResult> {
        if self.devices.borrow().len() == MOST_DEVICES {
            return None;
        }
        // What is in doubt is left out.
        if self.is_told {
            let _ = self.spec.borrow().pinnable(process.id(), range, mode)?;
        }
        let mut flags = GupFlags::empty();
        flags.set(GupFlags::WRITE, mode.write);
        flags.set(GupFlags::LONGTERM, mode.longterm);
        let refused = self.sim().refused_allocations();
        let taken = self.lab.on(cpu, |mm| {
            if mode.fast {
                mm.pin_user_pages_fast(&process.space, range, flags)
            } else {
                mm.pin_user_pages(&process.space, range, flags)
            }
        });
        self.lacked(refused);
        let answer = match &taken {
            Ok(pages) => CallResult::Number(pages.len() as u64),
            Err(error) => CallResult::Failed(error.errno()),
        };
        if self.is_told {
            let verdict = self.spec.borrow_mut().pin_returned(self.cpu_step(cpu), process.id(), range, mode, answer);
            self.judge(verdict);
        }
        let Ok(pages) = taken else { return Some(answer) };
        if self.bench.finding_count() > 0 {
            self.lab.on(cpu, |mm| mm.release_user_pages(pages, MakeDirty::No));
            return Some(answer);
        }
        let named = range.iter().zip(pages.iter()).filter(|_| self.is_told);
        let mut name = |(va, page): (VirtAddr, &UserPage)| {
            self.spec.borrow_mut().pin_page(process.id(), va, mode, page.is_pinned())
        };
        let ids = named.map(&mut name).collect();
        self.devices.borrow_mut().push(Device { pages, ids, writes: mode.write });
        Some(answer)
    }

    fn device_acts(&self, cpu: CpuId, which: usize) -> Option<CallResult> {
        let devices = self.devices.borrow();
        let device = devices.get(which % devices.len().max(1))?;
        for (place, page) in device.pages.iter().enumerate() {
            let id = device.ids.get(place);
            for cell in 0..CELLS {
                let word = self.word(page.pfn(), cell);
                let value = word.load(Ordering::Relaxed);
                if let Some(id) = id {
                    let verdict = self.spec.borrow_mut().device_loads(self.cpu_step(cpu), *id, cell, value);
                    self.judge(verdict);
                }
                if device.writes {
                    let value = self.fresh_value();
                    word.store(value, Ordering::Relaxed);
                    id.into_iter().for_each(|id| self.spec.borrow_mut().device_stores(*id, cell, value));
                }
            }
        }
        Some(CallResult::Done)
    }

    fn word(&self, pfn: Pfn, cell: u16) -> &std::sync::atomic::AtomicU64 {
        &self.sim().ram()[(pfn.base().raw() / 8) as usize + usize::from(cell)]
    }

    fn unpin(&self, cpu: CpuId, which: usize) -> Option<CallResult> {
        let mut devices = self.devices.borrow_mut();
        if devices.is_empty() {
            return None;
        }
        let place = which % devices.len();
        let Device { pages, ids, writes } = devices.swap_remove(place);
        drop(devices);
        let make_dirty = if writes { MakeDirty::Yes } else { MakeDirty::No };
        self.lab.on(cpu, |mm| mm.release_user_pages(pages, make_dirty));
        ids.into_iter().for_each(|id| self.spec.borrow_mut().unpin_page(id));
        Some(CallResult::Done)
    }

    /// Every device looks at what it has once more, and gives it back.
    pub(super) fn unpin_all(&self, cpu: CpuId) {
        while self.device_acts(cpu, 0).is_some() {
            self.unpin(cpu, 0);
        }
    }

    fn copy(
        &self,
        cpu: CpuId,
        (process, ours): (&Process<I>, VirtAddr),
        (other, theirs): (&Process<I>, VirtAddr),
        len: u64,
        writes: bool,
    ) -> Option<CallResult> {
        let vm = ProcessVmCopy { local: (process.id(), ours), remote: (other.id(), theirs), len, writes };
        if self.is_told {
            self.spec.borrow().process_vm_bytes(&vm)?;
        }
        let (local, remote) = ([IoVec { base: ours, len }], [IoVec { base: theirs, len }]);
        let refused = self.sim().refused_allocations();
        let moved = self.lab.on(cpu, |mm| {
            let (here, there) = ((&*process.space, &local[..]), (&*other.space, &remote[..]));
            if writes { mm.process_vm_writev(here, there, 0) } else { mm.process_vm_readv(here, there, 0) }
        });
        self.lacked(refused);
        let answer = moved.map_or_else(|error| CallResult::Failed(error.errno()), CallResult::Bytes);
        if !self.is_told {
            return Some(answer);
        }
        let verdict = self.spec.borrow_mut().process_vm_returned(self.cpu_step(cpu), &vm, answer);
        self.judge(verdict);
        let (to, at) = if writes { (other, theirs) } else { (process, ours) };
        let mut bytes = vec![0; moved.unwrap_or(0) as usize];
        let left = self.lab.on(cpu, |mm| mm.copy_from_user(&to.space, at, &mut bytes));
        if left > 0 {
            let what = format!("{left} bytes at {at} can't be read where they were just stored");
            self.bench.report(pagewright_check::CheckFinding::Reported(what));
        }
        for (index, cell) in bytes.chunks_exact(8).enumerate() {
            let value = cell.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            let verdict = self.spec.borrow_mut().process_vm_cell(self.cpu_step(cpu), &vm, index as u64, value);
            self.judge(verdict);
        }
        Some(answer)
    }

    fn soft_dirty(&self, cpu: CpuId, process: &Process<I>, addr: VirtAddr, len: u64) -> Option<CallResult> {
        let range = PageRange::from_len(addr.align_down(PAGE_SIZE), len).ok()?;
        let mut marked = Vec::new();
        self.lab.on(cpu, |mm| {
            mm.pagemap(&process.space, range, |va, word| {
                if word.flags().contains(PagemapFlags::SOFT_DIRTY) {
                    marked.push(va);
                }
            });
        });
        for va in range.iter().filter(|_| self.is_told) {
            let verdict =
                self.spec.borrow().pagemap_soft_dirty(self.cpu_step(cpu), process.id(), va, marked.contains(&va));
            self.judge(verdict);
        }
        Some(CallResult::Number(marked.len() as u64))
    }
}
