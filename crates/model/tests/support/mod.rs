//! A machine whose caches and page tables are set by the test.

use pagewright_model::{Oracle, Rule};
use pagewright_types::judge::{
    CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, MemoryAccess, WalkedPlace, Witness,
};
use pagewright_types::{
    Access, CpuId, CpuMask, IsaKind, Level, Order, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr,
};
use std::collections::HashMap;

pub(crate) const CPU0: CpuId = CpuId::new(0);
pub(crate) const CPU1: CpuId = CpuId::new(1);
pub(crate) const ROOT: Pfn = Pfn::new(0x10);
/// The root of the other space.
pub(crate) const OTHER: Pfn = Pfn::new(0x20);
/// The table of the last level, and the one that points to it.
pub(crate) const LAST: Pfn = Pfn::new(0x13);
pub(crate) const ABOVE: Pfn = Pfn::new(0x12);
pub(crate) const TAG: Tag = Tag::new(3);
pub(crate) const VA: VirtAddr = VirtAddr::new(0x7000);
pub(crate) const FRAME: Pfn = Pfn::new(0x1234);

/// Runs a history on both instruction sets and returns the broken rules.
///
/// They must be the same on both.
pub(crate) fn broken(history: impl Fn(&mut Machine, &mut Oracle)) -> Vec<Rule> {
    let [x86, arm] = [IsaKind::X86_64, IsaKind::Aarch64].map(|isa| {
        let (mut machine, mut oracle) = (Machine::new(isa), Oracle::new(isa));
        history(&mut machine, &mut oracle);
        assert_eq!(oracle.found(), oracle.violations().len() as u64);
        oracle.violations().iter().map(|violation| violation.rule).collect::<Vec<Rule>>()
    });
    assert_eq!(x86, arm);
    x86
}

/// The caches and the memory of the machine.
pub(crate) struct Machine {
    pub(crate) isa: IsaKind,
    pub(crate) cached: Vec<CachedEntry>,
    words: HashMap<u64, u64>,
    /// Stores that walkers cannot see yet.
    waiting: HashMap<u64, u64>,
    /// Whose stores wait.
    pub(crate) storing: CpuId,
    /// What walks have translated, by the address of the entry.
    places: Vec<(PhysAddr, WalkedPlace)>,
    pub(crate) uninterruptible: CpuMask,
    /// The tables that lockless walks have read.
    pub(crate) lockless: Vec<(CpuId, Vec<Pfn>)>,
}

impl Witness for Machine {
    fn cached(&self, tell: &mut dyn FnMut(CachedEntry)) {
        self.cached.iter().copied().for_each(tell);
    }

    fn word(&self, at: PhysAddr) -> u64 {
        self.words.get(&at.raw()).copied().unwrap_or(0)
    }

    fn stored(&self, at: PhysAddr) -> u64 {
        self.waiting.get(&at.raw()).copied().unwrap_or_else(|| self.word(at))
    }

    fn walked_at(&self, at: PhysAddr, visit: &mut dyn FnMut(WalkedPlace)) {
        self.places.iter().filter(|(slot, _)| *slot == at).for_each(|(_, place)| visit(*place));
    }

    fn uninterruptible(&self) -> CpuMask {
        self.uninterruptible
    }

    fn lockless_walks(&self, visit: &mut dyn FnMut(CpuId, &[Pfn])) {
        self.lockless.iter().for_each(|(cpu, tables)| visit(*cpu, tables));
    }

    fn stores_wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn store_waits(&self, cpu: CpuId, at: PhysAddr) -> bool {
        cpu == self.storing && self.waiting.contains_key(&at.raw())
    }
}

impl Machine {
    /// Unmaps a page of [`VA`] that a CPU has stored to, with or without a flush.
    pub(crate) fn unmap_used(&mut self, oracle: &mut Oracle, flushed: bool) {
        self.map(VA, FRAME, Rights::RW);
        self.fill(Rights::RW, CachedEntryState::Usable);
        self.hit(oracle, Access::Write);
        self.map(VA, FRAME, Rights::empty());
        if flushed {
            self.flush();
        }
    }

    /// Creates the tables 0x10 → 0x11 → 0x12 → 0x13 for the lowest addresses, with nothing mapped.
    ///
    /// The tables 0x20 → 0x21 → 0x22 are another space's; none of them points to 0x13.
    pub(crate) fn new(isa: IsaKind) -> Self {
        let mut machine = Self {
            isa,
            cached: Vec::new(),
            words: HashMap::new(),
            waiting: HashMap::new(),
            storing: CPU0,
            places: Vec::new(),
            uninterruptible: CpuMask::EMPTY,
            lockless: Vec::new(),
        };
        for table in [0x10, 0x11, 0x12, 0x20, 0x21] {
            machine.link(Pfn::new(table), Some((Pfn::new(table + 1), Rights::all())));
        }
        machine
    }

    /// Stores the first entry of `table`: a pointer below which leaves have at most these rights.
    pub(crate) fn link(&mut self, table: Pfn, to: Option<(Pfn, Rights)>) {
        let raw = to.map_or(0, |(to, rights)| {
            let writable = rights.contains(Rights::WRITE);
            to.base().raw()
                | match self.isa {
                    IsaKind::X86_64 => 0x065 | if writable { 2 } else { 0 },
                    IsaKind::Aarch64 => 0x003 | if writable { 0 } else { 1 << 62 },
                }
        });
        self.words.insert(table.base().raw(), raw);
    }

    fn slot(va: VirtAddr) -> u64 {
        (0x13 << 12) + va.page_index() * 8
    }

    pub(crate) fn leaf(&self, pfn: Pfn, rights: Rights) -> u64 {
        let writable = rights.contains(Rights::WRITE);
        pfn.base().raw()
            | match self.isa {
                IsaKind::X86_64 => 0x8000_0000_0000_0025 | if writable { 2 } else { 0 },
                IsaKind::Aarch64 => 0x0060_0000_0000_0f43 | if writable { 0 } else { 0x80 },
            }
    }

    /// Stores a word, and returns the one before.
    pub(crate) fn put_word(&mut self, at: PhysAddr, raw: u64) -> u64 {
        self.words.insert(at.raw(), raw).unwrap_or(0)
    }

    /// A walk under `root` has translated `va` by an entry of `table`, which led to `pfn`.
    pub(crate) fn walked(&mut self, root: Pfn, table: Pfn, va: VirtAddr, pfn: Pfn) {
        let level = if table == LAST { Level::PTE } else { Level::PMD };
        let at = table.base().add(level.index_of(va) as u64 * 8);
        let place = WalkedPlace { root, tag: TAG, va, level, pfn, is_leaf: level == Level::PTE };
        self.places.push((at, place));
    }

    /// Stores a leaf in the last table, or zero if there are no rights.
    pub(crate) fn map(&mut self, va: VirtAddr, pfn: Pfn, rights: Rights) {
        let raw = if rights.is_empty() { 0 } else { self.leaf(pfn, rights) };
        self.waiting.remove(&Self::slot(va));
        self.words.insert(Self::slot(va), raw);
    }

    /// The same by a store that walkers cannot see yet.
    pub(crate) fn map_late(&mut self, va: VirtAddr, pfn: Pfn, rights: Rights) {
        let raw = if rights.is_empty() { 0 } else { self.leaf(pfn, rights) };
        self.waiting.insert(Self::slot(va), raw);
    }

    /// Adds an entry to the caches of CPU 1.
    pub(crate) fn remember(&mut self, kind: CachedEntryKind, level: Level, state: CachedEntryState) {
        let va = VA.align_down(level.span());
        self.cached.push(CachedEntry { cpu: CPU1, kind, tag: TAG, root: ROOT, va, level, global: false, state });
    }

    /// Fills the TLB of CPU 1 with the translation of [`VA`].
    pub(crate) fn fill(&mut self, rights: Rights, state: CachedEntryState) {
        self.remember(CachedEntryKind::Translation { pfn: FRAME, rights }, Level::PTE, state);
    }

    /// Makes CPU 1 cache the pointer to table 0x13, and the rights that were left below it.
    pub(crate) fn fill_path(&mut self, allows: Rights, state: CachedEntryState) {
        self.remember(CachedEntryKind::Table { table: LAST, allows }, Level::PMD, state);
    }

    pub(crate) fn flush(&mut self) {
        self.cached.clear();
    }

    /// Makes an access of CPU 1 to [`VA`] that hits [`FRAME`] in its TLB.
    pub(crate) fn hit(&self, judge: &mut dyn Judge, access: Access) {
        self.access(judge, FRAME, access, true);
    }

    pub(crate) fn access(&self, judge: &mut dyn Judge, frame: Pfn, access: Access, cached: bool) {
        judge.access(self, MemoryAccess { cpu: CPU1, root: ROOT, va: VA, access, at: frame.base(), cached });
    }

    pub(crate) fn freed(&self, judge: &mut dyn Judge, pfn: Pfn) {
        judge.fact(self, CPU0, Fact::FrameFreed { pfn, order: Order::ZERO });
    }

    pub(crate) fn released(&self, judge: &mut dyn Judge, pfn: Pfn) {
        judge.fact(self, CPU0, Fact::FrameReleased { pfn, order: Order::ZERO });
    }

    pub(crate) fn reused(&self, judge: &mut dyn Judge, pfn: Pfn) {
        judge.fact(self, CPU0, Fact::FrameReused { pfn, order: Order::ZERO });
    }

    pub(crate) fn reduced(&self, judge: &mut dyn Judge, cpu: CpuId, left: Rights) {
        self.reduced_in(judge, cpu, PageRange::page(VA), left);
    }

    pub(crate) fn reduced_in(&self, judge: &mut dyn Judge, cpu: CpuId, range: PageRange, left: Rights) {
        judge.fact(self, cpu, Fact::RightReduced { root: ROOT, range, left });
    }

    pub(crate) fn returned(&self, judge: &mut dyn Judge, cpu: CpuId) {
        judge.fact(self, cpu, Fact::CallReturned);
    }
}
