//! What the tests here do with a machine and its processes beside loads and stores.

use crate::support::{File, Process, World};
use pagewright_arch::Isa;
use pagewright_lab::harness::recount;
use pagewright_mm::counters::Gauge;
use pagewright_mm::space::VmFlags;
use pagewright_mm::{FaultError, MmError};
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

impl<I: Isa> World<I> {
    /// A file on a device that nobody looks at.
    pub(crate) fn file(&self, pages: u64) -> File<I> {
        self.file_on(&std::sync::Arc::default(), pages)
    }

    /// Asserts that every count is what the tables of these processes say; there are no others.
    pub(crate) fn recount(&self, processes: &[&Process<'_, I>]) {
        let spaces: Vec<_> = processes.iter().map(|process| process.space.clone()).collect();
        self.on(|mm| recount::check(mm, &spaces));
        if spaces.iter().all(|space| space.map().read().totals().locked == 0) {
            spaces.iter().for_each(|space| recount::check_joined(space));
        }
    }
}

/// Everything that is counted in pages.
pub(crate) fn levels<I: Isa>(world: &World<I>) -> Vec<u64> {
    world.on(|mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).chain([mm.committed()]).collect())
}

pub(crate) use crate::support::process::at as page;

impl<I: Isa> Process<'_, I> {
    pub(crate) fn unmap(&self, at: VirtAddr, pages: u64) {
        self.world.on(|mm| mm.munmap(&self.space, at, pages * PAGE_SIZE)).expect("not sealed");
    }

    pub(crate) fn protect(&self, at: VirtAddr, pages: u64, rights: Rights) {
        self.world.on(|mm| mm.mprotect(&self.space, at, pages * PAGE_SIZE, rights)).expect("mapped");
    }

    pub(crate) fn touch(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Result<(), FaultError> {
        self.world.lab.run(cpu, &self.space);
        self.world.lab.touch(cpu, &self.space, va, access, 1)
    }

    pub(crate) fn mappings(&self) -> usize {
        self.space.map().read().len()
    }

    pub(crate) fn flags(&self, va: VirtAddr) -> VmFlags {
        self.space.map().read().find(va).expect("mapped").1.flags()
    }

    pub(crate) fn mincore(&self, at: VirtAddr, pages: u64) -> Result<Vec<u8>, Errno> {
        let mut vec = vec![9; pages as usize];
        let answer = self.world.on(|mm| mm.mincore(&self.space, at, pages * PAGE_SIZE, &mut vec));
        answer.map(|()| vec).map_err(MmError::errno)
    }

    /// What `smaps` says of the process.
    pub(crate) fn picture(&self) -> String {
        let mut text = String::new();
        self.world.on(|mm| mm.show_smaps(&self.space, &mut text)).expect("a string takes everything");
        text
    }

    /// A figure of `smaps_rollup`, in kB.
    pub(crate) fn field(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.world.on(|mm| mm.show_smaps_rollup(&self.space, &mut text)).expect("a string takes everything");
        let line = text.lines().find(|line| line.starts_with(name)).expect("a known field");
        line.split_whitespace().nth(1).and_then(|figure| figure.parse().ok()).expect("a figure")
    }
}
