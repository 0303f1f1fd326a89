//! The owner of a page that several generations of processes had in swap.
//!
//! INV-SWAP-OWNER, INV-RMAP-SUPERSET, INV-COW-REUSE.
//!
//! Every order in which the generations swap the pages in, by a load or by a store, in turn and
//! concurrently. After each step the reverse map finds every mapping, and no process sees a store
//! of another.
//!
//! Not covered: shared memory, whose pages belong to their object.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race};
use pagewright_lab::harness::{CPU, MemorySwap, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::{Advice, RemapFlags, RemapRequest};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, NodeId, PAGE_SIZE, VirtAddr};
use std::rc::Rc;

const SCHEDULES: u64 = 400;
const SLOTS: u32 = 16;
/// Page 0 is of the first process, page 1 of its child.
const PAGES: u64 = 2;
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
/// Where a process moves its pages.
const MOVED: u64 = 0x10_4000_0000;

/// Three generations, their pages in swap, and what each page's second word must be.
struct Family<I: Isa> {
    world: Rc<TestWorld<I>>,
    device: MemorySwap,
    /// The processes that have not ended, by generation, with the address of their pages.
    processes: [Option<(TestProcess<I>, VirtAddr)>; 3],
    expected: [[u64; PAGES as usize]; 3],
}

impl<I: Isa> Family<I> {
    /// Each page is swapped out before the next generation is forked, so that all share its slot.
    fn new() -> Self {
        let world = TestWorld::<I>::new(3);
        let device = world.swap_to(SLOTS);
        let first = TestProcess::new(&world);
        let base = first.anon(PAGES);
        first.write(CPU, base, 1);
        first.advise(base, PAGES, Advice::PageOut);
        let second = first.fork();
        second.write(CPU, at(base, 1), 2);
        second.advise(base, PAGES, Advice::PageOut);
        let third = second.fork();
        let processes = [first, second, third].map(|process| Some((process, base)));
        Self { world, device, processes, expected: [[0; PAGES as usize]; 3] }
    }

    fn alive(&self) -> impl Iterator<Item = (usize, &TestProcess<I>, VirtAddr)> {
        let all = self.processes.iter().enumerate();
        all.filter_map(|(index, process)| process.as_ref().map(|(process, base)| (index, process, *base)))
    }

    /// The first word of a page of a process.
    fn first_word(generation: usize, page: u64) -> u64 {
        match (generation, page) {
            (_, 0) => 1,
            (0, _) => 0,
            (_, _) => 2,
        }
    }

    /// One process loads from both pages, or stores its number to their second words.
    fn swap_in(&mut self, generation: usize, stores: bool) {
        let Some((process, base)) = &self.processes[generation] else { return };
        for page in 0..PAGES {
            let va = at(*base, page).add(8);
            if stores {
                process.write(CPU, va, generation as u64 + 7);
                self.expected[generation][page as usize] = generation as u64 + 7;
            } else {
                process.read(CPU, va);
            }
        }
    }

    fn end(&mut self, generation: usize) {
        if let Some((process, _)) = self.processes[generation].take() {
            process.end();
        }
    }

    /// Counts everything again, which the reverse map is a part of.
    fn recount(&self) {
        self.world.recount(&self.alive().map(|(_, process, _)| process).collect::<Vec<_>>());
        self.world.at_rest(&[]);
    }

    /// Whether each process has its own contents.
    fn is_intact(&self) -> bool {
        self.alive().all(|(generation, process, base)| {
            (0..PAGES).all(|page| {
                let words = [0, 8].map(|offset| process.read(CPU, at(base, page).add(offset)));
                words == [Self::first_word(generation, page), self.expected[generation][page as usize]]
            })
        })
    }

    fn move_pages(&mut self, generation: usize) {
        let Some((process, base)) = &mut self.processes[generation] else { return };
        let (flags, len) = (RemapFlags::MAYMOVE | RemapFlags::FIXED, PAGES * PAGE_SIZE);
        let request = RemapRequest { addr: *base, old_len: len, new_len: len, flags, new_addr: VirtAddr::new(MOVED) };
        *base = self.world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
    }

    /// Ends everything; returns whether every slot is free.
    fn all_ends(mut self) -> bool {
        (0..3).for_each(|generation| self.end(generation));
        self.world.at_rest(&[]);
        let (slots, free) = self.world.on(CPU, |mm| mm.swap_slots());
        self.device.used() == 0 && slots == free
    }
}

/// INV-SWAP-OWNER, INV-RMAP-SUPERSET.
fn every_order_of_swap_ins_leaves_each_process_its_own<I: Isa>() {
    for order in ORDERS {
        for variant in 0..64 {
            let flag = |bit: u32| variant >> bit & 1 == 1;
            let what = format!("order {order:?}, variant {variant:#x}");
            let mut family = Family::<I>::new();
            if flag(3) {
                family.move_pages(order[1]);
            }
            for (position, generation) in order.into_iter().enumerate() {
                family.swap_in(generation, flag(position as u32));
                family.recount();
                if flag(4) {
                    // The pages are in the swap cache; the scan frees those that it can.
                    family.world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 8));
                    family.recount();
                }
                if flag(5) && position == 0 {
                    family.end(generation);
                    family.recount();
                }
            }
            assert!(family.is_intact(), "{what}");
            family.recount();
            assert!(family.all_ends(), "{what}: a slot is in use");
        }
    }
}

/// All generations swap the pages in at once, and one CPU then reclaims.
///
/// Returns whether each has its own contents, and nothing is left in the end.
fn generations_swap_in_together<I: Isa>(seed: u64) -> bool {
    let mut family = Family::<I>::new();
    let programs = family.alive().zip([CPU, OTHER, THIRD]).map(|((generation, process, base), cpu)| -> CoroutineBody {
        let (world, space) = (family.world.clone(), process.space.clone());
        world.lab.run(cpu, &space);
        let stores = seed >> generation & 1 == 1;
        Box::new(move || {
            for page in if seed >> 3 & 1 == 1 { [0, 1] } else { [1, 0] } {
                if stores {
                    world.store(cpu, &space, at(base, page).add(8), generation as u64 + 7);
                } else {
                    world.lab.touch(cpu, &space, at(base, page), Access::Read, 1).expect("readable");
                }
            }
            if seed >> 4 & 3 == generation as u64 {
                world.lab.on(cpu, |mm| mm.reclaim(NodeId::new(0), 4));
            }
        })
    });
    let programs = programs.collect();
    race(&family.world.clone(), seed, programs);
    for generation in (0..3).filter(|generation| seed >> generation & 1 == 1) {
        family.expected[generation] = [generation as u64 + 7; PAGES as usize];
    }
    family.recount();
    let intact = family.is_intact();
    family.recount();
    intact && family.all_ends()
}

/// The root of its tree owns it, and not that of the first process of the machine.
fn a_page_that_a_second_family_shares_belongs_to_that_family<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let device = world.swap_to(SLOTS);
    let [other, first] = [(); 2].map(|()| TestProcess::new(&world));
    let base = first.anon(1);
    first.write(CPU, base, 1);
    first.advise(base, 1, Advice::PageOut);
    let second = first.fork();
    for process in [&second, &first] {
        assert_eq!(process.read(CPU, base), 1);
        // The reverse map finds its entries.
        world.recount(&[&other, &first, &second]);
    }
    TestProcess::end_all_at_rest(&[&other, &first, &second]);
    assert_eq!(device.used(), 0);
}

on_both! {
    a_page_that_a_second_family_shares_belongs_to_that_family,
    every_order_of_swap_ins_leaves_each_process_its_own,
    /// INV-SWAP-OWNER, INV-SWAP-CACHE, INV-COW-REUSE.
    concurrent_swap_ins_leave_each_process_its_own:
        assert_holds(SCHEDULES, generations_swap_in_together::<I>, "a process sees a store of another, or a slot is leaked"),
}

planted_bugs_are_found! {
    SCHEDULES;
    SwapOwnerNarrow => generations_swap_in_together,
}
