//! A machine and processes on it, for tests that go call by call.
//!
//! - `process` – what processes do, call by call, and how races of that are hunted.

#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod process;

use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_mm::file::{FileObject, FileOps, Kind};
use pagewright_mm::space::FileMapping;
use pagewright_mm::swap::{Backing, SwapOps};
use pagewright_mm::{Knobs, MapFlags, MapRequest, Mm, MmError, Space};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) const CPU: CpuId = CpuId::new(0);
pub(crate) const OTHER: CpuId = CpuId::new(1);

/// What a device was told.
#[derive(Default)]
pub(crate) struct Device {
    /// First word of each page that was written, in turn.
    pub(crate) written: Mutex<Vec<(u64, u64)>>,
    /// The page that can't be written.
    pub(crate) broken: Mutex<Option<u64>>,
    /// Whether others own the files on it.
    pub(crate) foreign: bool,
}

/// A file whose bytes are its page numbers.
pub(crate) struct Pages(pub(crate) std::sync::Arc<Device>);

impl FileOps for Pages {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        put(0, &index.to_le_bytes());
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        if *self.0.broken.lock().expect("unpoisoned") == Some(index) {
            return Err(Errno::ENOSPC);
        }
        let mut word = [0; 8];
        get(0, &mut word);
        self.0.written.lock().expect("unpoisoned").push((index, u64::from_le_bytes(word)));
        Ok(())
    }

    fn could_be_written(&self) -> bool {
        !self.0.foreign
    }
}

/// A swap device that keeps its pages as they are.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    pages: std::sync::Arc<Mutex<BTreeMap<u32, Vec<u8>>>>,
    /// Whether nothing can be written or read.
    pub(crate) broken: std::sync::Arc<AtomicBool>,
}

impl Slots {
    /// Slots that hold something.
    pub(crate) fn used(&self) -> usize {
        self.pages.lock().expect("unpoisoned").len()
    }
}

impl SwapOps for Slots {
    fn write_page(&self, slot: u32, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        // Not under the lock: other CPUs go on meanwhile.
        let mut page = vec![0; PAGE_SIZE as usize];
        get(0, &mut page);
        self.pages.lock().expect("unpoisoned").insert(slot, page);
        Ok(())
    }

    fn read_page(&self, slot: u32, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let page = self.pages.lock().expect("unpoisoned").get(&slot).cloned().ok_or(Errno::EIO)?;
        put(0, &page);
        Ok(())
    }

    fn discard(&self, slot: u32) {
        self.pages.lock().expect("unpoisoned").remove(&slot);
    }
}

pub(crate) type File<I> = Arc<FileObject<Sim<I>>>;

pub(crate) struct World<I: Isa> {
    pub(crate) lab: Lab<I>,
}

impl<I: Isa> World<I> {
    pub(crate) fn new() -> Self {
        let mut config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        config.cpus = 3;
        config.nodes.truncate(1);
        config.nodes[0].bytes = 64 << 20;
        Self { lab: Lab::new(config, Knobs::default()).expect("a possible machine") }
    }

    pub(crate) fn on<T>(&self, operation: impl FnOnce(&Mm<Sim<I>>) -> T) -> T {
        self.lab.on(CPU, operation)
    }

    /// Swaps to a device of `slots` slots.
    pub(crate) fn swap_to(&self, slots: u32) -> Slots {
        let device = Slots::default();
        self.on(|mm| mm.swap_on(Backing::Device(Box::new(device.clone())), slots)).expect("memory for the slots");
        device
    }

    pub(crate) fn file_on(&self, device: &std::sync::Arc<Device>, pages: u64) -> File<I> {
        let kind = Kind::File(Box::new(Pages(device.clone())));
        self.on(|mm| mm.add_file("/data", kind, pages * PAGE_SIZE)).expect("memory")
    }
}

/// The word that an access by `cpu`, which runs the space, reaches.
fn word<'w, I: Isa>(
    world: &'w World<I>,
    cpu: CpuId,
    space: &Arc<Space<Sim<I>>>,
    va: VirtAddr,
    access: Access,
) -> &'w AtomicU64 {
    loop {
        world.lab.touch(cpu, space, va, access, 1).expect("allowed");
        // Another CPU may have taken the page away again.
        if let Ok(at) = world.lab.sim().access(cpu, va, access, 1) {
            return &world.lab.sim().ram()[(at.pfn.base().raw() / 8 + va.page_offset() / 8) as usize];
        }
    }
}

pub(crate) fn store<I: Isa>(world: &World<I>, cpu: CpuId, space: &Arc<Space<Sim<I>>>, va: VirtAddr, value: u64) {
    word(world, cpu, space, va, Access::Write).store(value, Ordering::Relaxed);
}

pub(crate) struct Process<'a, I: Isa> {
    pub(crate) world: &'a World<I>,
    pub(crate) space: Arc<Space<Sim<I>>>,
}

impl<'a, I: Isa> Process<'a, I> {
    pub(crate) fn new(world: &'a World<I>) -> Self {
        Self { world, space: world.on(|mm| mm.new_space()).expect("memory for a space") }
    }

    pub(crate) fn try_map_file(
        &self,
        file: &File<I>,
        (rights, opened): (Rights, Rights),
        flags: MapFlags,
    ) -> Result<VirtAddr, MmError> {
        let file_mapping = Some(FileMapping { file, offset: 0, opened });
        let len = file.size().max(PAGE_SIZE);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights, flags, file: file_mapping };
        self.world.on(|mm| mm.mmap(&self.space, &request))
    }

    pub(crate) fn map_file(&self, file: &File<I>, rights: Rights, flags: MapFlags) -> VirtAddr {
        self.try_map_file(file, (rights, Rights::RW), flags).expect("room for a mapping")
    }

    pub(crate) fn write(&self, va: VirtAddr, value: u64) {
        self.world.lab.run(CPU, &self.space);
        store(self.world, CPU, &self.space, va, value);
    }

    pub(crate) fn read(&self, va: VirtAddr) -> u64 {
        self.world.lab.run(CPU, &self.space);
        word(self.world, CPU, &self.space, va, Access::Read).load(Ordering::Relaxed)
    }
}
