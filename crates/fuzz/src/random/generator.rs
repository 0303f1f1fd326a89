//! Draws the operations of a program.
//!
//! All CPUs use the same few pages, those of the window, and some arguments are invalid.

use super::kernel_operation::KernelOperation;
use super::operation::{MappedObject, Operation, ProgramStep};
use super::program::{ProgramMode, ProgramShape, Theme};
use super::syscall::Syscall;
use super::window::{HEAP, Window};
use pagewright_model::spec::{ExclusiveCall, MmapPlacement, PinMode, RangeCall};
use pagewright_types::{Access, CpuId, PAGE_SIZE, Rights, VirtAddr};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Size of the file in pages.
pub(crate) const FILE_PAGES: u64 = 80;

/// A random number below `limit`.
pub(super) fn below(random: &mut Pcg64, limit: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
}

/// Draws the operations of one program, in order.
pub(super) struct Generator {
    pub(super) shape: ProgramShape,
    pub(super) window: Window,
    /// The page on which the themes `Hot`, `Copies`, `Moving` and `Families` concentrate.
    pub(super) hot: VirtAddr,
    random: Pcg64,
    /// Whether allocations of this program fail.
    fails_allocations: bool,
    /// The object that the program maps most often.
    main_object: MappedObject,
    /// With the theme `Copies`: whether a child shares the hot page when the body begins.
    shares_hot: bool,
    /// The nodes of the machine, to which pages move.
    pub(super) nodes: usize,
}

impl Generator {
    pub(super) fn new(shape: ProgramShape, seed: u64, nodes: usize) -> Self {
        let mut random = Pcg64::seed_from_u64(seed ^ 0x7067_7772_6967_6874);
        let fails_allocations = below(&mut random, 3) == 0;
        let main_object = match below(&mut random, 8) {
            _ if shape.is_huge() => MappedObject::PrivateAnon,
            0 => MappedObject::SharedAnon,
            1 => MappedObject::SharedFile(1),
            2 => MappedObject::PrivateFile(1),
            _ => MappedObject::PrivateAnon,
        };
        let window = Window::of(shape);
        let hot = window.page(below(&mut random, window.pages));
        Self { shape, window, hot, random, fails_allocations, main_object, shares_hot: seed.is_multiple_of(2), nodes }
    }

    fn theme(&self) -> Theme {
        match self.shape.mode {
            ProgramMode::Fast | ProgramMode::Calls | ProgramMode::Linux => Theme::Mixed,
            ProgramMode::Explore(theme) => theme,
        }
    }

    /// Whether the program also runs on Linux.
    pub(super) fn runs_on_linux(&self) -> bool {
        self.shape.mode == ProgramMode::Linux
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.random, limit)
    }

    /// `true` with probability 1 / `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn cpu(&mut self) -> CpuId {
        CpuId::new(self.below(self.shape.cpus.into()) as u16)
    }

    /// Operation `index` of the setup, in which every CPU uses the window.
    pub(super) fn setup_step(&mut self, index: usize) -> ProgramStep {
        let cpus = usize::from(self.shape.cpus);
        if index == 0 {
            return ProgramStep { cpu: CpuId::new(0), operation: self.map_window() };
        }
        if index <= cpus {
            return ProgramStep { cpu: CpuId::new((index - 1) as u16), operation: Operation::Switch { to: 0 } };
        }
        match self.theme() {
            Theme::Mixed | Theme::Tables | Theme::Huge | Theme::Calls if self.window.is_huge && index == cpus + 1 => {
                ProgramStep { cpu: CpuId::new(0), operation: self.advise_huge_everywhere() }
            }
            Theme::Hot | Theme::Copies | Theme::Moving | Theme::Lingering => self.setup_of_hot(index - cpus - 1),
            Theme::Families => self.setup_of_family(index - cpus - 1),
            Theme::Mixed | Theme::Tables | Theme::Huge | Theme::Calls => {
                let operation = match self.below(16) {
                    0 => self.call(),
                    1 => Operation::Fork,
                    2 => self.switch(),
                    3 => Operation::RunKernelThread,
                    _ => self.access(),
                };
                ProgramStep { cpu: self.cpu(), operation }
            }
        }
    }

    /// Operation `index` after every CPU runs the first process, for a theme with a hot page.
    ///
    /// The first is a fork. At the end of the setup each CPU has the hot page in its TLB; or, with
    /// the theme `Moving`, it had the page before it switched away or to a kernel thread.
    fn setup_of_hot(&mut self, index: usize) -> ProgramStep {
        let cpus = usize::from(self.shape.cpus);
        let left = usize::from(self.shape.setup) - cpus - 2 - index;
        let nth = |cpu: usize| CpuId::new(cpu as u16);
        let shares = self.theme() == Theme::Copies && self.shares_hot;
        let (cpu, operation) = match left {
            left if shares && left == cpus => (nth(0), Operation::Fork),
            left if shares && left < cpus => (nth(left), Operation::Access { va: self.hot, access: Access::Read }),
            _ if index == 0 => (nth(0), Operation::Fork),
            left if left < cpus => (nth(left), self.last_of_setup(left)),
            left if left < 2 * cpus => (nth(left - cpus), self.second_last_of_setup(left - cpus)),
            left if left < 3 * cpus => (nth(left - 2 * cpus), self.access_hot()),
            _ => (self.cpu(), self.access()),
        };
        ProgramStep { cpu, operation }
    }

    pub(super) fn access_hot(&mut self) -> Operation {
        let access = if self.once_in(8) { Access::Write } else { Access::Read };
        Operation::Access { va: self.hot, access }
    }

    fn switches_away(&self, cpu: usize) -> bool {
        self.theme() == Theme::Moving && cpu > 0
    }

    fn second_last_of_setup(&mut self, cpu: usize) -> Operation {
        if self.switches_away(cpu) && self.once_in(2) { Operation::Switch { to: 1 } } else { self.access_hot() }
    }

    fn last_of_setup(&mut self, cpu: usize) -> Operation {
        if self.switches_away(cpu) && self.once_in(2) { Operation::RunKernelThread } else { self.access_hot() }
    }

    /// The next operation of the body.
    pub(super) fn body_step(&mut self) -> ProgramStep {
        let cpu = self.cpu();
        if let Some(operation) = self.migration().or_else(|| self.seldom_of_huge()) {
            return ProgramStep { cpu, operation };
        }
        let operation = match self.shape.mode {
            ProgramMode::Fast => match self.below(64) {
                0..32 => self.access_window(),
                32 => Operation::RunKernelThread,
                33..37 => self.switch(),
                37..40 => self.access(),
                40 if self.fails_allocations => self.fail_allocation(),
                41..45 => self.page_out(),
                _ => self.call(),
            },
            ProgramMode::Explore(Theme::Mixed) => match self.below(64) {
                0..24 => self.access(),
                24..27 => Operation::RunKernelThread,
                27..31 => self.switch(),
                31 if self.fails_allocations => self.fail_allocation(),
                32..36 => self.page_out(),
                _ => self.call(),
            },
            ProgramMode::Explore(Theme::Hot) => match self.below(16) {
                0..8 => self.access(),
                8..13 => self.reduction(),
                13 | 14 => Operation::Fork,
                _ => self.call(),
            },
            ProgramMode::Explore(Theme::Copies) => match self.below(8) {
                0 => Operation::Fork,
                1 => self.page_out(),
                _ => self.access(),
            },
            ProgramMode::Explore(Theme::Moving) if cpu == CpuId::new(0) => self.reduction(),
            ProgramMode::Explore(Theme::Moving) => match self.below(8) {
                0..3 => Operation::Switch { to: 0 },
                3 => Operation::Switch { to: 1 },
                4 => Operation::RunKernelThread,
                _ => self.access(),
            },
            ProgramMode::Explore(Theme::Families) => self.step_of_family(cpu),
            ProgramMode::Explore(Theme::Lingering) => self.step_of_lingering(),
            ProgramMode::Explore(Theme::Huge) => self.step_of_huge(),
            ProgramMode::Explore(Theme::Tables) => match self.below(8) {
                0..3 => {
                    let (addr, len) = self.range();
                    Operation::Range(RangeCall::Munmap { addr, len })
                }
                3 => self.map_window(),
                4 => self.call(),
                5 => Operation::RunKernelThread,
                _ => self.access(),
            },
            ProgramMode::Explore(Theme::Calls) => match self.below(32) {
                0..10 => self.access(),
                10..16 => Operation::Kernel(self.kernel_operation()),
                16 => Operation::RunKernelThread,
                17 => self.switch(),
                18 if self.fails_allocations => self.fail_allocation(),
                18..25 => self.call(),
                _ => Operation::Syscall(self.syscall()),
            },
            ProgramMode::Calls => self.mostly_calls(),
            ProgramMode::Linux => self.linux_operation(),
        };
        ProgramStep { cpu, operation }
    }

    /// Mostly calls; a tenth of the operations makes an allocation fail.
    fn mostly_calls(&mut self) -> Operation {
        match self.below(80) {
            0..20 => self.access(),
            20..23 => self.switch(),
            23 => Operation::RunKernelThread,
            24 => self.few_accesses(),
            25..33 => Operation::FailAllocation { after: self.below(12) },
            33..53 => match self.call() {
                Operation::Range(RangeCall::DontNeed { addr, len }) => {
                    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice: 4 }))
                }
                other => other,
            },
            53 => Operation::Syscall(Syscall::Exclusive(ExclusiveCall::UnlockAll)),
            54..58 => Operation::Kernel(self.kernel_operation()),
            _ => Operation::Syscall(self.syscall()),
        }
    }

    fn kernel_operation(&mut self) -> KernelOperation {
        let (addr, len) = self.range();
        match self.below(20) {
            0..4 => {
                let (write, longterm, fast) = (self.once_in(2), self.once_in(3), self.once_in(2));
                KernelOperation::Pin { addr, pages: 1 + self.below(3), mode: PinMode { write, longterm, fast } }
            }
            4..8 => KernelOperation::DeviceAccess { device: self.below(4) as usize },
            8 | 9 => KernelOperation::Unpin { device: self.below(4) as usize },
            10..13 => {
                // Source and destination have the same offset in their pages, and the copy crosses
                // into the next page: so no copy overlaps itself in part.
                let near_end = |va: VirtAddr| va.align_down(PAGE_SIZE).add(PAGE_SIZE - 16);
                let (remote, local) = (near_end(addr), near_end(self.range().0));
                let (process, len) = (self.below(4) as usize, self.below(5) * 8);
                KernelOperation::ProcessVm { process, remote, local, len, write: self.once_in(2) }
            }
            13 => KernelOperation::ClearSoftDirty,
            14..16 => KernelOperation::ReadSoftDirty { addr, len },
            19 if self.once_in(4) => KernelOperation::SwapOff,
            18 => KernelOperation::Reclaim { pages: 1 << self.below(6) },
            _ => KernelOperation::PageOut { addr, len },
        }
    }

    /// Moves pages to a node, or scans; on one node, none is drawn, and programs stay as they were.
    fn migration(&mut self) -> Option<Operation> {
        if self.nodes < 2 || !self.once_in(6) {
            return None;
        }
        if self.once_in(3) {
            // Most ticks are later than any scan period.
            let ms = if self.once_in(4) { 700 } else { 100_000 };
            return Some(Operation::Kernel(KernelOperation::Tick { ms }));
        }
        let of_hot = matches!(self.theme(), Theme::Hot | Theme::Copies | Theme::Moving | Theme::Lingering);
        let (addr, len) = if of_hot { (self.hot, PAGE_SIZE) } else { self.range() };
        let node = self.below(self.nodes as u64) as u8;
        Some(Operation::Kernel(KernelOperation::MovePages { addr, len, node }))
    }

    pub(super) fn page_out(&mut self) -> Operation {
        if self.once_in(4) {
            return Operation::Kernel(KernelOperation::Reclaim { pages: 1 << self.below(6) });
        }
        let of_hot = matches!(self.theme(), Theme::Copies | Theme::Families);
        let (addr, len) = if of_hot { (self.hot, PAGE_SIZE) } else { self.range() };
        Operation::Kernel(KernelOperation::PageOut { addr, len })
    }

    fn few_accesses(&mut self) -> Operation {
        let Window { start, pages, .. } = self.window;
        Operation::AccessMany { start, pages, times: 32, seed: self.random.next_u64() }
    }

    /// A call on the hot page that often reduces its rights.
    fn reduction(&mut self) -> Operation {
        let (addr, len) = (self.hot, PAGE_SIZE);
        match self.below(8) {
            0..4 => Operation::Range(RangeCall::Mprotect { addr, len, rights: self.rights() }),
            4 | 5 => Operation::Range(RangeCall::DontNeed { addr, len }),
            6 => Operation::Range(RangeCall::Munmap { addr, len }),
            _ => Operation::Fork,
        }
    }

    fn fail_allocation(&mut self) -> Operation {
        Operation::FailAllocation { after: self.below(8) }
    }

    pub(super) fn switch(&mut self) -> Operation {
        Operation::Switch { to: self.below(4) as usize }
    }

    /// The address of a page: mostly of the window, sometimes of the heap or next to either.
    pub(super) fn page(&mut self) -> VirtAddr {
        let window = self.window;
        let Window { pages, heap_pages, .. } = window;
        let no_hot = matches!(self.theme(), Theme::Mixed | Theme::Tables | Theme::Huge | Theme::Calls);
        if !no_hot && !self.once_in(8) {
            return self.hot;
        }
        match self.below(16) {
            0 => HEAP.add(self.below(heap_pages + 1) * PAGE_SIZE),
            1 => window.page_or_neighbour(self.below(pages + 2)),
            _ => window.page(self.below(pages)),
        }
    }

    pub(super) fn access(&mut self) -> Operation {
        let cell = if self.theme() == Theme::Copies && !self.once_in(4) { 0 } else { self.below(3) };
        let va = self.page().add(cell * 8);
        let access = match self.below(16) {
            0..7 => Access::Read,
            7..15 => Access::Write,
            _ => Access::Exec,
        };
        Operation::Access { va, access }
    }

    fn access_window(&mut self) -> Operation {
        let Window { start, pages, heap_pages, .. } = self.window;
        let (start, pages) = if self.once_in(8) { (HEAP, heap_pages) } else { (start, pages) };
        let times = 1024 + self.below(4096) as u32;
        // Calls on huge pages take long, so their programs access less between them.
        let times = if self.window.is_huge { times / 16 } else { times };
        Operation::AccessMany { start, pages, times, seed: self.random.next_u64() }
    }

    /// The start and length of a range in the window, mostly a short one.
    pub(super) fn range(&mut self) -> (VirtAddr, u64) {
        if self.window.is_huge {
            return self.range_of_huge();
        }
        let Window { start, pages, .. } = self.window;
        let halves = if self.theme() == Theme::Tables { 2 } else { 12 };
        if self.once_in(halves) {
            // One half is everything that its last-level table maps.
            let half = pages / 2 * PAGE_SIZE;
            return (start.add(self.below(2) * half), half);
        }
        let first = self.below(pages);
        let longest = pages - first;
        let count = 1 + match self.below(4) {
            0 => self.below(longest),
            _ => self.below(longest.min(1 + pages / 8)),
        };
        let part = if self.once_in(4) { self.below(PAGE_SIZE) } else { 0 };
        (start.add(first * PAGE_SIZE), count * PAGE_SIZE - part)
    }

    /// The start and length of a range in the window, or sometimes of an invalid range.
    pub(super) fn range_or_invalid(&mut self, user_end: VirtAddr) -> (VirtAddr, u64) {
        let (addr, len) = self.range();
        if !self.once_in(24) {
            return (addr, len);
        }
        match self.below(6) {
            0 => (addr.add(1 + self.below(PAGE_SIZE - 1)), len),
            1 => (addr, 0),
            2 => (addr, u64::MAX - self.below(2 * PAGE_SIZE)),
            3 => (VirtAddr::new(user_end.raw() - PAGE_SIZE), len + PAGE_SIZE),
            4 => (VirtAddr::new(user_end.raw() + self.below(4) * PAGE_SIZE), len),
            _ => (VirtAddr::new(!(PAGE_SIZE - 1)), len),
        }
    }

    fn rights(&mut self) -> Rights {
        match self.below(8) {
            0..3 => Rights::READ,
            3..5 => Rights::RW,
            _ => Rights::from_bits_truncate(self.below(8) as u8),
        }
    }

    fn object(&mut self) -> MappedObject {
        let page = self.below(FILE_PAGES / 8);
        match self.below(16) {
            0 => MappedObject::SharedReadOnly(page),
            1 | 2 => MappedObject::SharedFile(page),
            3 | 4 => MappedObject::PrivateFile(page),
            5 | 6 => MappedObject::SharedAnon,
            7..10 => MappedObject::PrivateAnon,
            _ => self.main_object,
        }
    }

    /// Maps the whole window, as the first operation does.
    fn map_window(&self) -> Operation {
        let (start, len, object) = (self.window.start, self.window.bytes(), self.main_object);
        Operation::Mmap { place: MmapPlacement::Fixed(start), len, rights: Rights::RW, object, populate: false }
    }

    fn mmap(&mut self, user_end: VirtAddr) -> Operation {
        // Without this, most of the window would soon be unmapped.
        if self.once_in(3) {
            return self.map_window();
        }
        let (addr, len) = self.range_or_invalid(user_end);
        let place = match self.below(8) {
            0 => MmapPlacement::Anywhere,
            1 | 2 => MmapPlacement::FixedNoReplace(addr),
            _ => MmapPlacement::Fixed(addr),
        };
        let rights = if self.once_in(4) { self.rights() } else { Rights::RW };
        let object = self.object();
        // With a file, an overflowing length may fail for another reason: the offset.
        let object = if len > 1 << 40 { MappedObject::PrivateAnon } else { object };
        let populate = self.once_in(4);
        Operation::Mmap { place, len, rights, object, populate }
    }

    pub(super) fn call(&mut self) -> Operation {
        let user_end = self.user_end();
        match self.below(32) {
            0..8 => self.mmap(user_end),
            8..12 => {
                let (addr, len) = self.range_or_invalid(user_end);
                Operation::Range(RangeCall::Munmap { addr, len })
            }
            12..18 => {
                let (addr, len) = self.range_or_invalid(user_end);
                Operation::Range(RangeCall::Mprotect { addr, len, rights: self.rights() })
            }
            18..22 => {
                let (addr, len) = self.range_or_invalid(user_end);
                Operation::Range(RangeCall::DontNeed { addr, len })
            }
            22..24 => self.brk(),
            24..28 => Operation::Fork,
            28..31 => Operation::Exit { lazily: self.once_in(2) },
            _ => self.truncate(),
        }
    }

    /// Truncates the file to its first size, or to a smaller one.
    fn truncate(&mut self) -> Operation {
        Operation::Truncate { pages: if self.once_in(2) { FILE_PAGES } else { self.below(self.window.pages + 2) } }
    }

    fn brk(&mut self) -> Operation {
        let bytes = if self.once_in(4) { 0 } else { self.below(self.window.heap_pages * PAGE_SIZE) };
        let to = if self.once_in(16) { VirtAddr::new(HEAP.raw() - 1 - bytes) } else { HEAP.add(bytes) };
        Operation::Range(RangeCall::Brk { to })
    }

    /// The end of user memory on one of the two instruction sets, whichever runs the program.
    ///
    /// A program has the same operations on both.
    pub(super) fn user_end(&mut self) -> VirtAddr {
        VirtAddr::new(if self.once_in(2) { 1 << 48 } else { 0x7fff_ffff_f000 })
    }
}
