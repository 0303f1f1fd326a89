//! Compressed swap devices.
//!
//! Pages read back as written, a full device refuses writes, and no frame is leaked.

use pagewright_arch::X86_64;
use pagewright_lab::harness::{CPU, OTHER, TestWorld};
use pagewright_mm::MmError;
use pagewright_mm::counters::Gauge;
use pagewright_mm::swap::{MmStat, SwapBacking, Zram};
use pagewright_sim::{AllocationFailure, Sim};
use pagewright_types::{CpuId, Errno, PAGE_SIZE};
use proptest::collection::vec;
use proptest::prelude::*;

const PAGE: usize = PAGE_SIZE as usize;
const SLOTS: u32 = 24;

type Device = Zram<Sim<X86_64>>;

fn device(world: &TestWorld<X86_64>, limit: Option<u32>) -> Device {
    world.on(CPU, |mm| Zram::try_new(mm, SLOTS, limit)).expect("memory")
}

fn write_on(world: &TestWorld<X86_64>, cpu: CpuId, device: &Device, slot: u32, page: &[u8]) -> Result<(), Errno> {
    world.lab.on(cpu, |mm| {
        device.write_page(mm.tlb(), slot, &mut |offset, bytes| {
            bytes.copy_from_slice(&page[offset as usize..][..bytes.len()]);
        })
    })
}

fn write(world: &TestWorld<X86_64>, device: &Device, slot: u32, page: &[u8]) -> Result<(), Errno> {
    write_on(world, CPU, device, slot, page)
}

fn read(world: &TestWorld<X86_64>, device: &Device, slot: u32) -> Result<Vec<u8>, Errno> {
    let mut page = vec![0; PAGE];
    let put = &mut |offset: u64, bytes: &[u8]| page[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    world.on(CPU, |mm| device.read_page(mm.tlb(), slot, put)).map(|()| page)
}

fn free_pages(world: &TestWorld<X86_64>) -> u64 {
    world.on(CPU, |mm| mm.gauge(Gauge::FreePages))
}

/// An incompressible page.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..PAGE).map(|_| byte()).collect()
}

/// Pages from all zeroes to incompressible.
fn page() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &["page", "table", "walk ", "flush\n", "the ", "of ", "0x7fff", "\0\0\0\0"];
    let text = vec(proptest::sample::select(WORDS), 1..400)
        .prop_map(|words| words.concat().bytes().cycle().take(PAGE).collect());
    let half = (any::<u64>(), 0..PAGE).prop_map(|(seed, zeroes)| {
        let mut page = noise(seed);
        page[..zeroes].fill(0);
        page
    });
    prop_oneof![
        Just(vec![0; PAGE]),
        any::<[u8; 8]>().prop_map(|word| word.repeat(PAGE / 8)),
        any::<u64>().prop_map(noise),
        half,
        text,
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, Vec<u8>),
    Discard(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..SLOTS, page()).prop_map(|(slot, page)| Step::Write(slot, page)),
        1 => (0..SLOTS).prop_map(Step::Discard),
    ];
    vec(step, 1..60)
}

proptest! {
    /// INV-ZRAM-KEPT.
    #[test]
    fn each_slot_holds_what_was_written_last(steps in steps(), limit in 2..SLOTS) {
        let world = TestWorld::<X86_64>::unjudged();
        let before = free_pages(&world);
        let device = device(&world, Some(limit));
        let mut expected = vec![None; SLOTS as usize];
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(slot, page) => {
                    let cpu = if index % 2 == 0 { CPU } else { OTHER };
                    match write_on(&world, cpu, &device, slot, &page) {
                        Ok(()) => expected[slot as usize] = Some(page),
                        Err(errno) => prop_assert_eq!(errno, Errno::ENOMEM),
                    }
                }
                Step::Discard(slot) => {
                    world.on(CPU, |mm| device.discard(mm.tlb(), slot));
                    expected[slot as usize] = None;
                }
            }
            let stat = device.mm_stat();
            let held: Vec<&Vec<u8>> = expected.iter().flatten().collect();
            let same = held.iter().filter(|page| page.chunks(8).all(|word| word == &page[..8])).count();
            prop_assert_eq!(stat.orig_data_size, held.len() as u64 * PAGE_SIZE);
            prop_assert_eq!(stat.same_pages, same as u64);
            prop_assert_eq!(stat.mem_limit, u64::from(limit) * PAGE_SIZE);
            prop_assert!(stat.compr_data_size <= stat.mem_used_total && stat.mem_used_total <= stat.mem_used_max);
            prop_assert!(stat.mem_used_max <= stat.mem_limit);
            prop_assert_eq!(before - free_pages(&world), stat.mem_used_total / PAGE_SIZE);
        }
        for (slot, page) in (0..).zip(&expected) {
            prop_assert_eq!(&read(&world, &device, slot).ok(), page, "slot {}", slot);
        }
        world.on(CPU, |mm| device.reset(mm.tlb()));
        prop_assert_eq!(free_pages(&world), before);
    }
}

#[test]
fn a_full_device_refuses_writes_and_keeps_its_pages() {
    let world = TestWorld::<X86_64>::unjudged();
    let device = device(&world, Some(3));
    for slot in 0..3 {
        assert_eq!(write(&world, &device, slot, &noise(u64::from(slot))), Ok(()));
    }
    let (stat, free) = (device.mm_stat(), free_pages(&world));
    assert_eq!((stat.huge_pages, stat.huge_pages_since, stat.mem_used_total), (3, 3, 3 * PAGE_SIZE));
    for slot in [0, 5] {
        assert_eq!(write(&world, &device, slot, &noise(99)), Err(Errno::ENOMEM));
        assert_eq!((device.mm_stat(), free_pages(&world)), (stat, free));
    }
    assert_eq!(read(&world, &device, 0), Ok(noise(0)));
    assert_eq!(read(&world, &device, 5), Err(Errno::EIO));
    // A page of one word takes no frame. It replaces a page, whose frame serves another one.
    assert_eq!(write(&world, &device, 0, &[7; PAGE]), Ok(()));
    assert_eq!(write(&world, &device, 5, &noise(5)), Ok(()));
    assert_eq!(read(&world, &device, 0), Ok(vec![7; PAGE]));
    let line = device.mm_stat().to_string();
    let columns: Vec<u64> = line.split_whitespace().map(|column| column.parse().expect("a number")).collect();
    let bytes = |pages: u64| pages * PAGE_SIZE;
    assert_eq!(columns, [bytes(4), bytes(3), bytes(3), bytes(3), bytes(3), 1, 0, 3, 4]);
}

/// `mem_limit_store`: the limit that was set, however few slots there are.
#[test]
fn a_device_shows_its_limit_and_0_without_one() {
    let world = TestWorld::<X86_64>::unjudged();
    for (limit, shown) in [(None, 0), (Some(3), 3), (Some(2 * SLOTS), 2 * SLOTS)] {
        let stat = device(&world, limit).mm_stat();
        assert_eq!(stat.mem_limit, u64::from(shown) * PAGE_SIZE);
        assert_eq!(stat.to_string().split_whitespace().nth(3), Some(stat.mem_limit.to_string().as_str()));
    }
}

/// Sixteen repetitive pages fit into one frame.
#[test]
fn compressible_pages_share_frames() {
    let world = TestWorld::<X86_64>::unjudged();
    let device = device(&world, None);
    for slot in 0..16 {
        let text: Vec<u8> = format!("row {slot}; ").bytes().cycle().take(PAGE).collect();
        assert_eq!(write(&world, &device, slot, &text), Ok(()));
    }
    let MmStat { mem_used_total, compr_data_size, huge_pages, .. } = device.mm_stat();
    assert_eq!((mem_used_total, huge_pages), (PAGE_SIZE, 0));
    assert!(compr_data_size <= 16 * 64, "{compr_data_size} bytes");
}

/// Allocations fail when the device is made, and when an incompressible page is written.
#[test]
fn a_failed_allocation_changes_nothing() {
    let world = TestWorld::<X86_64>::unjudged();
    let sim = world.lab.sim();
    let before = free_pages(&world);
    sim.fail_allocation_after(0, AllocationFailure::All);
    let wanted = |slots| match world.on(CPU, |mm| Zram::try_new(mm, slots, None)).err() {
        Some(MmError::NoKernelMemory { wanted }) => wanted,
        other => panic!("{other:?}"),
    };
    assert_eq!(wanted(2 * SLOTS), 2 * wanted(SLOTS), "the bytes of the records of all slots");
    sim.permit_allocations();
    let device = device(&world, None);
    assert_eq!(write(&world, &device, 0, &noise(1)), Ok(()));
    let (stat, free) = (device.mm_stat(), free_pages(&world));
    for slot in [0, 1] {
        sim.fail_allocation_after(0, AllocationFailure::One);
        assert_eq!(write(&world, &device, slot, &noise(2)), Err(Errno::ENOMEM));
        sim.permit_allocations();
        assert_eq!((device.mm_stat(), free_pages(&world)), (stat, free));
    }
    assert_eq!(read(&world, &device, 0), Ok(noise(1)));
    assert_eq!(write(&world, &device, 0, &noise(2)), Ok(()));
    assert_eq!(read(&world, &device, 0), Ok(noise(2)));
    world.on(CPU, |mm| device.reset(mm.tlb()));
    assert_eq!(free_pages(&world), before);
}

/// Swap uses the slots from 1, and slot 0 stays with the whole device.
#[test]
fn a_later_start_shares_the_device() {
    let world = TestWorld::<X86_64>::unjudged();
    let before = free_pages(&world);
    let whole = device(&world, None);
    let part = whole.starting_at(1);
    assert_eq!((whole.slots(), part.slots(), part.starting_at(2).slots()), (SLOTS, SLOTS - 1, SLOTS - 3));
    write(&world, &whole, 0, &noise(1)).expect("room");
    write(&world, &part, 0, &noise(2)).expect("room");
    assert_eq!((read(&world, &whole, 0), read(&world, &whole, 1)), (Ok(noise(1)), Ok(noise(2))));
    assert_eq!(part.mm_stat(), whole.mm_stat());
    world.on(CPU, |mm| part.reset(mm.tlb()));
    assert_eq!((read(&world, &whole, 0), read(&world, &whole, 1)), (Ok(noise(1)), Err(Errno::EIO)));
    let clone = whole.clone();
    assert_eq!((clone.slots(), read(&world, &clone, 0)), (SLOTS, Ok(noise(1))), "a clone starts at the same slot");
    drop((part, clone));
    world.on(CPU, |mm| whole.reset(mm.tlb()));
    assert_eq!(free_pages(&world), before);
}

/// Two swap areas on one device would overwrite each other's pages.
#[test]
fn a_device_is_swapped_to_at_most_once() {
    let world = TestWorld::<X86_64>::unjudged();
    let (whole, other) = (device(&world, None), device(&world, None));
    let swap_to = |zram: &Device| world.on(CPU, |mm| mm.swap_on(SwapBacking::Zram(zram.clone()), 4));
    assert_eq!((swap_to(&other), swap_to(&whole.starting_at(1))), (Ok(0), Ok(1)));
    for again in [whole.clone(), whole.starting_at(1), whole.starting_at(5)] {
        assert_eq!(swap_to(&again), Err(MmError::SwapDeviceInUse { device: 1 }));
    }
    assert_eq!(MmError::SwapDeviceInUse { device: 1 }.errno(), Errno::EBUSY);
    world.on(CPU, |mm| mm.swap_off(1)).expect("no slot is in use");
    assert_eq!(swap_to(&whole), Ok(1));
}
