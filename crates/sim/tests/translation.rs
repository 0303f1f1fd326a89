//! The accesses of programs: hits, misses, faults, accessed and dirty bits, costs, stale entries.

use crate::common::{Bench, CPU0, page};
use pagewright_arch::{
    Effects, Entry, Invalidate, InvalidateScope, InvalidateTarget, Isa, Leaf, LeafFlags, Pte, TableEntry, on_both,
};
use pagewright_sim::{Cost, MachineEvent, PageFault, Picos};
use pagewright_types::{Access, CpuId, IsaKind, Level, Pfn, PhysAddr, Rights, Tag, VirtAddr};
use std::num::NonZeroU32;

const CPU1: CpuId = CpuId::new(1);

on_both!(
    an_access_finds_its_frame_at_every_level,
    an_unmapped_page_faults_and_costs_an_exception,
    accessed_and_dirty_are_set_in_memory,
    a_stale_translation_is_used_until_it_is_flushed,
    a_walk_cache_keeps_the_rights_of_a_pointer_until_it_is_flushed,
    a_hit_costs_what_the_profile_says,
    repeated_accesses_cost_one_lookup,
    untouched_memory_reads_as_zero,
    the_same_accesses_take_the_same_time,
    random_evictions_depend_on_the_seed,
);

fn an_access_finds_its_frame_at_every_level<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    for level in [Level::PTE, Level::PMD, Level::PUD].into_iter() {
        let va = VirtAddr::new(u64::from(level.raw()) << 39);
        let pfn = if level == Level::PUD {
            // The machine is too small for the bench to allocate 1 GiB; the leaf maps frame 0.
            let leaf = Leaf { pfn: Pfn::new(0), rights: Rights::RW, flags: LeafFlags::USER };
            bench.put(root, level, va, I::leaf(level, leaf));
            leaf.pfn
        } else {
            bench.map(root, level, va, Rights::RW, LeafFlags::empty())
        };
        for _ in 0..2 {
            let last = va.add(level.span() - 1);
            let found = bench.sim.access(CPU0, last, Access::Read, 1).expect("mapped");
            assert_eq!((found.pfn, found.level), (pfn.add(level.pages() as u32 - 1), level));
        }
    }
    assert_eq!(bench.sim.total(MachineEvent::PageWalks), 3, "the second access of each page missed");
}

fn an_unmapped_page_faults_and_costs_an_exception<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    let refused = |va, access, present| Err(PageFault { va, access, present, conflict: false });
    assert_eq!(bench.sim.access(CPU0, page(0), Access::Read, 1), refused(page(0), Access::Read, false), "no root");
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::READ, LeafFlags::empty());
    let before = bench.sim.clock(CPU0);
    assert_eq!(bench.sim.access(CPU0, page(1), Access::Exec, 9), refused(page(1), Access::Exec, false));
    assert!(bench.sim.clock(CPU0).since(before) >= bench.sim.profile().cost(Cost::Exception));
    assert_eq!(bench.sim.access(CPU0, page(0), Access::Write, 9), refused(page(0), Access::Write, true));
    assert_eq!(bench.sim.access(CPU0, page(0), Access::Exec, 9), refused(page(0), Access::Exec, true));
    assert_eq!(bench.sim.total(MachineEvent::FaultsRaised), 4);
    assert_eq!(
        bench.sim.total(MachineEvent::DtlbStores) + bench.sim.total(MachineEvent::ItlbLoads),
        0,
        "a refused access was counted"
    );
    let outside = VirtAddr::new(1 << 55);
    assert_eq!(bench.sim.access(CPU0, outside, Access::Read, 1), refused(outside, Access::Read, false));
}

fn flags_of<I: Isa>(bench: &Bench<I>, root: Pfn) -> LeafFlags {
    match I::decode(Level::PTE, bench.sim.load(bench.slot(root, Level::PTE, page(0)))) {
        Entry::Leaf(leaf) => leaf.flags & (LeafFlags::ACCESSED | LeafFlags::DIRTY),
        Entry::Empty | Entry::Soft(_) | Entry::Table(_) => panic!("no leaf"),
    }
}

fn accessed_and_dirty_are_set_in_memory<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    assert_eq!(flags_of(&bench, root), LeafFlags::empty());
    bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
    assert_eq!(flags_of(&bench, root), LeafFlags::ACCESSED);
    assert_eq!(bench.sim.total(MachineEvent::DirtyWalks), 0);
    for _ in 0..3 {
        bench.sim.access(CPU0, page(0), Access::Write, 1).expect("writable");
    }
    assert_eq!(flags_of(&bench, root), LeafFlags::ACCESSED | LeafFlags::DIRTY);
    assert_eq!(bench.sim.total(MachineEvent::DirtyWalks), 1, "only the first store through a clean translation walks");
    let misses = [MachineEvent::DtlbLoadMisses, MachineEvent::DtlbStoreMisses].map(|event| bench.sim.total(event));
    assert_eq!(misses, [1, 0], "a walk that sets a dirty bit is not a miss");
}

/// INV-SIM-STALE.
fn a_stale_translation_is_used_until_it_is_flushed<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.switch(CPU1, root, 1);
    let old = bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    bench.sim.access(CPU0, page(0), Access::Write, 1).expect("mapped");
    bench.put(root, Level::PTE, page(0), Pte::EMPTY);
    let stale = bench.sim.access(CPU0, page(0), Access::Write, 1).expect("the stale translation is cached");
    assert_eq!(stale.pfn, old);
    assert!(bench.sim.access(CPU1, page(0), Access::Write, 1).is_err(), "the other CPU had nothing cached");
}

/// INV-SIM-STALE.
///
/// A walk that starts at a walk-cache entry reads no entry above it.
fn a_walk_cache_keeps_the_rights_of_a_pointer_until_it_is_flushed<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    [CPU0, CPU1].into_iter().for_each(|cpu| bench.switch(cpu, root, 1));
    bench.map(root, Level::PTE, page(0), Rights::READ, LeafFlags::empty());
    let below = bench.map(root, Level::PTE, page(1), Rights::RW, LeafFlags::empty());
    bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
    let table = bench.slot(root, Level::PTE, page(0)).table;
    bench.put(root, Level::PMD, page(0), I::table(TableEntry { pfn: table, write_protected: true, origin: false }));
    let store = |cpu| bench.sim.access(cpu, page(1), Access::Write, 1);
    assert!(store(CPU1).is_err(), "the other CPU had nothing cached");
    assert_eq!(store(CPU0).map(|found| found.pfn), Ok(below), "the walk cache has the pointer as it was");
    let target = InvalidateTarget::Page { tag: Tag::new(1), va: page(1), level: Level::PTE, last_level: false };
    bench.sim.run_on(CPU0, || bench.sim.invalidate(Invalidate { scope: InvalidateScope::Local, target }));
    assert!(store(CPU0).is_err());
}

fn a_hit_costs_what_the_profile_says<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::ACCESSED | LeafFlags::DIRTY);
    let cost = |cost| bench.sim.profile().cost(cost);
    let walked = bench.sim.clock(CPU0);
    bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
    let walk = cost(Cost::WalkStart) + cost(Cost::WalkRead) * 4 + cost(Cost::Access);
    assert_eq!(bench.sim.clock(CPU0).since(walked), walk, "four levels, nothing in the walk caches");
    let hit = bench.sim.clock(CPU0);
    bench.sim.access(CPU0, page(0), Access::Write, 1).expect("mapped");
    assert_eq!(bench.sim.clock(CPU0).since(hit), cost(Cost::Access));
    assert_eq!(bench.sim.total(MachineEvent::WalkTime), (walk - cost(Cost::Access)).raw());
}

fn repeated_accesses_cost_one_lookup<I: Isa>() {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::RX, LeafFlags::empty());
    let sim = &bench.sim;
    sim.access(CPU0, page(0), Access::Exec, 1000).expect("mapped");
    assert_eq!((sim.total(MachineEvent::ItlbLoads), sim.total(MachineEvent::ItlbLoadMisses)), (1000, 1));
    sim.access(CPU0, page(0), Access::Read, 1000).expect("mapped");
    assert_eq!(sim.total(MachineEvent::DtlbLoads), 1000);
    match I::KIND {
        // The data side missed its first level and found the translation in the second.
        IsaKind::X86_64 => assert_eq!(sim.total(MachineEvent::DtlbLoadMisses), 0),
        IsaKind::Aarch64 => assert_eq!(sim.total(MachineEvent::DtlbLoadMisses), 1),
    }
    assert_eq!((sim.total(MachineEvent::L2TlbHits), sim.total(MachineEvent::PageWalks)), (1, 1));
}

fn untouched_memory_reads_as_zero<I: Isa>() {
    // Untouched memory costs the host only addresses.
    let bench = Bench::<I>::with(|config| config.nodes[0].bytes = 3 << 30);
    let last = bench.sim.nodes()[0].frames.end().base().raw() - 8;
    let mut bytes = [1; 8];
    bench.sim.read(PhysAddr::new(last), &mut bytes);
    assert_eq!(bytes, [0; 8]);
    assert_eq!(bench.sim.ram().len() as u64 * 8, 3 << 30);
}

/// INV-SIM-CLOCK.
fn the_same_accesses_take_the_same_time<I: Isa>() {
    let run = || {
        let bench = Bench::<I>::new();
        let root = bench.frame(Level::PTE);
        bench.switch(CPU0, root, 1);
        for number in 0..3000 {
            bench.map(root, Level::PTE, page(number), Rights::RW, LeafFlags::empty());
        }
        let mut at = 1u64;
        for _ in 0..20_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let access = if at >> 40 & 1 == 0 { Access::Read } else { Access::Write };
            bench.sim.access(CPU0, page((at >> 41) % 3000), access, 1).expect("mapped");
        }
        let counts: Vec<u64> = MachineEvent::ALL.iter().map(|event| bench.sim.total(*event)).collect();
        (bench.sim.elapsed(), counts)
    };
    let first = run();
    assert!(first.0 > Picos::ZERO);
    assert_eq!(first, run());
}

fn random_evictions_depend_on_the_seed<I: Isa>() {
    let walks = |one_in: Option<u32>| {
        let bench = Bench::<I>::new();
        let root = bench.frame(Level::PTE);
        bench.switch(CPU0, root, 1);
        for number in 0..8 {
            bench.map(root, Level::PTE, page(number), Rights::RW, LeafFlags::empty());
        }
        bench.sim.evict_at_random(one_in.and_then(NonZeroU32::new));
        for number in (0..200).map(|step| step % 8) {
            bench.sim.access(CPU0, page(number), Access::Read, 1).expect("mapped");
        }
        bench.sim.total(MachineEvent::PageWalks)
    };
    assert_eq!(walks(None), 8);
    assert!(walks(Some(1)) > 8, "each walk evicts an entry, which another walk must fill");
    assert_eq!(walks(Some(1)), walks(Some(1)));
}
