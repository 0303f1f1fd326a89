//! The peak of a resident set of which other spaces edit a part (`VmHWM`, INV-MM-PEAK).

use super::{PAGES, PLACES, parent};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, FileHandle, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, MapFlags};
use pagewright_types::{Counter, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    a_peak_is_at_least_each_size_that_was_read,
    a_peak_counts_what_a_process_leaves_without_a_read,
    a_peak_that_is_reset_is_the_present_size,
}

/// Pages of the file, below the first of the shared tables.
const FILE_PAGES: u64 = 64;

/// `VmRSS` and `VmHWM`, in pages.
fn size_and_peak<I: Isa>(process: &TestProcess<I>) -> (u64, u64) {
    let mut status = String::new();
    process.world.on(CPU, |mm| mm.show_status(&process.space, &mut status)).expect("a string takes everything");
    let pages = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of status");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024 / PAGE_SIZE
    };
    (pages("VmRSS:"), pages("VmHWM:"))
}

/// A process and its child, with a file below a table that they share.
struct Pair<I: Isa> {
    world: Rc<TestWorld<I>>,
    processes: [TestProcess<I>; 2],
    base: VirtAddr,
    file: FileHandle<I>,
    /// The greatest size of each that was read.
    greatest: [u64; 2],
}

impl<I: Isa> Pair<I> {
    fn new() -> Self {
        let (world, process, base) = parent::<I>(2);
        let file = world.file(FILE_PAGES);
        process.map_over(at(base, 100), &file, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
        let child = process.fork();
        Self { world, processes: [process, child], base, file, greatest: [0; 2] }
    }

    /// Reads the file, which maps its pages for both.
    fn read_file(&self, process: usize) {
        (100..100 + FILE_PAGES).for_each(|page| _ = self.processes[process].read(OTHER, at(self.base, page)));
        assert_eq!(self.world.count(Counter::PwTableBroken), 0, "for all sharers");
    }

    /// Unmaps the pages of the file from the tables of both.
    fn truncate(&self, pages: u64) {
        self.world.on(CPU, |mm| mm.truncate(&self.file, pages * PAGE_SIZE)).expect("no seals");
    }

    /// Asserts what each size is, and that no peak is below a size that was read.
    #[track_caller]
    fn look(&mut self, sizes: [u64; 2]) {
        for (index, process) in self.processes.iter().enumerate() {
            let (size, peak) = size_and_peak(process);
            self.greatest[index] = self.greatest[index].max(size);
            assert_eq!(size, sizes[index], "process {index}");
            assert!(peak >= self.greatest[index], "process {index}: {peak} below {}", self.greatest[index]);
        }
    }

    fn end(self) {
        let all = self.processes.each_ref();
        self.world.recount(&all);
        self.world.on(CPU, |mm| mm.forget_file(&self.file));
        TestProcess::end_all_at_rest(&all);
    }
}

/// While a sibling's edits change the shared part, and the process its own.
fn a_peak_is_at_least_each_size_that_was_read<I: Isa>() {
    let mut pair = Pair::<I>::new();
    let base = pair.base;
    pair.look([3, 3]);
    pair.read_file(1);
    pair.look([67, 67]);
    pair.truncate(0);
    pair.look([3, 3]);
    pair.truncate(FILE_PAGES);
    pair.read_file(0);
    pair.look([67, 67]);
    // A part of its own falls, while the shared part is as great as before.
    (0..40).for_each(|page| pair.processes[0].write(CPU, at(base, PLACES[1] + page), page));
    pair.look([106, 67]);
    pair.processes[0].advise(at(base, PLACES[1]), 40, Advice::DontNeed);
    pair.look([66, 67]);
    // One leaves the table, and the other breaks it or takes it back.
    pair.processes[0].unmap(base, 512);
    pair.look([1, 67]);
    pair.processes[1].write(CPU, base, 5);
    pair.look([1, 67]);
    pair.processes[1].advise(at(base, 100), FILE_PAGES, Advice::DontNeed);
    pair.look([1, 3]);
    pair.end();
}

/// What a child gets by a fork is part of its peak, as in Linux.
fn a_peak_counts_what_a_process_leaves_without_a_read<I: Isa>() {
    let pair = Pair::<I>::new();
    for process in &pair.processes {
        process.unmap(pair.base, PAGES);
        assert_eq!(size_and_peak(process), (0, 3));
    }
    pair.end();
}

/// `clear_refs`, when no size was read since a sibling's edit.
fn a_peak_that_is_reset_is_the_present_size<I: Isa>() {
    let pair = Pair::<I>::new();
    pair.read_file(1);
    assert_eq!(pair.processes.each_ref().map(size_and_peak), [(67, 67); 2]);
    pair.truncate(0);
    for process in &pair.processes {
        pair.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::Peak)).expect("no memory is needed");
        assert_eq!(size_and_peak(process), (3, 3));
    }
    pair.end();
}
