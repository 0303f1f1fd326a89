//! Operations of a kernel on user memory.
//!
//! They are pins for devices, copies between processes, soft-dirty bits, page-out and reclaim. A
//! device accesses its pages by their frames while the program runs, so the reference memory checks
//! what a pin guarantees.

use super::program_run::{Process, ProgramRun};
use pagewright_arch::Isa;
use pagewright_check::CheckFinding;
use pagewright_mm::gup::{GupFlags, MakeDirty, UserPage, UserPages};
use pagewright_mm::migrate::MOVE_PAGES_CHUNK;
use pagewright_mm::space::ClearRefs;
use pagewright_mm::user::IoVec;
use pagewright_mm::view::PagemapFlags;
use pagewright_mm::{Advice, ThpDisabled};
use pagewright_model::spec::{CallResult, PinId, PinMode, ProcessVmCopy};
use pagewright_types::{CpuId, NodeId, NodeMask, PAGE_SIZE, PageRange, Pfn, VirtAddr};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of the devices that hold pages; further pins are skipped.
const MAX_DEVICES: usize = 4;
/// Cells of each page that devices access: those that single accesses use too.
const CELLS: u16 = 3;

/// An operation of a kernel on user memory.
///
/// A `device` is an index among the devices that hold pages, modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelOperation {
    /// Pins pages for a device, which holds them.
    Pin {
        /// Address of the first page.
        addr: VirtAddr,
        /// Number of pages.
        pages: u64,
        /// The flags, and the call.
        mode: PinMode,
    },
    /// A device reads its pages, and writes them if it may.
    DeviceAccess {
        /// The device.
        device: usize,
    },
    /// A device releases its pages.
    Unpin {
        /// The device.
        device: usize,
    },
    /// `process_vm_readv` or `process_vm_writev`.
    ProcessVm {
        /// The remote process: an index among the live processes, modulo their number.
        process: usize,
        /// Address in the remote process.
        remote: VirtAddr,
        /// Address in the process of the CPU.
        local: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// Whether the call is `process_vm_writev`.
        write: bool,
    },
    /// Pages pages out (`MADV_PAGEOUT`); no program can tell.
    PageOut {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// Reclaims pages of any process; no program can tell.
    Reclaim {
        /// Number of pages.
        pages: u32,
    },
    /// Moves pages to a node (`move_pages`); no program can tell.
    MovePages {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// The node.
        node: u8,
    },
    /// Moves all pages of a process from a node to another (`migrate_pages`); no program can tell.
    MigratePages {
        /// The node that they leave.
        from: u8,
        /// The node to which they go.
        to: u8,
    },
    /// Advice that changes no contents (`madvise`); no program can tell.
    Advise {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// The advice.
        advice: Advice,
    },
    /// Splits large folios (`split_huge_pages`); no program can tell.
    SplitHuge {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// `prctl(PR_SET_THP_DISABLE)`.
    ForbidHuge {
        /// What is forbidden.
        disabled: ThpDisabled,
    },
    /// Time passes, and a part of the process is scanned if it is due; no program can tell.
    Tick {
        /// The time in ms.
        ms: u64,
    },
    /// `swapoff`, and `swapon` of a new device.
    SwapOff,
    /// Clears soft-dirty bits by `/proc/self/clear_refs`.
    ClearSoftDirty,
    /// Reads soft-dirty bits from `/proc/self/pagemap`.
    ReadSoftDirty {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
}

impl KernelOperation {
    /// The name under which calls are counted.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pin { mode: PinMode { fast: false, .. }, .. } => "pin_user_pages, held",
            Self::Pin { mode: PinMode { fast: true, .. }, .. } => "pin_user_pages_fast, held",
            Self::DeviceAccess { .. } => "device access",
            Self::Unpin { .. } => "unpin_user_pages",
            Self::ProcessVm { write: false, .. } => "process_vm_readv",
            Self::ProcessVm { write: true, .. } => "process_vm_writev",
            Self::PageOut { .. } => "page-out",
            Self::Reclaim { .. } => "reclaim",
            Self::MovePages { .. } => "move_pages",
            Self::MigratePages { .. } => "migrate_pages",
            Self::Advise { .. } => "madvise, beside other calls",
            Self::SplitHuge { .. } => "split_huge_pages",
            Self::ForbidHuge { .. } => "prctl(PR_SET_THP_DISABLE)",
            Self::Tick { .. } => "tick",
            Self::SwapOff => "swapoff",
            Self::ClearSoftDirty => "clear_refs",
            Self::ReadSoftDirty { .. } => "pagemap",
        }
    }
}

impl fmt::Display for KernelOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Pin { addr, pages, mode } => {
                let write = if mode.write { ", FOLL_WRITE" } else { "" };
                let longterm = if mode.longterm { ", FOLL_LONGTERM" } else { "" };
                write!(f, "{name}({addr}, {pages} pages{write}{longterm})")
            }
            Self::DeviceAccess { device } => write!(f, "device {device} accesses its pages"),
            Self::Unpin { device } => write!(f, "device {device} releases its pages"),
            Self::ProcessVm { process, remote, local, len, .. } => {
                write!(f, "{name}(process {process}, {remote} there, {local} here, {len:#x})")
            }
            Self::Reclaim { pages } => write!(f, "{name}({pages} pages)"),
            Self::MovePages { addr, len, node } => write!(f, "{name}({addr}, {len:#x}, node {node})"),
            Self::MigratePages { from, to } => write!(f, "{name}(node {from} to node {to})"),
            Self::Advise { addr, len, advice } => write!(f, "{name}({addr}, {len:#x}, {advice:?})"),
            Self::ForbidHuge { disabled } => write!(f, "{name}({disabled:?})"),
            Self::Tick { ms } => write!(f, "{name}({ms} ms)"),
            Self::ClearSoftDirty | Self::SwapOff => f.write_str(name),
            Self::PageOut { addr, len } | Self::SplitHuge { addr, len } | Self::ReadSoftDirty { addr, len } => {
                write!(f, "{name}({addr}, {len:#x})")
            }
        }
    }
}

/// A device that holds pages.
pub(super) struct PinDevice {
    pages: UserPages,
    ids: Vec<PinId>,
    writes: bool,
}

impl PinDevice {
    pub(super) fn pages(&self) -> &UserPages {
        &self.pages
    }
}

impl<I: Isa> ProgramRun<I> {
    pub(super) fn kernel(&self, cpu: CpuId, kernel: KernelOperation) {
        let Some(process) = self.current_process(cpu) else { return };
        let result = match kernel {
            KernelOperation::Pin { addr, pages, mode } => {
                let range = PageRange::from_len(addr.align_down(PAGE_SIZE), pages * PAGE_SIZE);
                range.ok().and_then(|range| self.pin(cpu, &process, range, mode))
            }
            KernelOperation::DeviceAccess { device } => self.device_access(cpu, device),
            KernelOperation::Unpin { device } => self.unpin(cpu, device),
            KernelOperation::ProcessVm { process: index, remote, local, len, write } => {
                let live = self.processes();
                // If operations overlap, another process could end during the call.
                let other = if self.uses_spec { Rc::clone(&live[index % live.len()]) } else { Rc::clone(&process) };
                self.process_vm_copy(cpu, (&process, local), (&other, remote), len, write)
            }
            KernelOperation::PageOut { addr, len } => {
                let out = self.lab.on(cpu, |mm| mm.madvise(&process.space, addr, len, Advice::PageOut));
                Some(out.map_or_else(|error| CallResult::Failed(error.errno()), |()| CallResult::Done))
            }
            KernelOperation::Reclaim { pages } => {
                self.lab.on(cpu, |mm| mm.reclaim(NodeId::new(0), pages));
                Some(CallResult::Done)
            }
            KernelOperation::MovePages { addr, len, node } => self.move_pages(cpu, &process, (addr, len), node),
            KernelOperation::MigratePages { from, to } => {
                let [from, to] = [from, to].map(|node| NodeMask::of(NodeId::new(node)));
                let stayed = self.lab.on(cpu, |mm| mm.migrate_pages(&process.space, from, to, true));
                Some(stayed.map_or_else(|error| CallResult::Failed(error.errno()), CallResult::Number))
            }
            KernelOperation::Advise { addr, len, advice } => {
                let advised = self.lab.on(cpu, |mm| mm.madvise(&process.space, addr, len, advice));
                Some(advised.map_or_else(|error| CallResult::Failed(error.errno()), |()| CallResult::Done))
            }
            KernelOperation::SplitHuge { addr, len } => {
                let range = PageRange::from_len(addr.align_down(PAGE_SIZE), len).ok();
                range.map(|range| {
                    let counts = self.lab.on(cpu, |mm| mm.split_huge_pages(&process.space, range));
                    CallResult::Number(counts.split)
                })
            }
            KernelOperation::ForbidHuge { disabled } => {
                process.space.set_thp_disabled(disabled);
                Some(CallResult::Done)
            }
            KernelOperation::Tick { ms } => {
                let now = self.now_ms.get() + ms;
                self.now_ms.set(now);
                self.lab.on(cpu, |mm| mm.numa_tick(&process.space, now));
                Some(CallResult::Done)
            }
            KernelOperation::SwapOff => Some(self.swap_off(cpu)),
            KernelOperation::ClearSoftDirty => {
                let cleared = self.lab.on(cpu, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty));
                if cleared.is_ok() && self.uses_spec {
                    self.spec.borrow_mut().clear_soft_dirty(process.id());
                }
                Some(CallResult::Done)
            }
            KernelOperation::ReadSoftDirty { addr, len } => self.read_soft_dirty(cpu, &process, addr, len),
        };
        let Some(result) = result else { return self.counts.borrow_mut().count_skipped() };
        self.record_result(cpu, kernel.name(), result);
    }

    fn move_pages(
        &self,
        cpu: CpuId,
        process: &Process<I>,
        (addr, len): (VirtAddr, u64),
        node: u8,
    ) -> Option<CallResult> {
        let range = PageRange::from_len(addr.align_down(PAGE_SIZE), len).ok()?;
        let pages: Vec<_> = range.iter().take(MOVE_PAGES_CHUNK).map(|va| (va, NodeId::new(node))).collect();
        let stayed = self.lab.on(cpu, |mm| mm.move_pages(&process.space, &pages, true, |_, _| {}));
        Some(stayed.map_or_else(|error| CallResult::Failed(error.errno()), |stayed| CallResult::Number(stayed as u64)))
    }

    /// Tells the reference memory whether the machine has refused more than `refused` allocations.
    fn report_refusals(&self, refused: u64) {
        self.spec.borrow_mut().set_memory_may_fail(self.sim().refused_allocations() > refused);
    }

    fn pin(&self, cpu: CpuId, process: &Process<I>, range: PageRange, mode: PinMode) -> Option<CallResult> {
        if self.devices.borrow().len() == MAX_DEVICES {
            return None;
        }
        // Skip a pin whose result the reference memory cannot predict.
        if self.predicts_pins {
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
        self.report_refusals(refused);
        let result = match &taken {
            Ok(pages) => CallResult::Number(pages.len() as u64),
            Err(error) => CallResult::Failed(error.errno()),
        };
        if self.predicts_pins {
            let verdict = self.spec.borrow_mut().pin_returned(self.cpu_step(cpu), process.id(), range, mode, result);
            self.judge(verdict);
        }
        let Ok(pages) = taken else { return Some(result) };
        if self.bench.finding_count() > 0 {
            self.lab.on(cpu, |mm| mm.release_user_pages(pages, MakeDirty::No));
            return Some(result);
        }
        let known = range.iter().zip(pages.iter()).filter(|_| self.predicts_pins);
        let mut name = |(va, page): (VirtAddr, &UserPage)| {
            self.spec.borrow_mut().pin_page(process.id(), va, mode, page.is_pinned())
        };
        let ids = known.map(&mut name).collect();
        // The reference memory that follows a program must know of every store.
        let writes = mode.write && (self.predicts_pins || !self.uses_spec);
        self.devices.borrow_mut().push(PinDevice { pages, ids, writes });
        Some(result)
    }

    fn device_access(&self, cpu: CpuId, device: usize) -> Option<CallResult> {
        let devices = self.devices.borrow();
        let device = devices.get(device % devices.len().max(1))?;
        for (index, page) in device.pages.iter().enumerate() {
            let id = device.ids.get(index);
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

    fn word(&self, pfn: Pfn, cell: u16) -> &AtomicU64 {
        &self.sim().ram()[(pfn.base().raw() / 8) as usize + usize::from(cell)]
    }

    fn unpin(&self, cpu: CpuId, device: usize) -> Option<CallResult> {
        let mut devices = self.devices.borrow_mut();
        if devices.is_empty() {
            return None;
        }
        let index = device % devices.len();
        let PinDevice { pages, ids, writes } = devices.swap_remove(index);
        drop(devices);
        let make_dirty = if writes { MakeDirty::Yes } else { MakeDirty::No };
        self.lab.on(cpu, |mm| mm.release_user_pages(pages, make_dirty));
        ids.into_iter().for_each(|id| self.spec.borrow_mut().unpin_page(id));
        Some(CallResult::Done)
    }

    /// Every device accesses its pages once more and releases them.
    pub(super) fn unpin_all(&self, cpu: CpuId) {
        while self.device_access(cpu, 0).is_some() {
            self.unpin(cpu, 0);
        }
    }

    fn process_vm_copy(
        &self,
        cpu: CpuId,
        (process, local): (&Process<I>, VirtAddr),
        (other, remote): (&Process<I>, VirtAddr),
        len: u64,
        write: bool,
    ) -> Option<CallResult> {
        let vm = ProcessVmCopy { local: (process.id(), local), remote: (other.id(), remote), len, writes: write };
        if self.uses_spec {
            self.spec.borrow().process_vm_bytes(&vm)?;
        }
        let (local_vec, remote_vec) = ([IoVec { base: local, len }], [IoVec { base: remote, len }]);
        let refused = self.sim().refused_allocations();
        let moved = self.lab.on(cpu, |mm| {
            let (here, there) = ((&*process.space, &local_vec[..]), (&*other.space, &remote_vec[..]));
            if write { mm.process_vm_writev(here, there, 0) } else { mm.process_vm_readv(here, there, 0) }
        });
        self.report_refusals(refused);
        let result = moved.map_or_else(|error| CallResult::Failed(error.errno()), CallResult::Bytes);
        if !self.uses_spec {
            return Some(result);
        }
        let verdict = self.spec.borrow_mut().process_vm_returned(self.cpu_step(cpu), &vm, result);
        self.judge(verdict);
        let (to, at) = if write { (other, remote) } else { (process, local) };
        let mut bytes = vec![0; moved.unwrap_or(0) as usize];
        let left = self.lab.on(cpu, |mm| mm.copy_from_user(&to.space, at, &mut bytes));
        if left > 0 {
            let what = format!("{left} bytes at {at} cannot be read where the call stored them");
            self.bench.report(CheckFinding::Reported(what));
        }
        for (index, cell) in bytes.chunks_exact(8).enumerate() {
            let value = cell.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            let verdict = self.spec.borrow_mut().process_vm_cell(self.cpu_step(cpu), &vm, index as u64, value);
            self.judge(verdict);
        }
        Some(result)
    }

    fn read_soft_dirty(&self, cpu: CpuId, process: &Process<I>, addr: VirtAddr, len: u64) -> Option<CallResult> {
        let range = PageRange::from_len(addr.align_down(PAGE_SIZE), len).ok()?;
        let mut marked = Vec::new();
        self.lab.on(cpu, |mm| {
            mm.pagemap(&process.space, range, |va, word| {
                if word.flags().contains(PagemapFlags::SOFT_DIRTY) {
                    marked.push(va);
                }
            });
        });
        for va in range.iter().filter(|_| self.uses_spec) {
            let verdict =
                self.spec.borrow().pagemap_soft_dirty(self.cpu_step(cpu), process.id(), va, marked.contains(&va));
            self.judge(verdict);
        }
        Some(CallResult::Number(marked.len() as u64))
    }
}
