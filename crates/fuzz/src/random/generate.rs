//! Draws operations: a few pages at which all CPUs meet, and arguments that are sometimes bad.
//!
//! The window lies across the border of two tables of the last level and two of the one above, so
//! that tables come and go with it.

use super::kernel::Kernel;
use super::operation::{Object, Operation, Step, Where};
use super::program::{Mode, Shape, Theme};
use super::syscall::Syscall;
use pagewright_model::spec::ExclusiveCall;
use pagewright_types::{Access, CpuId, PAGE_SIZE, Rights, VirtAddr};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Where the window's two halves meet.
const MIDDLE: u64 = 3 << 30;
/// Where heaps begin, out of the window's way.
pub(crate) const HEAP: VirtAddr = VirtAddr::new(5 << 30);
/// Pages of the file.
pub(crate) const FILE_PAGES: u64 = 80;

/// A number below `limit`.
pub(super) fn below(random: &mut Pcg64, limit: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
}

/// The pages at which programs of a shape meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: VirtAddr,
    pub(super) pages: u64,
    pub(super) heap_pages: u64,
}

impl Window {
    pub(crate) fn of(mode: Mode) -> Self {
        let (pages, heap_pages) = match mode {
            Mode::Fast => (64, 12),
            Mode::Calls => (48, 12),
            Mode::Explore(_) => (4, 2),
            Mode::Linux => (48, 12),
        };
        Self { start: VirtAddr::new(MIDDLE - pages / 2 * PAGE_SIZE), pages, heap_pages }
    }

    /// Its pages and the two around: the first, and how many.
    pub(crate) fn with_neighbours(self) -> (VirtAddr, u64) {
        (VirtAddr::new(self.start.raw() - PAGE_SIZE), self.pages + 2)
    }

    /// Its pages, those of the heap behind them, and the two around.
    pub(crate) fn all(self) -> impl Iterator<Item = VirtAddr> {
        let (first, pages) = self.with_neighbours();
        let window = (0..pages).map(move |page| first.add(page * PAGE_SIZE));
        window.chain((0..=self.heap_pages).map(|page| HEAP.add(page * PAGE_SIZE)))
    }
}

/// Draws the operations of one program, in order.
pub(super) struct Generator {
    shape: Shape,
    window: Window,
    /// The page that a program with such a theme works on.
    hot: VirtAddr,
    random: Pcg64,
    /// Whether allocations fail in this program.
    starves: bool,
    /// What the program maps mostly.
    favourite: Object,
    /// Whether the hot page is shared with a child when the others begin, where it is for copies;
    /// else it is one process's own.
    shares: bool,
}

impl Generator {
    pub(super) fn new(shape: Shape, seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed ^ 0x7067_7772_6967_6874);
        let starves = below(&mut random, 3) == 0;
        let favourite = match below(&mut random, 8) {
            0 => Object::SharedAnon,
            1 => Object::SharedFile(1),
            2 => Object::PrivateFile(1),
            _ => Object::PrivateAnon,
        };
        let window = Window::of(shape.mode);
        let hot = window.start.add(below(&mut random, window.pages) * PAGE_SIZE);
        Self { shape, window, hot, random, starves, favourite, shares: seed.is_multiple_of(2) }
    }

    fn theme(&self) -> Theme {
        match self.shape.mode {
            Mode::Fast | Mode::Calls | Mode::Linux => Theme::Mixed,
            Mode::Explore(theme) => theme,
        }
    }

    /// Whether its program runs on Linux, too.
    pub(super) fn is_beside_linux(&self) -> bool {
        self.shape.mode == Mode::Linux
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.random, limit)
    }

    /// Whether something happens that does so once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn cpu(&mut self) -> CpuId {
        CpuId::new(self.below(self.shape.cpus.into()) as u16)
    }

    /// Operation `index` of the calm beginning: something is mapped, and every CPU has used it.
    pub(super) fn calm(&mut self, index: usize) -> Step {
        let cpus = usize::from(self.shape.cpus);
        if index == 0 {
            return Step { cpu: CpuId::new(0), operation: self.map_all() };
        }
        if index <= cpus {
            return Step { cpu: CpuId::new((index - 1) as u16), operation: Operation::Switch { to: 0 } };
        }
        match self.theme() {
            Theme::Hot | Theme::Copies | Theme::Moving => self.calm_around_hot(index - cpus - 1),
            Theme::Mixed | Theme::Tables | Theme::Calls => {
                let operation = match self.below(16) {
                    0 => self.call(),
                    1 => Operation::Fork,
                    2 => self.switch(),
                    3 => Operation::Lazy,
                    _ => self.access(),
                };
                Step { cpu: self.cpu(), operation }
            }
        }
    }

    /// Calm operation `index`, once every CPU runs the first process: there are two processes, and
    /// in the end each CPU has the hot page in its TLB, or has had it before it went elsewhere, and
    /// there perhaps to a kernel thread.
    fn calm_around_hot(&mut self, index: usize) -> Step {
        let cpus = usize::from(self.shape.cpus);
        let left = usize::from(self.shape.calm) - cpus - 2 - index;
        let nth = |cpu: usize| CpuId::new(cpu as u16);
        let shares = self.theme() == Theme::Copies && self.shares;
        let (cpu, operation) = match left {
            left if shares && left == cpus => (nth(0), Operation::Fork),
            left if shares && left < cpus => (nth(left), Operation::Access { va: self.hot, access: Access::Read }),
            _ if index == 0 => (nth(0), Operation::Fork),
            left if left < cpus => (nth(left), self.last_calm(left)),
            left if left < 2 * cpus => (nth(left - cpus), self.last_but_one(left - cpus)),
            left if left < 3 * cpus => (nth(left - 2 * cpus), self.look_at_hot()),
            _ => (self.cpu(), self.access()),
        };
        Step { cpu, operation }
    }

    fn look_at_hot(&mut self) -> Operation {
        let access = if self.once_in(8) { Access::Write } else { Access::Read };
        Operation::Access { va: self.hot, access }
    }

    fn leaves(&self, cpu: usize) -> bool {
        self.theme() == Theme::Moving && cpu > 0
    }

    fn last_but_one(&mut self, cpu: usize) -> Operation {
        if self.leaves(cpu) && self.once_in(2) { Operation::Switch { to: 1 } } else { self.look_at_hot() }
    }

    fn last_calm(&mut self, cpu: usize) -> Operation {
        if self.leaves(cpu) && self.once_in(2) { Operation::Lazy } else { self.look_at_hot() }
    }

    /// The next of the others.
    pub(super) fn other(&mut self) -> Step {
        let cpu = self.cpu();
        let operation = match self.shape.mode {
            Mode::Fast => match self.below(64) {
                0..32 => self.roam(),
                32 => Operation::Lazy,
                33..37 => self.switch(),
                37..40 => self.access(),
                40 if self.starves => self.starve(),
                41..45 => self.page_out(),
                _ => self.call(),
            },
            Mode::Explore(Theme::Mixed) => match self.below(64) {
                0..24 => self.access(),
                24..27 => Operation::Lazy,
                27..31 => self.switch(),
                31 if self.starves => self.starve(),
                32..36 => self.page_out(),
                _ => self.call(),
            },
            Mode::Explore(Theme::Hot) => match self.below(16) {
                0..8 => self.access(),
                8..13 => self.reduction(),
                13 | 14 => Operation::Fork,
                _ => self.call(),
            },
            Mode::Explore(Theme::Copies) => match self.below(8) {
                0 => Operation::Fork,
                1 => self.page_out(),
                _ => self.access(),
            },
            Mode::Explore(Theme::Moving) if cpu == CpuId::new(0) => self.reduction(),
            Mode::Explore(Theme::Moving) => match self.below(8) {
                0..3 => Operation::Switch { to: 0 },
                3 => Operation::Switch { to: 1 },
                4 => Operation::Lazy,
                _ => self.access(),
            },
            Mode::Explore(Theme::Tables) => match self.below(8) {
                0..3 => {
                    let (addr, len) = self.range();
                    Operation::Unmap { addr, len }
                }
                3 => self.map_all(),
                4 => self.call(),
                5 => Operation::Lazy,
                _ => self.access(),
            },
            Mode::Explore(Theme::Calls) => match self.below(32) {
                0..10 => self.access(),
                10..16 => Operation::Kernel(self.kernel()),
                16 => Operation::Lazy,
                17 => self.switch(),
                18 if self.starves => self.starve(),
                18..25 => self.call(),
                _ => Operation::Syscall(self.syscall()),
            },
            Mode::Calls => self.calls(),
            Mode::Linux => self.beside_linux(),
        };
        Step { cpu, operation }
    }

    /// Mostly calls, of every sort; a tenth of all operations has an allocation fail.
    fn calls(&mut self) -> Operation {
        match self.below(80) {
            0..20 => self.access(),
            20..23 => self.switch(),
            23 => Operation::Lazy,
            24 => self.roam_a_little(),
            25..33 => Operation::Starve { after: self.below(12) },
            33..53 => match self.call() {
                Operation::DontNeed { addr, len } => {
                    Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice: 4 }))
                }
                other => other,
            },
            53 => Operation::Syscall(Syscall::Exclusive(ExclusiveCall::UnlockAll)),
            54..58 => Operation::Kernel(self.kernel()),
            _ => Operation::Syscall(self.syscall()),
        }
    }

    fn kernel(&mut self) -> Kernel {
        let (addr, len) = self.range();
        match self.below(20) {
            0..4 => {
                let (writes, long, fast) = (self.once_in(2), self.once_in(3), self.once_in(2));
                Kernel::Pin { addr, pages: 1 + self.below(3), writes, long, fast }
            }
            4..8 => Kernel::Device { which: self.below(4) as usize },
            8 | 9 => Kernel::Unpin { which: self.below(4) as usize },
            10..13 => {
                // Across the border of two pages, at the same place in both: so nothing is copied
                // onto itself.
                let near_end = |va: VirtAddr| va.align_down(PAGE_SIZE).add(PAGE_SIZE - 16);
                let (theirs, ours) = (near_end(addr), near_end(self.range().0));
                let (process, len) = (self.below(4) as usize, self.below(5) * 8);
                Kernel::Copy { process, theirs, ours, len, writes: self.once_in(2) }
            }
            13 => Kernel::ClearSoftDirty,
            14..16 => Kernel::SoftDirty { addr, len },
            19 if self.once_in(4) => Kernel::SwapOff,
            18 => Kernel::Reclaim { pages: 1 << self.below(6) },
            _ => Kernel::PageOut { addr, len },
        }
    }

    fn page_out(&mut self) -> Operation {
        if self.once_in(4) {
            return Operation::Kernel(Kernel::Reclaim { pages: 1 << self.below(6) });
        }
        let (addr, len) = if self.theme() == Theme::Copies { (self.hot, PAGE_SIZE) } else { self.range() };
        Operation::Kernel(Kernel::PageOut { addr, len })
    }

    fn roam_a_little(&mut self) -> Operation {
        let Window { start, pages, .. } = self.window;
        Operation::Roam { start, pages, times: 32, seed: self.random.next_u64() }
    }

    /// A call that takes rights from the hot page, or most of them.
    fn reduction(&mut self) -> Operation {
        let (addr, len) = (self.hot, PAGE_SIZE);
        match self.below(8) {
            0..4 => Operation::Protect { addr, len, rights: self.rights() },
            4 | 5 => Operation::DontNeed { addr, len },
            6 => Operation::Unmap { addr, len },
            _ => Operation::Fork,
        }
    }

    fn starve(&mut self) -> Operation {
        Operation::Starve { after: self.below(8) }
    }

    pub(super) fn switch(&mut self) -> Operation {
        Operation::Switch { to: self.below(4) as usize }
    }

    /// A page of the window, seldom of the heap, and once in a while one past either.
    fn page(&mut self) -> VirtAddr {
        let Window { start, pages, heap_pages } = self.window;
        if matches!(self.theme(), Theme::Hot | Theme::Copies | Theme::Moving) && !self.once_in(8) {
            return self.hot;
        }
        match self.below(16) {
            0 => HEAP.add(self.below(heap_pages + 1) * PAGE_SIZE),
            1 => VirtAddr::new(start.raw() - PAGE_SIZE + self.below(pages + 2) * PAGE_SIZE),
            _ => start.add(self.below(pages) * PAGE_SIZE),
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

    fn roam(&mut self) -> Operation {
        let Window { start, pages, heap_pages } = self.window;
        let (start, pages) = if self.once_in(8) { (HEAP, heap_pages) } else { (start, pages) };
        Operation::Roam { start, pages, times: 1024 + self.below(4096) as u32, seed: self.random.next_u64() }
    }

    /// Start and length of some pages of the window: short ones mostly.
    pub(super) fn range(&mut self) -> (VirtAddr, u64) {
        let Window { start, pages, .. } = self.window;
        let halves = if self.theme() == Theme::Tables { 2 } else { 12 };
        if self.once_in(halves) {
            // One half is all that its table of the last level maps.
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

    /// The same, and once in a while something that is no such range.
    pub(super) fn argument(&mut self, user_end: VirtAddr) -> (VirtAddr, u64) {
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

    fn object(&mut self) -> Object {
        let page = self.below(FILE_PAGES / 8);
        match self.below(16) {
            0 => Object::SharedReadOnly(page),
            1 | 2 => Object::SharedFile(page),
            3 | 4 => Object::PrivateFile(page),
            5 | 6 => Object::SharedAnon,
            7..10 => Object::PrivateAnon,
            _ => self.favourite,
        }
    }

    /// The whole window as it was at first.
    fn map_all(&self) -> Operation {
        let Window { start, pages, .. } = self.window;
        let (len, object) = (pages * PAGE_SIZE, self.favourite);
        Operation::Map { place: Where::Fixed(start), len, rights: Rights::RW, object, populate: false }
    }

    fn map(&mut self, user_end: VirtAddr) -> Operation {
        // Else many calls would meet holes alone.
        if self.once_in(3) {
            return self.map_all();
        }
        let (addr, len) = self.argument(user_end);
        let place = match self.below(8) {
            0 => Where::Anywhere,
            1 | 2 => Where::Vacant(addr),
            _ => Where::Fixed(addr),
        };
        let rights = if self.once_in(4) { self.rights() } else { Rights::RW };
        let object = self.object();
        // An object as long as an overflowing length would be is refused for another reason, by its
        // offset.
        let object = if len > 1 << 40 { Object::PrivateAnon } else { object };
        let populate = self.once_in(4);
        Operation::Map { place, len, rights, object, populate }
    }

    pub(super) fn call(&mut self) -> Operation {
        let user_end = self.user_end();
        match self.below(32) {
            0..8 => self.map(user_end),
            8..12 => {
                let (addr, len) = self.argument(user_end);
                Operation::Unmap { addr, len }
            }
            12..18 => {
                let (addr, len) = self.argument(user_end);
                Operation::Protect { addr, len, rights: self.rights() }
            }
            18..22 => {
                let (addr, len) = self.argument(user_end);
                Operation::DontNeed { addr, len }
            }
            22..24 => self.set_break(),
            24..28 => Operation::Fork,
            28..31 => Operation::Exit { lazily: self.once_in(2) },
            _ => self.truncate(),
        }
    }

    /// Grows the file to what it was mostly, else cuts it off below what is mapped of it.
    fn truncate(&mut self) -> Operation {
        Operation::Truncate { pages: if self.once_in(2) { FILE_PAGES } else { self.below(self.window.pages + 2) } }
    }

    fn set_break(&mut self) -> Operation {
        let bytes = if self.once_in(4) { 0 } else { self.below(self.window.heap_pages * PAGE_SIZE) };
        let to = if self.once_in(16) { VirtAddr::new(HEAP.raw() - 1 - bytes) } else { HEAP.add(bytes) };
        Operation::Break { to }
    }

    /// The end of user memory on neither instruction set, or on both: programs are the same on the
    /// two.
    pub(super) fn user_end(&mut self) -> VirtAddr {
        VirtAddr::new(if self.once_in(2) { 1 << 48 } else { 0x7fff_ffff_f000 })
    }
}
