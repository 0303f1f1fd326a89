//! Processes that act call by call.

use super::test_device::{GupCall, TestDevice};
use super::test_world::{ANON, CPU, FileHandle, TestWorld};
use pagewright_arch::{Isa, TableEntry};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, MmError, MmSetting, Space};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_table::LeafView;
use pagewright_types::{Access, CpuId, Level, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The address of page `page` of the range that begins at `base`.
pub fn at(base: VirtAddr, page: u64) -> VirtAddr {
    base.add(page * PAGE_SIZE)
}

/// A process.
pub struct TestProcess<I: Isa> {
    /// The machine on which it runs.
    pub world: Rc<TestWorld<I>>,
    /// Its address space.
    pub space: Arc<Space<Sim<I>>>,
}

impl<I: Isa> TestProcess<I> {
    /// A process with nothing mapped.
    ///
    /// # Panics
    /// If there is no memory; the same holds for every method that returns no error.
    pub fn new(world: &Rc<TestWorld<I>>) -> Self {
        let space = world.on(CPU, |mm| mm.new_space()).expect("memory for a space");
        Self { world: Rc::clone(world), space }
    }

    /// A process alone on a machine without the oracle ([`TestWorld::unjudged`]).
    pub fn unjudged() -> (Rc<TestWorld<I>>, Self) {
        let world = TestWorld::unjudged();
        let process = Self::new(&world);
        (world, process)
    }

    /// A process alone on a machine of `cpus` CPUs with the oracle ([`TestWorld::new`]).
    pub fn judged(cpus: u16) -> (Rc<TestWorld<I>>, Self) {
        let world = TestWorld::new(cpus);
        let process = Self::new(&world);
        (world, process)
    }

    /// Maps `pages` pages at an address that the memory manager chooses.
    ///
    /// Maps `file` from its beginning; without a file, `flags` must have `MAP_ANONYMOUS`.
    pub fn map(&self, pages: u64, rights: Rights, flags: MapFlags, file: Option<&FileHandle<I>>) -> VirtAddr {
        let file = file.map(|file| FileMapping { file, offset: 0, opened: Rights::RW });
        let request = MapRequest { addr: VirtAddr::ZERO, len: pages * PAGE_SIZE, rights, flags, file };
        self.world.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room")
    }

    /// Maps private anonymous memory.
    pub fn anon(&self, pages: u64) -> VirtAddr {
        self.map(pages, Rights::RW, ANON, None)
    }

    /// Makes one access on `cpu`, which runs the process from then on.
    ///
    /// # Errors
    /// [`FaultError`], if the program would get a signal.
    pub fn touch(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Result<(), FaultError> {
        self.world.lab.run(cpu, &self.space);
        self.world.lab.touch(cpu, &self.space, va, access, 1)
    }

    /// The frame that an access on `cpu` reaches.
    pub fn frame(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Pfn {
        self.touch(cpu, va, access).expect("the access is allowed");
        self.world.lab.sim().access(cpu, va, access, 1).expect("just touched").pfn
    }

    /// The word that an access on `cpu` reaches.
    pub fn word(&self, cpu: CpuId, va: VirtAddr, access: Access) -> &AtomicU64 {
        self.world.lab.run(cpu, &self.space);
        self.world.word(cpu, &self.space, va, access)
    }

    /// Stores to a page of a private mapping so that a huge page is mapped at `va`.
    ///
    /// # Panics
    /// If the mapping does not cover the 2 MiB, has a table there, or no block is free.
    pub fn map_huge(&self, va: VirtAddr) {
        self.world.set(MmSetting::ThpEnabled, "always");
        self.write(CPU, va, 0);
        self.world.set(MmSetting::ThpEnabled, "madvise");
        assert_eq!(self.leaf_level(va), Some(Level::PMD));
    }

    /// The level of the leaf that maps `va`; `None` if there is none.
    pub fn leaf_level(&self, va: VirtAddr) -> Option<Level> {
        let map = self.space.map().read();
        self.world.on(CPU, |mm| map.tables(mm.tlb()).peek(va).leaf()).map(LeafView::level)
    }

    /// Loads a word.
    pub fn read(&self, cpu: CpuId, va: VirtAddr) -> u64 {
        self.word(cpu, va, Access::Read).load(Ordering::Relaxed)
    }

    /// Stores a word.
    pub fn write(&self, cpu: CpuId, va: VirtAddr, value: u64) {
        self.word(cpu, va, Access::Write).store(value, Ordering::Relaxed);
    }

    /// Forks the process.
    pub fn fork(&self) -> Self {
        let space = self.world.on(CPU, |mm| mm.fork(&self.space)).expect("memory for a child");
        Self { world: Rc::clone(&self.world), space }
    }

    /// Changes the rights of pages.
    pub fn protect(&self, va: VirtAddr, pages: u64, rights: Rights) {
        self.world.on(CPU, |mm| mm.mprotect(&self.space, va, pages * PAGE_SIZE, rights)).expect("mapped");
    }

    /// Unmaps pages.
    pub fn unmap(&self, va: VirtAddr, pages: u64) {
        self.world.on(CPU, |mm| mm.munmap(&self.space, va, pages * PAGE_SIZE)).expect("a range");
    }

    /// Ends the process; every CPU leaves the space that it runs.
    pub fn end(&self) {
        for cpu in self.world.bench.cpus().iter() {
            self.world.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.world.on(CPU, |mm| mm.end_space(&self.space));
    }

    /// Ends processes of one machine; then asserts [`TestWorld::at_rest`] without devices.
    ///
    /// # Panics
    /// If the oracle has a finding, or a pin remains.
    pub fn end_all_at_rest(processes: &[&Self]) {
        processes.iter().for_each(|process| process.end());
        processes[0].world.at_rest(&[]);
    }

    /// Takes pages for a device by `call`, on `cpu`, which runs the process from then on.
    ///
    /// # Errors
    /// The [`MmError`] of the call.
    pub fn take(&self, cpu: CpuId, va: VirtAddr, pages: u64, call: GupCall) -> Result<TestDevice<I>, MmError> {
        let range = PageRange::from_len(va, pages * PAGE_SIZE)?;
        self.world.lab.run(cpu, &self.space);
        let taken = self.world.on(cpu, |mm| match call {
            GupCall::Get(flags) => mm.get_user_pages(&self.space, range, flags),
            GupCall::GetFast(flags) => mm.get_user_pages_fast(&self.space, range, flags),
            GupCall::Pin(flags) => mm.pin_user_pages(&self.space, range, flags),
            GupCall::PinFast(flags) => mm.pin_user_pages_fast(&self.space, range, flags),
        });
        Ok(TestDevice { world: Rc::clone(&self.world), pages: taken? })
    }

    /// Maps anonymous memory with the hint `addr`, or at `addr` if `flags` say so.
    pub fn map_at(&self, addr: VirtAddr, pages: u64, rights: Rights, flags: MapFlags) -> VirtAddr {
        let flags = flags | MapFlags::ANONYMOUS;
        let request = MapRequest { addr, len: pages * PAGE_SIZE, rights, flags, file: None };
        self.world.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room for a mapping")
    }

    /// Maps shared anonymous memory.
    pub fn map_shared(&self, pages: u64) -> VirtAddr {
        self.map(pages, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None)
    }

    /// Maps a whole file that was opened for reading and writing.
    pub fn map_file(&self, file: &FileHandle<I>, rights: Rights, flags: MapFlags) -> VirtAddr {
        self.try_map_file(file, (rights, Rights::RW), flags).expect("room for a mapping")
    }

    /// Maps a whole file with rights `rights`; the file was opened with rights `opened`.
    ///
    /// # Errors
    /// The [`MmError`] of `mmap`.
    pub fn try_map_file(
        &self,
        file: &FileHandle<I>,
        (rights, opened): (Rights, Rights),
        flags: MapFlags,
    ) -> Result<VirtAddr, MmError> {
        let file_mapping = Some(FileMapping { file, offset: 0, opened });
        let len = file.size().max(PAGE_SIZE);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights, flags, file: file_mapping };
        self.world.on(CPU, |mm| mm.mmap(&self.space, &request))
    }

    /// Maps a whole file at `addr`, over what is mapped there.
    pub fn map_over(&self, addr: VirtAddr, file: &FileHandle<I>, rights: Rights, flags: MapFlags) {
        let mapping = Some(FileMapping { file, offset: 0, opened: Rights::RW });
        let len = file.size().max(PAGE_SIZE);
        let request = MapRequest { addr, len, rights, flags: flags | MapFlags::FIXED, file: mapping };
        self.world.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room for a mapping");
    }

    /// Advises pages (`madvise`).
    pub fn advise(&self, va: VirtAddr, pages: u64, advice: Advice) {
        self.world.advise(CPU, &self.space, va, pages, advice);
    }
}

/// Operations of a CPU in a race, which owns its world and no process.
impl<I: Isa> TestWorld<I> {
    /// The word that an access of `cpu`, which runs `space`, reaches.
    ///
    /// # Panics
    /// If the program would get a signal.
    pub fn word(&self, cpu: CpuId, space: &Arc<Space<Sim<I>>>, va: VirtAddr, access: Access) -> &AtomicU64 {
        loop {
            self.lab.touch(cpu, space, va, access, 1).expect("allowed");
            // Another CPU may have unmapped the page since the fault.
            if let Some(word) = self.word_now(cpu, va, access) {
                return word;
            }
        }
    }

    /// The word that an access of `cpu` reaches without a fault; `None` if it would fault.
    ///
    /// No other CPU acts between the access and this function's return.
    pub fn word_now(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Option<&AtomicU64> {
        let at = self.lab.sim().access(cpu, va, access, 1).ok()?;
        Some(&self.lab.sim().ram()[(at.pfn.base().raw() / 8 + va.page_offset() / 8) as usize])
    }

    /// Stores a word on `cpu`, which runs `space`.
    pub fn store(&self, cpu: CpuId, space: &Arc<Space<Sim<I>>>, va: VirtAddr, value: u64) {
        self.word(cpu, space, va, Access::Write).store(value, Ordering::Relaxed);
    }

    /// Advises pages of a space (`madvise`) on `cpu`.
    ///
    /// # Panics
    /// If the call fails.
    pub fn advise(&self, cpu: CpuId, space: &Space<Sim<I>>, va: VirtAddr, pages: u64, advice: Advice) {
        self.lab.on(cpu, |mm| mm.madvise(space, va, pages * PAGE_SIZE, advice)).expect("madvise");
    }

    /// Stores words to seven pages of a space that look like the page tables of a freed space.
    ///
    /// The pages may have got the frames of the freed tables, whose root was `root`. A walk near
    /// `walked` that still uses such a table then returns to `root` and never ends.
    pub fn store_tables(
        &self,
        cpu: CpuId,
        space: &Arc<Space<Sim<I>>>,
        pages: VirtAddr,
        (root, walked): (Pfn, VirtAddr),
    ) {
        self.lab.run(cpu, space);
        let itself = I::table(TableEntry::own(root)).raw();
        for page in 1..8 {
            let levels = [Level::PMD, Level::PUD, Level::PGD];
            let slots = levels.map(|level| at(pages, page).add(8 * level.index_of(walked) as u64));
            slots.iter().for_each(|slot| self.store(cpu, space, *slot, itself));
        }
    }
}
