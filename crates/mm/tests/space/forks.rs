//! The mappings that fork copies: all of a large parent, or all but those that it keeps.
//!
//! A child shows what its parent shows, mapping by mapping. Truncation of a file reaches the child,
//! so the index of its file mappings is complete.
//!
//! Not covered: entries (`invariants`), and forks that fail (`refused`, `file/failed_fork.rs`).

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, TestProcess, at};
use pagewright_mm::space::VmFlags;
use pagewright_mm::{Advice, FaultError, MapFlags, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    a_child_has_the_mappings_of_its_parent_but_those_that_it_keeps,
    a_child_gets_the_guards_of_shared_memory_and_no_other_entry,
}

const BASE: VirtAddr = VirtAddr::new(1 << 40);
/// More than two levels of a tree.
const MAPPINGS: u64 = 400;

fn slot(index: u64) -> VirtAddr {
    BASE.add(index * 4 * PAGE_SIZE)
}

/// What a child must have of each mapping that has no flag of `without`.
///
/// Its pages, rights and flags, its offset in the file, and its index for the reverse map.
fn mappings<I: Isa>(process: &TestProcess<I>, without: VmFlags) -> Vec<(u64, u64, Rights, VmFlags, u64, u64)> {
    let map = process.space.map().read();
    let kept = map.iter().filter(|(_, vma)| !vma.flags().intersects(without));
    kept.map(|(start, vma)| {
        let flags = vma.flags() - VmFlags::LOCKED;
        (start, vma.end(), vma.rights(), flags, vma.pgoff(), vma.linear_index())
    })
    .collect()
}

fn a_child_has_the_mappings_of_its_parent_but_those_that_it_keeps<I: Isa>() {
    // No mapping, one in the first leaf, one in the last, a third of them, and all.
    let kept: [fn(u64) -> bool; 5] =
        [|_| false, |at| at == 0, |at| at == MAPPINGS - 1, |at| at.is_multiple_of(3), |_| true];
    for keeps in kept {
        let (world, process) = TestProcess::<I>::unjudged();
        let file = world.shmem(1);
        for index in 0..MAPPINGS {
            match index % 5 {
                0 | 1 => process.map_over(slot(index), &file, Rights::RW, MapFlags::SHARED | MapFlags::FIXED),
                2 => {
                    // One that has moved with a page.
                    let from = process.anon(1);
                    process.write(CPU, from, index);
                    let (flags, new_addr) = (RemapFlags::MAYMOVE | RemapFlags::FIXED, slot(index));
                    let request = RemapRequest { addr: from, old_len: PAGE_SIZE, new_len: PAGE_SIZE, flags, new_addr };
                    world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
                }
                _ => drop(process.map_at(slot(index), 1, Rights::RW, ANON | MapFlags::FIXED)),
            }
            if keeps(index) {
                process.advise(slot(index), 1, Advice::DontFork);
            }
        }
        world.on(CPU, |mm| mm.mlock(&process.space, slot(3), PAGE_SIZE)).expect("within the limit");
        let child = process.fork();
        assert_eq!(mappings(&child, VmFlags::empty()).len(), mappings(&child, VmFlags::DONTCOPY).len());
        assert_eq!(mappings(&child, VmFlags::DONTCOPY), mappings(&process, VmFlags::DONTCOPY));
        let expected = (0..MAPPINGS).filter(|index| !keeps(*index)).count();
        assert_eq!(child.mappings(), expected);
        assert_eq!(child.space.map().read().totals().locked, 0, "locks are the parent's");
        for index in (2..MAPPINGS).step_by(5).filter(|index| !keeps(*index)) {
            assert_eq!(child.read(CPU, slot(index)), index, "the page that has moved");
        }
        let shared = (0..MAPPINGS).filter(|index| index % 5 < 2 && !keeps(*index));
        shared.clone().for_each(|index| child.write(CPU, slot(index), 7));
        world.recount(&[&process, &child]);
        world.on(CPU, |mm| mm.truncate(&file, 0)).expect("not sealed");
        for index in shared {
            assert!(child.touch(CPU, slot(index), Access::Read).is_err(), "the file has lost the page");
        }
        world.recount(&[&process, &child]);
        child.end();
        process.end();
        world.on(CPU, |mm| mm.forget_file(&file));
        world.assert_nothing_leaked();
    }
}

/// The shared memory of a file and of no file, with guards in two of three tables.
fn a_child_gets_the_guards_of_shared_memory_and_no_other_entry<I: Isa>() {
    const TABLE: u64 = 512;
    const GUARDS: [u64; 4] = [0, TABLE - 1, TABLE, TABLE + 7];
    const PAGES: [u64; 4] = [1, TABLE - 2, TABLE + 6, 2 * TABLE + 3];
    for file in [false, true] {
        let (world, process) = TestProcess::<I>::unjudged();
        world.set(MmSetting::CowPageTables, "never");
        let file = file.then(|| world.file(3 * TABLE));
        match &file {
            Some(file) => process.map_over(BASE, file, Rights::RW, MapFlags::SHARED),
            None => {
                let flags = MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::FIXED;
                process.map_at(BASE, 3 * TABLE, Rights::RW, flags);
            }
        }
        PAGES.iter().for_each(|page| process.write(CPU, at(BASE, *page), page + 1));
        GUARDS.iter().for_each(|page| process.advise(at(BASE, *page), 1, Advice::GuardInstall));
        let entries = world.count(Counter::PwForkEntries);
        let child = process.fork();
        assert_eq!(world.count(Counter::PwForkEntries) - entries, GUARDS.len() as u64);
        assert_eq!((child.space.rss().pages(), process.space.rss().pages()), (0, PAGES.len() as u64));
        world.recount(&[&process, &child]);
        let is_guarded = |process: &TestProcess<I>, page: u64| {
            matches!(process.touch(CPU, at(BASE, page), Access::Read), Err(FaultError::Guarded { .. }))
        };
        child.advise(BASE, 1, Advice::GuardRemove);
        for page in GUARDS {
            assert_eq!((is_guarded(&process, page), is_guarded(&child, page)), (true, page > 0), "page {page}");
        }
        PAGES.iter().for_each(|page| assert_eq!(child.read(CPU, at(BASE, *page)), page + 1));
        assert!(!is_guarded(&child, TABLE + 8) && !is_guarded(&child, 2 * TABLE));
        // A grandchild gets what the child has by then.
        let grandchild = child.fork();
        assert!(!is_guarded(&grandchild, 0) && is_guarded(&grandchild, TABLE + 7));
        world.recount(&[&process, &child, &grandchild]);
        [&grandchild, &child, &process].iter().for_each(|process| process.end());
        file.iter().for_each(|file| world.on(CPU, |mm| mm.forget_file(file)));
        world.assert_nothing_leaked();
    }
}
