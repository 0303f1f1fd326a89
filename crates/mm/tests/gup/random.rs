//! Random programs of stores, calls, forks and pins without races, against a model without frames.
//!
//! The model consists of cells. Each page of a process shows a cell, and fork gives the child new
//! cells. A pin is a second name of the cell that the page shows when it is pinned, and keeps that
//! cell when the mapping is removed. So a store through the one is read through the other.
//!
//! Not covered: plain references, which do not promise this.

use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestDevice, TestProcess, TestWorld};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::{ClearRefs, RemapFlags, RemapRequest};
use pagewright_mm::{MapFlags, MapRequest};
use pagewright_types::{Counter, CpuId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::rc::Rc;

const PAGES: u64 = 6;
const BASE: VirtAddr = VirtAddr::new(1 << 32);
const STEPS: u32 = 400;
const SEEDS: u64 = 40;

struct Running<I: Isa> {
    process: TestProcess<I>,
    /// The cell that each page shows; `None` where nothing is mapped.
    pages: Vec<Option<usize>>,
}

/// Pages that a device has pinned, with the cell of each.
struct Pinned<I: Isa> {
    device: TestDevice<I>,
    cells: Vec<usize>,
}

struct Program<I: Isa> {
    world: Rc<TestWorld<I>>,
    random: Pcg64,
    cells: Vec<u64>,
    processes: Vec<Running<I>>,
    pinned: Vec<Pinned<I>>,
    values: u64,
}

fn page(index: u64) -> VirtAddr {
    BASE.add(index * PAGE_SIZE)
}

impl<I: Isa> Program<I> {
    fn new(seed: u64) -> Self {
        let world = TestWorld::new(2);
        let process = TestProcess::new(&world);
        let pages = vec![None; PAGES as usize];
        let random = Pcg64::seed_from_u64(seed);
        let processes = vec![Running { process, pages }];
        let mut program = Self { world, random, cells: Vec::new(), processes, pinned: Vec::new(), values: 0 };
        program.map(0, 0, PAGES);
        program
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn fresh(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    fn cell(&mut self, value: u64) -> usize {
        self.cells.push(value);
        self.cells.len() - 1
    }

    /// Maps zeroes in place of pages `first..end`.
    fn map(&mut self, of: usize, first: u64, end: u64) {
        let flags = ANON | MapFlags::FIXED;
        let len = (end - first) * PAGE_SIZE;
        let request = MapRequest { addr: page(first), len, rights: Rights::RW, flags, file: None };
        let space = &self.processes[of].process.space;
        self.world.on(CPU, |mm| mm.mmap(space, &request)).expect("room");
        self.forget(of, first, end, true);
    }

    /// Gives pages `first..end` new cells with zeroes, or none if they are no longer `mapped`.
    fn forget(&mut self, of: usize, first: u64, end: u64, mapped: bool) {
        for index in first..end {
            let keep = mapped || self.processes[of].pages[index as usize].is_some();
            let cell = keep.then(|| self.cell(0));
            self.processes[of].pages[index as usize] = if mapped { cell } else { None };
        }
    }

    fn access(&mut self, of: usize, cpu: CpuId, index: u64, write: bool) {
        let Some(cell) = self.processes[of].pages[index as usize] else { return };
        let value = self.fresh();
        let process = &self.processes[of].process;
        if write {
            process.write(cpu, page(index), value);
            self.cells[cell] = value;
        } else {
            assert_eq!(process.read(cpu, page(index)), self.cells[cell], "page {index} of process {of}");
        }
    }

    /// Moves a page in place of another; its pins keep its cell.
    fn move_page(&mut self, of: usize, from: u64, to: u64) {
        let Some(cell) = self.processes[of].pages[from as usize] else { return };
        if from == to {
            return;
        }
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let (addr, new_addr) = (page(from), page(to));
        let request = RemapRequest { addr, old_len: PAGE_SIZE, new_len: PAGE_SIZE, flags, new_addr };
        let space = &self.processes[of].process.space;
        assert_eq!(self.world.on(CPU, |mm| mm.mremap(space, &request)), Ok(new_addr));
        self.processes[of].pages[from as usize] = None;
        self.processes[of].pages[to as usize] = Some(cell);
    }

    fn fork(&mut self, of: usize) {
        let process = self.processes[of].process.fork();
        let shown = self.processes[of].pages.clone();
        let pages = shown.into_iter().map(|cell| cell.map(|cell| self.cell(self.cells[cell]))).collect();
        self.processes.push(Running { process, pages });
    }

    fn pin(&mut self, of: usize, cpu: CpuId, index: u64) {
        let flags = [GupFlags::empty(), GupFlags::WRITE, GupFlags::LONGTERM, GupFlags::WRITE | GupFlags::LONGTERM];
        let flags = flags[self.below(4) as usize];
        let call = if self.below(2) == 0 { GupCall::Pin(flags) } else { GupCall::PinFast(flags) };
        let pages = 1 + self.below(PAGES - index);
        let running = &self.processes[of];
        let cells: Vec<usize> =
            running.pages[index as usize..][..pages as usize].iter().map_while(|cell| *cell).collect();
        match running.process.take(cpu, page(index), pages, call) {
            // A short pin of the zero page does not keep it: as in Linux, a store replaces the
            // page.
            Ok(device) if device.pages.iter().any(|page| !page.is_pinned()) => device.release(MakeDirty::No),
            Ok(device) => {
                assert_eq!(device.pages.len(), cells.len());
                self.pinned.push(Pinned { device, cells });
            }
            Err(error) => assert!(cells.is_empty(), "{error}"),
        }
    }

    fn device_acts(&mut self, of: usize, write: bool) {
        for index in 0..self.pinned[of].cells.len() {
            let (value, cell) = (self.fresh(), self.pinned[of].cells[index]);
            let device = &self.pinned[of].device;
            assert_eq!(device.read(index), self.cells[cell], "page {index} of device {of}");
            if write {
                device.write(index, value);
                self.cells[cell] = value;
            }
        }
    }

    fn step(&mut self) {
        let of = self.below(self.processes.len() as u64) as usize;
        let cpu = [CPU, OTHER][self.below(2) as usize];
        let (first, index) = (self.below(PAGES), self.below(PAGES));
        let end = first + 1 + self.below(PAGES - first);
        let range = PageRange::new(page(first), page(end));
        let device = (!self.pinned.is_empty()).then(|| self.below(self.pinned.len() as u64) as usize);
        let what = self.below(40);
        let space = &self.processes[of].process.space;
        match what {
            0..=11 => self.access(of, cpu, index, what < 7),
            12 | 13 if self.processes.len() < 4 => self.fork(of),
            14 if self.processes.len() > 1 => self.processes.swap_remove(of).process.end(),
            15 => {
                // Removes the right to write and grants it again, as a garbage collector does.
                let protect = |rights| self.world.on(cpu, |mm| mm.mprotect(space, page(first), range.len(), rights));
                let whole = protect(Rights::READ).is_ok();
                assert_eq!(protect(Rights::RW).is_ok(), whole);
            }
            16 => self.world.on(cpu, |mm| mm.clear_refs(space, ClearRefs::SoftDirty)),
            17 => {
                self.world.on(cpu, |mm| mm.munmap(space, page(first), range.len())).expect("a range");
                self.forget(of, first, end, false);
            }
            18 | 19 => self.map(of, first, end),
            27 | 28 => self.move_page(of, first, index),
            20..=25 if self.pinned.len() < 5 => self.pin(of, cpu, index),
            26 => {
                if let Some(device) = device {
                    self.pinned.swap_remove(device).device.release(MakeDirty::Yes);
                }
            }
            _ => {
                if let Some(device) = device {
                    self.device_acts(device, what.is_multiple_of(2));
                }
            }
        }
    }

    fn finish(mut self) -> [u64; 3] {
        for of in 0..self.processes.len() {
            (0..PAGES).for_each(|index| self.access(of, OTHER, index, false));
        }
        let devices: Vec<&TestDevice<I>> = self.pinned.iter().map(|pinned| &pinned.device).collect();
        self.world.at_rest(&devices);
        self.processes.iter().for_each(|running| running.process.end());
        (0..self.pinned.len()).for_each(|of| self.device_acts(of, true));
        self.pinned.drain(..).for_each(|pinned| pinned.device.release(MakeDirty::No));
        self.world.at_rest(&[]);
        let count = |counter| self.world.lab.mm().counter(counter);
        assert_eq!(count(Counter::NrFollPinAcquired), count(Counter::NrFollPinReleased));
        [Counter::PwUnshare, Counter::PwGupFast, Counter::PwGupFastDropped].map(count)
    }
}

/// Runs all seeds; unshare faults, lockless walks and dropped walks must have occurred.
pub(crate) fn run<I: Isa>() {
    let mut seen = [0; 3];
    for seed in 0..SEEDS {
        let mut program = Program::<I>::new(seed);
        (0..STEPS).for_each(|_| program.step());
        for (seen, counted) in seen.iter_mut().zip(program.finish()) {
            *seen += counted;
        }
    }
    assert!(seen.iter().all(|seen| *seen > 10), "unshare faults, lockless walks, dropped walks: {seen:?}");
}
