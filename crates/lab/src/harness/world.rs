//! What the tests of pages taken from user memory share: a machine under judgement, processes, and
//! a device.
//!
//! The device double keeps pages that were pinned for it and reads and writes them by their frames,
//! as hardware does: no page table and no TLB is between. [`Device::agrees`] is the promise of a
//! pin: what the mapping shows is what the device has.

use crate::Lab;
use pagewright_arch::Isa;
use pagewright_check::Testbench;
use pagewright_mm::file::{FileObject, FileOps, Kind};
use pagewright_mm::gup::{Contents, GupFlags, UserPages};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{FaultError, Knobs, MapFlags, MapRequest, Mm, MmError, Space};
use pagewright_model::{Census, SoftwareBits};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::snapshot::SnapshotRecord;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, PageRange, Pfn, Rights, VirtAddr};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

pub const CPU: CpuId = CpuId::new(0);
pub const OTHER: CpuId = CpuId::new(1);
pub const ANON: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);

/// A file whose pages begin with their number and 7.
pub struct Numbered;

impl FileOps for Numbered {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        put(0, &(index + 7).to_le_bytes());
        Ok(())
    }
}

pub type File<I> = Arc<FileObject<Sim<I>>>;

/// A machine under judgement with its memory manager.
pub struct World<I: Isa> {
    pub bench: Testbench<I>,
    pub lab: Lab<I>,
}

impl<I: Isa> World<I> {
    pub fn new(cpus: u16) -> Rc<Self> {
        Self::sized(cpus, 4 << 20)
    }

    /// A machine with so many bytes of memory.
    pub fn sized(cpus: u16, bytes: u64) -> Rc<Self> {
        let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        config.cpus = cpus;
        config.nodes.truncate(1);
        config.nodes[0].bytes = bytes;
        let bench = Testbench::new(config).expect("a possible machine");
        let lab = Lab::over(bench.sim().clone(), Knobs::default()).expect("room");
        Rc::new(Self { bench, lab })
    }

    pub fn on<T>(&self, cpu: CpuId, call: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        self.lab.on(cpu, call)
    }

    pub fn file(&self, pages: u64) -> File<I> {
        let kind = Kind::File(Box::new(Numbered));
        self.on(CPU, |mm| mm.add_file("/numbered", kind, pages * PAGE_SIZE)).expect("memory")
    }

    pub fn shmem(&self, pages: u64) -> File<I> {
        self.on(CPU, |mm| mm.add_file("/memfd:test (deleted)", Kind::Shmem, pages * PAGE_SIZE)).expect("memory")
    }

    /// The word at the beginning of a frame.
    pub fn peek(&self, pfn: Pfn) -> u64 {
        self.lab.sim().ram()[pfn.base().raw() as usize / 8].load(Ordering::Relaxed)
    }

    pub fn poke(&self, pfn: Pfn, value: u64) {
        self.lab.sim().ram()[pfn.base().raw() as usize / 8].store(value, Ordering::Relaxed);
    }

    /// Lets the oracle count (O4), and asserts that it has found nothing so far, and that what is
    /// pinned is what `devices` have.
    pub fn at_rest(&self, devices: &[&Device<I>]) {
        let mut census = Census::new(SoftwareBits::pagewright(I::KIND));
        let mut told: BTreeMap<Pfn, u64> = BTreeMap::new();
        self.on(CPU, |mm| {
            mm.snapshot(&mut |record| {
                if let SnapshotRecord::Pinned(pinned) = record {
                    told.insert(pinned.pfn, pinned.pins);
                }
                census.add(record);
            });
        });
        self.bench.at_rest(&census);
        let found = self.bench.findings();
        assert!(found.is_empty(), "{}", found[0]);
        let mut had: BTreeMap<Pfn, u64> = BTreeMap::new();
        for page in devices.iter().flat_map(|device| device.pages.iter()).filter(|page| page.is_pinned()) {
            *had.entry(page.pfn()).or_default() += 1;
        }
        assert_eq!(told, had, "what is pinned");
    }
}

/// A process.
pub struct Process<I: Isa> {
    pub world: Rc<World<I>>,
    pub space: Arc<Space<Sim<I>>>,
}

impl<I: Isa> Process<I> {
    pub fn new(world: &Rc<World<I>>) -> Self {
        let space = world.on(CPU, |mm| mm.new_space()).expect("memory for a space");
        Self { world: Rc::clone(world), space }
    }

    pub fn map(&self, pages: u64, rights: Rights, flags: MapFlags, file: Option<&File<I>>) -> VirtAddr {
        let file = file.map(|file| FileMapping { file, offset: 0, opened: Rights::RW });
        let request = MapRequest { addr: VirtAddr::ZERO, len: pages * PAGE_SIZE, rights, flags, file };
        self.world.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room")
    }

    pub fn anon(&self, pages: u64) -> VirtAddr {
        self.map(pages, Rights::RW, ANON, None)
    }

    pub fn touch(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Result<(), FaultError> {
        self.world.lab.run(cpu, &self.space);
        self.world.lab.touch(cpu, &self.space, va, access, 1)
    }

    /// The frame that an access on `cpu` reaches.
    pub fn frame(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Pfn {
        self.touch(cpu, va, access).expect("it can be had");
        self.world.lab.sim().access(cpu, va, access, 1).expect("just touched").pfn
    }

    pub fn read(&self, cpu: CpuId, va: VirtAddr) -> u64 {
        let pfn = self.frame(cpu, va, Access::Read);
        self.world.peek(pfn)
    }

    pub fn write(&self, cpu: CpuId, va: VirtAddr, value: u64) {
        let pfn = self.frame(cpu, va, Access::Write);
        self.world.poke(pfn, value);
    }

    pub fn fork(&self) -> Self {
        let space = self.world.on(CPU, |mm| mm.fork(&self.space)).expect("memory for a child");
        Self { world: Rc::clone(&self.world), space }
    }

    pub fn protect(&self, va: VirtAddr, pages: u64, rights: Rights) {
        self.world.on(CPU, |mm| mm.mprotect(&self.space, va, pages * PAGE_SIZE, rights)).expect("mapped");
    }

    pub fn unmap(&self, va: VirtAddr, pages: u64) {
        self.world.on(CPU, |mm| mm.munmap(&self.space, va, pages * PAGE_SIZE)).expect("a range");
    }

    /// Ends it; no CPU runs it any more.
    pub fn end(&self) {
        for cpu in self.world.bench.cpus().iter() {
            self.world.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.world.on(CPU, |mm| mm.end_space(&self.space));
    }

    /// Takes pages for a device.
    pub fn take(&self, cpu: CpuId, va: VirtAddr, pages: u64, how: How) -> Result<Device<I>, MmError> {
        let range = PageRange::from_len(va, pages * PAGE_SIZE)?;
        self.world.lab.run(cpu, &self.space);
        let taken = self.world.on(cpu, |mm| match how {
            How::Get(flags) => mm.get_user_pages(&self.space, range, flags),
            How::GetFast(flags) => mm.get_user_pages_fast(&self.space, range, flags),
            How::Pin(flags) => mm.pin_user_pages(&self.space, range, flags),
            How::PinFast(flags) => mm.pin_user_pages_fast(&self.space, range, flags),
        });
        Ok(Device { world: Rc::clone(&self.world), pages: taken? })
    }
}

/// By which call a device gets its pages.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Get(GupFlags),
    GetFast(GupFlags),
    Pin(GupFlags),
    PinFast(GupFlags),
}

/// Somebody who reaches pages by their frames.
pub struct Device<I: Isa> {
    world: Rc<World<I>>,
    pub pages: UserPages,
}

impl<I: Isa> Device<I> {
    pub fn pfn(&self, page: usize) -> Pfn {
        self.pages.iter().nth(page).expect("one of its pages").pfn()
    }

    pub fn read(&self, page: usize) -> u64 {
        self.world.peek(self.pfn(page))
    }

    pub fn write(&self, page: usize, value: u64) {
        self.world.poke(self.pfn(page), value);
    }

    /// INV-GUP-EXCLUSIVE: what `process` sees from `va` on is what the device has, both ways, after
    /// whatever happened.
    pub fn agrees(&self, process: &Process<I>, cpu: CpuId, va: VirtAddr, mut value: u64) {
        for page in 0..self.pages.len() {
            let at = va.add(page as u64 * PAGE_SIZE);
            assert_eq!(process.read(cpu, at), self.read(page), "page {page} before anything is stored");
            process.write(cpu, at, value);
            assert_eq!(self.read(page), value, "the device sees what is stored to page {page}");
            self.write(page, value + 1);
            assert_eq!(process.read(cpu, at), value + 1, "the mapping shows what the device stores to page {page}");
            value += 2;
        }
    }

    pub fn release(self, contents: Contents) {
        self.release_on(CPU, contents);
    }

    pub fn release_on(self, cpu: CpuId, contents: Contents) {
        self.world.on(cpu, |mm| mm.release_user_pages(self.pages, contents));
    }
}
