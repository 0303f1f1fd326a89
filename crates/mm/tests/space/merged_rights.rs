//! Neighbours that were mapped with different greatest rights (`VM_MAY*`).
//!
//! Whatever call makes them alike otherwise, each page keeps its own (INV-SEAL, INV-MM-VMAS).
//!
//! Every pair of ways to map a file, in both orders, meets every call after which neighbours merge.
//! Then each page is asked for the right to write, and the file is sealed.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{CPU, FileHandle, TestProcess, TestWorld};
use pagewright_mm::file::{MemfdFlags, Seals};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest, MmError, RemapFlags, RemapRequest};
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};
use std::rc::Rc;

/// Where the pages are mapped; page N of the file is N pages further.
const BASE: u64 = 0x10_0000_0000;
/// Pages of each of the two mappings.
const PAGES: u64 = 3;

fn page(index: u64) -> VirtAddr {
    VirtAddr::new(BASE + index * PAGE_SIZE)
}

/// How a mapping is made; all of them may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Shared, through a descriptor that may write.
    Shared,
    /// Shared, through a descriptor that may only read.
    SharedReadOnly,
    /// Shared, after `F_SEAL_FUTURE_WRITE`.
    SharedSealed,
    Private,
}

impl Way {
    const ALL: [Self; 4] = [Self::Shared, Self::SharedReadOnly, Self::SharedSealed, Self::Private];

    /// Whether `mprotect` may make the mapping writable.
    fn may_write(self) -> bool {
        matches!(self, Self::Shared | Self::Private)
    }
}

/// A call after which neighbours may merge.
#[derive(Clone, Copy, Debug)]
enum Joining {
    /// None but the second `mmap`.
    Map,
    /// The neighbours get the same rights again, one after the other.
    Protect,
    /// Both lose advice that only one had.
    Advise,
    Lock,
    /// The page between them is unmapped, and mapped again as one of them is.
    Refill,
    /// The second is moved away and back.
    Move,
    Fork,
}

impl Joining {
    const ALL: [Self; 7] = [Self::Map, Self::Protect, Self::Advise, Self::Lock, Self::Refill, Self::Move, Self::Fork];
}

struct Pair<I: Isa> {
    world: Rc<TestWorld<I>>,
    process: TestProcess<I>,
    file: FileHandle<I>,
    /// How each page was mapped.
    pages: Vec<Way>,
}

impl<I: Isa> Pair<I> {
    /// Maps two ways side by side, those before the seal first.
    fn new(ways: [Way; 2]) -> Self {
        let world = TestWorld::new(1);
        let file = world.on(CPU, |mm| mm.memfd_create("merged", MemfdFlags::ALLOW_SEALING)).expect("memory");
        world.on(CPU, |mm| mm.truncate(&file, 2 * PAGES * PAGE_SIZE)).expect("not sealed");
        let process = TestProcess::new(&world);
        let pages = ways.iter().flat_map(|way| [*way; PAGES as usize]).collect();
        let pair = Self { world, process, file, pages };
        let sealed = |way: &Way| *way == Way::SharedSealed;
        for (index, way) in (0..).zip(&ways).filter(|(_, way)| !sealed(way)) {
            pair.map(index * PAGES, PAGES, *way);
        }
        if ways.iter().any(sealed) {
            pair.seal(Seals::FUTURE_WRITE).expect("it has no seals");
        }
        for (index, way) in (0..).zip(&ways).filter(|(_, way)| sealed(way)) {
            pair.map(index * PAGES, PAGES, *way);
        }
        pair
    }

    fn seal(&self, seals: Seals) -> Result<(), MmError> {
        self.world.on(CPU, |mm| mm.add_seals(&self.file, Rights::RW, seals))
    }

    fn map(&self, first: u64, pages: u64, way: Way) {
        let opened = if way == Way::SharedReadOnly { Rights::READ } else { Rights::RW };
        let kind = if way == Way::Private { MapFlags::PRIVATE } else { MapFlags::SHARED };
        let file = Some(FileMapping { file: &self.file, offset: first * PAGE_SIZE, opened });
        let (len, flags) = (pages * PAGE_SIZE, kind | MapFlags::FIXED);
        let request = MapRequest { addr: page(first), len, rights: Rights::READ, flags, file };
        self.world.on(CPU, |mm| mm.mmap(&self.process.space, &request)).expect("room");
    }

    fn remap(&self, from: VirtAddr, to: VirtAddr, pages: u64) {
        let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
        let (old_len, new_len) = (pages * PAGE_SIZE, pages * PAGE_SIZE);
        let request = RemapRequest { addr: from, old_len, new_len, flags, new_addr: to };
        self.world.on(CPU, |mm| mm.mremap(&self.process.space, &request)).expect("room");
    }

    fn join(&mut self, joining: Joining) -> Option<TestProcess<I>> {
        let (process, all) = (&self.process, 2 * PAGES);
        match joining {
            Joining::Map => {}
            Joining::Protect => {
                process.protect(page(0), PAGES, Rights::RX);
                process.protect(page(PAGES), PAGES, Rights::RX);
                process.protect(page(0), all, Rights::READ);
            }
            Joining::Advise => {
                process.advise(page(PAGES - 1), 2, Advice::Random);
                process.advise(page(0), all, Advice::Normal);
            }
            Joining::Lock => {
                let space = &process.space;
                self.world.on(CPU, |mm| mm.mlock(space, page(PAGES), PAGE_SIZE)).expect("within the limit");
                self.world.on(CPU, |mm| mm.munlock(space, page(0), all * PAGE_SIZE)).expect("mapped");
            }
            Joining::Refill => {
                let way = self.pages[0];
                process.unmap(page(PAGES), 1);
                // Mapped through the same descriptor now, the page may have fewer rights than its
                // neighbour that was mapped before the seal.
                self.map(PAGES, 1, way);
                let sealed = self.pages.contains(&Way::SharedSealed) && way == Way::Shared;
                self.pages[PAGES as usize] = if sealed { Way::SharedSealed } else { way };
            }
            Joining::Move => {
                self.remap(page(PAGES), page(4 * PAGES), PAGES);
                self.remap(page(4 * PAGES), page(PAGES), PAGES);
            }
            Joining::Fork => return Some(process.fork()),
        }
        None
    }
}

/// Whether each page may become writable exactly if it was mapped so, one by one and together.
fn assert_own_rights<I: Isa>(process: &TestProcess<I>, ways: &[Way], what: &str) {
    let protect = |first: u64, pages: u64, rights| {
        process.world.on(CPU, |mm| mm.mprotect(&process.space, page(first), pages * PAGE_SIZE, rights))
    };
    let all = ways.len() as u64;
    assert_eq!(protect(0, all, Rights::RW).is_ok(), ways.iter().all(|way| way.may_write()), "{what}: all pages");
    for (index, way) in (0..).zip(ways) {
        assert_eq!(protect(index, 1, Rights::RW).is_ok(), way.may_write(), "{what}: page {index}");
        assert_eq!(process.touch(CPU, page(index), Access::Write).is_ok(), way.may_write(), "{what}: page {index}");
    }
    protect(0, all, Rights::READ).expect("mapped");
}

/// INV-SEAL, INV-MM-VMAS.
fn merged_neighbours_keep_their_greatest_rights<I: Isa>() {
    for left in Way::ALL {
        for right in Way::ALL {
            for joining in Joining::ALL {
                let what = format!("{left:?} beside {right:?}, {joining:?}");
                let mut pair = Pair::<I>::new([left, right]);
                let child = pair.join(joining);
                let processes: Vec<_> = [&pair.process].into_iter().chain(&child).collect();
                pair.world.recount(&processes);
                processes.iter().for_each(|process| assert_own_rights(process, &pair.pages, &what));
                pair.world.recount(&processes);
                let writable = |process: &&TestProcess<I>| {
                    let map = process.space.map().read();
                    map.iter().filter(|(_, vma)| vma.is_shared() && vma.max_rights().contains(Rights::WRITE)).count()
                };
                let mappings = processes.iter().map(writable).sum::<usize>() as u64;
                let expected = if mappings == 0 { Ok(()) } else { Err(MmError::WritablyMapped { mappings }) };
                assert_eq!(pair.seal(Seals::WRITE), expected, "{what}: sealed against writes");
                processes.iter().for_each(|process| process.end());
                assert_eq!(pair.seal(Seals::WRITE), Ok(()), "{what}: nothing is mapped");
                pair.world.at_rest(&[]);
            }
        }
    }
}

on_both! { merged_neighbours_keep_their_greatest_rights }

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(
        PlantedBug::MergeIgnoresMaxRights,
        merged_neighbours_keep_their_greatest_rights::<pagewright_arch::X86_64>,
    );
    assert_found_by(
        PlantedBug::MergeIgnoresMaxRights,
        merged_neighbours_keep_their_greatest_rights::<pagewright_arch::Aarch64>,
    );
}
