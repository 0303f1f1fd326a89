//! The mappings that fork copies: all of a large parent, or all but those that it keeps.
//!
//! A child shows what its parent shows, mapping by mapping. Truncation of a file reaches the child,
//! so the index of its file mappings is complete.
//!
//! Not covered: entries (`invariants`), and forks that fail (`refused`, `file/failed_fork.rs`).

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, TestProcess};
use pagewright_mm::space::VmFlags;
use pagewright_mm::{Advice, MapFlags, RemapFlags, RemapRequest};
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};

on_both! { a_child_has_the_mappings_of_its_parent_but_those_that_it_keeps }

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
