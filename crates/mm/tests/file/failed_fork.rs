//! A fork that fails leaves every file with the mappings that it had.
//!
//! INV-MM-COMMIT, INV-RMAP-SUPERSET, INV-SEAL.
//!
//! A parent maps several files, and other processes map one of them too, so many that the tree of
//! its mappers has no room for one more. Each allocation of the fork fails in turn.
//!
//! Not covered: the spaces themselves (`refused/every_allocation.rs`).

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, FileHandle, TestProcess, TestWorld};
use pagewright_mm::file::{MemfdFlags, Seals};
use pagewright_mm::{MapFlags, MmError};
use pagewright_sim::AllocationFailure;
use pagewright_types::{PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

/// The files that the parent maps.
const FILES: usize = 3;
/// Other processes, of which some map one of the files.
const OTHERS: usize = 64;
/// Mappings of a file by the parent; only the last one is private.
const MAPPINGS: [(MapFlags, Rights); 3] =
    [(MapFlags::SHARED, Rights::RW), (MapFlags::SHARED, Rights::READ), (MapFlags::PRIVATE, Rights::RW)];

/// A parent with its files, and other processes that map one of them.
struct Household<I: Isa> {
    world: Rc<TestWorld<I>>,
    files: Vec<FileHandle<I>>,
    parent: TestProcess<I>,
    others: Vec<TestProcess<I>>,
    before: Vec<u64>,
}

impl<I: Isa> Household<I> {
    fn new(crowded: usize, mappers: usize) -> Self {
        let world = TestWorld::<I>::sized(1, 8 << 20);
        let before = world.levels();
        let memfd = |_| {
            world.on(CPU, |mm| {
                let file = mm.memfd_create("joined", MemfdFlags::ALLOW_SEALING).expect("memory");
                mm.truncate(&file, PAGE_SIZE).expect("not sealed");
                file
            })
        };
        let files: Vec<_> = (0..FILES).map(memfd).collect();
        let parent = TestProcess::new(&world);
        for file in &files {
            for (kind, rights) in MAPPINGS {
                let base = parent.map_file(file, rights, kind);
                if rights == Rights::RW {
                    parent.write(CPU, base, 1);
                }
            }
        }
        let base = parent.map_at(VirtAddr::new(1 << 40), 1, Rights::RW, ANON | MapFlags::FIXED);
        parent.write(CPU, base, 1);
        let others: Vec<_> = (0..OTHERS).map(|_| TestProcess::new(&world)).collect();
        for other in &others[..mappers] {
            other.map_file(&files[crowded], Rights::RW, MapFlags::SHARED);
        }
        Self { world, files, parent, others, before }
    }

    /// Asserts that each file counts the shared mappings of these processes that may be writable.
    fn assert_counted(&self, children: &[TestProcess<I>], what: &str) {
        let processes: Vec<_> = [&self.parent].into_iter().chain(&self.others).chain(children).collect();
        for (index, file) in self.files.iter().enumerate() {
            let mut mappings = 0;
            for process in &processes {
                let map = process.space.map().read();
                let shared = map.iter().filter(|(_, vma)| vma.is_shared() && vma.max_rights().contains(Rights::WRITE));
                mappings += shared.filter(|(_, vma)| vma.file().is_some_and(|of| of.id() == file.id())).count() as u64;
            }
            let sealed = self.world.on(CPU, |mm| mm.add_seals(file, Rights::RW, Seals::WRITE));
            assert_eq!(sealed, Err(MmError::WritablyMapped { mappings }), "{what}: file {index}");
        }
        self.world.recount(&processes);
    }

    /// Ends everything; asserts that no file is mapped any more and nothing is left of it.
    fn end(self, children: &[TestProcess<I>], what: &str) {
        [&self.parent].into_iter().chain(&self.others).chain(children).for_each(TestProcess::end);
        for file in &self.files {
            let sealed = self.world.on(CPU, |mm| mm.add_seals(file, Rights::RW, Seals::WRITE));
            assert_eq!(sealed, Ok(()), "{what}: nothing maps the file");
            self.world.on(CPU, |mm| mm.close_file(file));
        }
        let mut known = 0;
        self.world.on(CPU, |mm| mm.for_each_file(|_| known += 1));
        assert_eq!(known, 0, "{what}: a file that is neither open nor mapped is known");
        self.world.at_rest(&[]);
        assert_eq!(self.world.levels(), self.before, "{what}: something is left");
    }
}

/// Makes the allocations of a fork fail from number `depth` on; returns whether any was refused.
fn fork_fails<I: Isa>(crowded: usize, mappers: usize, depth: u64, failure: AllocationFailure) -> bool {
    let what = format!("{mappers} mappers of file {crowded}, allocation {depth} and {failure:?}");
    let household = Household::<I>::new(crowded, mappers);
    let sim = household.world.lab.sim();
    let refused = sim.refused_allocations();
    sim.fail_allocation_after(depth, failure);
    let forked = household.world.on(CPU, |mm| mm.fork(&household.parent.space));
    sim.permit_allocations();
    let was_refused = sim.refused_allocations() > refused;
    let child = forked.map(|space| TestProcess { world: Rc::clone(&household.world), space });
    assert!(was_refused || child.is_ok(), "{what}: nothing was refused");
    let children: Vec<_> = child.into_iter().collect();
    household.assert_counted(&children, &what);
    household.end(&children, &what);
    was_refused
}

/// The allocations of a fork.
fn allocations<I: Isa>(crowded: usize, mappers: usize, failure: AllocationFailure) -> u64 {
    (0..).find(|depth| !fork_fails::<I>(crowded, mappers, *depth, failure)).expect("a fork ends")
}

/// INV-MM-COMMIT, INV-RMAP-SUPERSET, INV-SEAL.
fn a_failed_fork_leaves_no_file_mapped<I: Isa>() {
    let usual = allocations::<I>(0, 0, AllocationFailure::All);
    // With so many mappers the child, one mapper more, needs an allocation more.
    let full = (1..=OTHERS).find(|mappers| fork_fails::<I>(0, *mappers, usual, AllocationFailure::All));
    let full = full.expect("a tree of mappers without room");
    for crowded in 0..FILES {
        for failure in [AllocationFailure::One, AllocationFailure::All] {
            assert_eq!(allocations::<I>(crowded, full, failure), usual + 1, "file {crowded}, {failure:?}");
        }
    }
}

on_both! { a_failed_fork_leaves_no_file_mapped }

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::FailedForkKeepsFiles, a_failed_fork_leaves_no_file_mapped::<pagewright_arch::X86_64>);
    assert_found_by(PlantedBug::FailedForkKeepsFiles, a_failed_fork_leaves_no_file_mapped::<pagewright_arch::Aarch64>);
}
