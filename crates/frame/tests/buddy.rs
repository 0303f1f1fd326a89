//! The frame allocator against a model of sets of frames.

use crate::support::{self, Host, NODE0, cpus, range, run_on, shape};
use pagewright_frame::{
    FrameAllocator, FrameRequest, FrameState, MemoryLayout, NoFrames, NoFramesCause, NodeSpec, Urgency,
};
use pagewright_types::{DebtFloor, DebtKey, NodeId, NodeMask, Order, Pfn};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CPUS: u16 = 3;

/// A machine of two nodes.
///
/// One has three ranges with holes between, one of which straddles 4 GiB. The other is large enough
/// for blocks of 1 GiB.
fn machine() -> FrameAllocator<Host> {
    let near = [range(0x101, 0x1903), range(0x2000, 0x2400), range(0xf_ff00, 0x10_0180)];
    let far = [range(0x14_0000, 0x1c_0000)];
    let nodes = [
        NodeSpec { id: NODE0, ranges: &near, cpus: cpus([0, 1]) },
        NodeSpec { id: NodeId::new(1), ranges: &far, cpus: cpus([2]) },
    ];
    let layout = MemoryLayout { min_free_kbytes: Some(512), ..MemoryLayout::new(&nodes) };
    FrameAllocator::try_new(Host::new(usize::from(CPUS)), &layout).expect("a valid layout")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take {
        cpu: u16,
        request: FrameRequest,
    },
    Free {
        cpu: u16,
        which: usize,
        key: DebtKey,
    },
    GiveBack {
        cpu: u16,
        request: FrameRequest,
    },
    Drain,
    /// Every debt up to this epoch is settled.
    Settle(u64),
}

fn a_request() -> impl Strategy<Value = FrameRequest> {
    let order = prop_oneof![
        6 => Just(0u8), 3 => 1u8..=3, 3 => 4u8..=8, 2 => Just(9u8), 1 => 10u8..=17, 1 => Just(18u8),
    ];
    (order, 0u8..2, prop::bool::weighted(0.3), prop::bool::weighted(0.5), prop::bool::weighted(0.2)).prop_map(
        |(order, node, strict, reserve, settled_only)| FrameRequest {
            permitted: if strict { NodeMask::of(NodeId::new(node)) } else { NodeMask::ALL },
            urgency: if reserve { Urgency::Reserve } else { Urgency::Normal },
            settled_only,
            ..FrameRequest::new(Order::new(order), NodeId::new(node))
        },
    )
}

fn a_step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![2 => Just(DebtKey::NONE), 1 => (1u64..100).prop_map(DebtKey::new)];
    prop_oneof![
        8 => (0..CPUS, a_request()).prop_map(|(cpu, request)| Step::Take { cpu, request }),
        7 => (0..CPUS, any::<usize>(), key).prop_map(|(cpu, which, key)| Step::Free { cpu, which, key }),
        1 => (0..CPUS, a_request()).prop_map(|(cpu, request)| Step::GiveBack { cpu, request }),
        1 => Just(Step::Drain),
        1 => (1u64..100).prop_map(Step::Settle),
    ]
}

/// The expected state of the allocator, as sets.
#[derive(Default)]
struct Model {
    /// Allocated blocks: first frame to number of frames.
    taken: BTreeMap<u32, u32>,
    /// Frames freed under a debt and not allocated since: first frame to end and epoch.
    owing: BTreeMap<u32, (u32, u64)>,
    floor: DebtFloor,
}

impl Model {
    fn allocated(&self) -> u64 {
        self.taken.values().map(|frames| u64::from(*frames)).sum()
    }

    /// Frames that were freed under a debt for which `counts` holds.
    fn owing(&self, counts: impl Fn(DebtKey) -> bool) -> u64 {
        let owing = self.owing.iter().filter(|(_, (_, epoch))| counts(DebtKey::new(*epoch)));
        owing.map(|(start, (end, _))| u64::from(end - start)).sum()
    }

    /// Removes the debts of the frames and returns the youngest.
    fn settle(&mut self, start: u32, end: u32) -> u64 {
        let overlapping: Vec<_> = self.owing.range(..end).filter(|(_, (till, _))| *till > start).collect();
        let overlapping: Vec<_> = overlapping.into_iter().map(|(from, (till, epoch))| (*from, *till, *epoch)).collect();
        for (from, till, epoch) in &overlapping {
            self.owing.remove(from);
            if *from < start {
                self.owing.insert(*from, (start, *epoch));
            }
            if *till > end {
                self.owing.insert(end, (*till, *epoch));
            }
        }
        overlapping.iter().map(|(_, _, epoch)| *epoch).max().unwrap_or(0)
    }

    /// INV-FRAME-BUDDY, INV-FRAME-KEY.
    ///
    /// The frames are free and aligned, and the key is at least as young as the key under which
    /// each was freed.
    fn hand_out(&mut self, frames: &FrameAllocator<Host>, request: FrameRequest, pfn: Pfn, key: DebtKey) {
        let (start, end) = (pfn.raw(), pfn.raw() + request.order.frames());
        assert!(pfn.is_aligned(request.order));
        let node = frames.node_of(pfn);
        assert!(
            node.is_some() && node == frames.node_of(Pfn::new(end - 1)),
            "{pfn}: a block across nodes or in a hole"
        );
        assert!(node.is_some_and(|node| request.permitted.contains(node)), "INV-FRAME-NODES: {node:?}");
        assert!(
            !request.settled_only || key == DebtKey::NONE,
            "{pfn} is parked, but the request is for settled frames"
        );
        let before = self.taken.range(..end).next_back();
        assert!(before.is_none_or(|(at, frames)| at + frames <= start), "{pfn} is allocated twice");
        let owed = DebtKey::new(self.settle(start, end));
        assert!(owed.epoch() <= key.epoch() || self.floor.covers(owed), "{pfn} lost a debt");
        self.taken.insert(start, request.order.frames());
    }

    /// INV-FRAME-COUNT: every frame is counted exactly once.
    fn check(&self, frames: &FrameAllocator<Host>) {
        assert_eq!(frames.available() + self.allocated(), frames.managed());
        let in_use = frames.in_use().map(|(pfn, state)| (pfn.raw(), state));
        assert!(
            in_use.eq(self.taken.keys().map(|start| (*start, FrameState::Allocated))),
            "the blocks in use are not the allocated ones"
        );
        let mut parked = 0;
        for zone in frames.zones() {
            let listed: u32 = (0..Order::COUNT as u8).map(|raw| zone.blocks(Order::new(raw)) << raw).sum();
            assert_eq!(listed, zone.free());
            assert!(zone.parked() <= zone.free() + zone.on_pcp());
            parked += u64::from(zone.parked());
        }
        // INV-FRAME-PARKED: settled neighbours of a parked frame stay settled.
        let (unsettled, owing) = (self.owing(|key| !self.floor.covers(key)), self.owing(|_| true));
        assert!((unsettled..=owing).contains(&parked), "{parked} frames are parked, {unsettled} to {owing} owe a debt");
    }
}

/// Allocates a block, or checks that the failure is right.
fn take(frames: &FrameAllocator<Host>, model: &mut Model, request: FrameRequest) -> Option<(Pfn, DebtKey)> {
    let before = frames.available();
    let floor = model.floor;
    match frames.alloc(request, || floor) {
        Ok(unsettled) => {
            let key = unsettled.key();
            let mut settled_key = DebtKey::NONE;
            let block = unsettled.settle(|key| settled_key = key);
            // INV-FRAME-SETTLED: only `settle`, which passes the key, returns the block.
            assert_eq!(settled_key, key);
            assert_eq!(block.order(), request.order);
            let pfn = block.into_raw();
            model.hand_out(frames, request, pfn, key);
            Some((pfn, key))
        }
        Err(refusal) => {
            assert_eq!(refusal, NoFrames { request, cause: NoFramesCause::Exhausted });
            assert_eq!(frames.available(), before, "a failed allocation changed the number of free frames");
            if request.urgency == Urgency::Reserve && !request.settled_only {
                let mut zones = frames.zones().filter(|zone| request.permitted.contains(zone.node()));
                let large = request.order.raw()..Order::COUNT as u8;
                assert!(zones.all(|zone| large.clone().all(|raw| zone.blocks(Order::new(raw)) == 0)));
            }
            None
        }
    }
}

proptest! {
    #[test]
    fn blocks_are_disjoint_keep_their_debt_and_coalesce(steps in prop::collection::vec(a_step(), 1..250)) {
        let frames = machine();
        let initial = shape(&frames);
        let mut model = Model::default();
        let mut held: Vec<Pfn> = Vec::new();
        for step in steps {
            match step {
                Step::Take { cpu, request } => {
                    run_on(cpu);
                    held.extend(take(&frames, &mut model, request).map(|(pfn, _)| pfn));
                }
                Step::GiveBack { cpu, request } => {
                    run_on(cpu);
                    if let Ok(unsettled) = frames.alloc(request, || model.floor) {
                        frames.free_unsettled(unsettled);
                    }
                }
                Step::Free { cpu, which, key } => if !held.is_empty() {
                    run_on(cpu);
                    let pfn = held.swap_remove(which % held.len());
                    let count = model.taken.remove(&pfn.raw()).expect("the model has every held block");
                    if key != DebtKey::NONE {
                        model.owing.insert(pfn.raw(), (pfn.raw() + count, key.epoch()));
                    }
                    frames.free_with_debt(support::block_at(&frames, pfn), key);
                },
                Step::Drain => frames.drain(),
                Step::Settle(epoch) => model.floor = model.floor.max(DebtFloor::new(epoch)),
            }
            model.check(&frames);
        }
        for pfn in held {
            frames.free(support::block_at(&frames, pfn));
        }
        frames.drain();
        support::settle_everything(&frames);
        prop_assert_eq!(shape(&frames), initial, "not all free blocks coalesced");
        prop_assert_eq!(frames.available(), frames.managed());
    }
}

#[test]
fn settling_everything_leaves_nothing_parked() {
    let frames = support::one_node(&Host::new(1), 0, 1 << 13);
    let parked = || frames.zones().map(|zone| zone.parked()).sum::<u32>();
    for raw in [0, 0, 0, 3, 5, 9, 12] {
        let block = frames
            .alloc(FrameRequest::new(Order::new(raw), NODE0), support::nothing_settled)
            .expect("memory is left")
            .settle(|_| {});
        frames.free_with_debt(block, DebtKey::new(u64::from(raw) + 1));
    }
    assert!(parked() > 0);
    let all: Vec<Pfn> = (0..1 << 13)
        .map(|_| {
            frames
                .alloc(FrameRequest::new(Order::ZERO, NODE0), support::nothing_settled)
                .expect("memory is left")
                .settle(|_| {})
                .into_raw()
        })
        .collect();
    assert_eq!(parked(), 0);
    for pfn in all {
        frames.free(support::block_at(&frames, pfn));
    }
    frames.drain();
    assert_eq!(parked(), 0);
    assert_eq!(frames.available(), frames.managed());
}

/// Whichever half of it was freed first.
#[test]
fn only_the_first_frame_of_a_free_block_is_free() {
    const FRAMES: u32 = 1 << 6;
    for first_half in [0, 1] {
        let frames = support::one_node(&Host::new(1), 0, FRAMES);
        let taken: Vec<Pfn> = (0..FRAMES).map(|_| support::take(&frames, 0).into_raw()).collect();
        for half in [first_half, 1 - first_half] {
            let of_half = taken.iter().filter(|pfn| pfn.raw() % 2 == half);
            of_half.for_each(|pfn| frames.free(support::block_at(&frames, *pfn)));
            frames.drain();
        }
        let free: Vec<u32> = (0..FRAMES).filter(|pfn| frames.state(Pfn::new(*pfn)) == FrameState::Free).collect();
        assert_eq!(free, [0]);
    }
}

#[test]
fn settled_blocks_are_handed_out_before_parked_ones() {
    // Whether settled blocks pass through a per-CPU list (order 0) or not (order 4).
    for raw in [0, 4] {
        let frames = support::one_node(&Host::new(1), 0, 32 << raw);
        let request = FrameRequest { settled_only: true, ..FrameRequest::new(Order::new(raw), NODE0) };
        let taken: Vec<Pfn> = (0..32).map(|_| support::take(&frames, raw).into_raw()).collect();
        for pfn in taken {
            // One of each pair of buddies, so that no block coalesces.
            match pfn.raw() >> raw & 3 {
                0 => frames.free_with_debt(support::block_at(&frames, pfn), DebtKey::new(7)),
                2 => frames.free(support::block_at(&frames, pfn)),
                _ => {}
            }
        }
        let mut settled = 0;
        while let Ok(unsettled) = frames.alloc(request, support::nothing_settled) {
            assert_eq!(unsettled.key(), DebtKey::NONE);
            settled += 1;
            let _ = unsettled.settle(|_| {}).into_raw();
        }
        let parked = frames
            .alloc(FrameRequest { settled_only: false, ..request }, support::nothing_settled)
            .expect("parked blocks are left");
        assert_eq!(parked.key(), DebtKey::new(7));
        let _ = parked.settle(|_| {}).into_raw();
        assert_eq!(settled, 8);
    }
}

/// INV-FRAME-PARKED, also for a caller that may not wait.
#[test]
fn a_settled_frame_beside_a_parked_one_is_settled() {
    for raw in [0, 4] {
        let frames = support::one_node(&Host::new(1), 0, 2 << raw);
        let [parked, settled] = [(); 2].map(|()| support::take(&frames, raw));
        let pfn = settled.pfn();
        frames.free_with_debt(parked, DebtKey::new(7));
        frames.free(settled);
        frames.drain();
        let request = FrameRequest { settled_only: true, ..FrameRequest::new(Order::new(raw), NODE0) };
        let found = frames.alloc(request, support::nothing_settled).expect("one of the two is settled");
        assert_eq!((found.key(), found.settle(|_| {}).into_raw()), (DebtKey::NONE, pfn));
        assert!(frames.alloc(request, support::nothing_settled).is_err(), "the other is parked");
    }
}

/// A caller that may not wait gets it, and its halves are one block again.
#[test]
fn a_parked_block_whose_debt_is_settled_is_a_free_block() {
    let frames = support::one_node(&Host::new(1), 0, 32);
    let (one, other) = (support::take(&frames, 4), support::take(&frames, 4));
    frames.free_with_debt(one, DebtKey::new(7));
    frames.free(other);
    let whole = FrameRequest { settled_only: true, ..FrameRequest::new(Order::new(5), NODE0) };
    assert!(frames.alloc(whole, || DebtFloor::new(6)).is_err(), "key 7 is not settled");
    assert_eq!(frames.parked(), 16);
    let block = frames.alloc(whole, || DebtFloor::new(7)).expect("everything is settled");
    assert_eq!((block.key(), frames.parked()), (DebtKey::NONE, 0));
    // What is freed under a settled key is not parked at all.
    frames.free_with_debt(block.settle(|_| {}), DebtKey::new(7));
    assert_eq!(frames.parked(), 0);
}

/// A CPU that knows an older floor than another one has no effect.
#[test]
fn a_debt_that_is_settled_stays_settled() {
    let frames = support::one_node(&Host::new(1), 0, 32);
    let [one, other] = [(); 2].map(|()| support::take(&frames, 4));
    // So that the parked blocks are looked at.
    frames.free_with_debt(one, DebtKey::new(20));
    let whole = FrameRequest { settled_only: true, ..FrameRequest::new(Order::new(5), NODE0) };
    for floor in [9, 5] {
        assert!(frames.alloc(whole, || DebtFloor::new(floor)).is_err(), "half of it is parked, half in use");
    }
    frames.free_with_debt(other, DebtKey::new(7));
    assert_eq!(frames.parked(), 16, "the debt of the second is settled by the floor of 9");
}

/// INV-FRAME-RESERVE.
#[test]
fn callers_that_may_wait_leave_settled_frames_to_those_that_may_not() {
    let ranges = [range(0, 0x2000)];
    let nodes = [NodeSpec { id: NODE0, ranges: &ranges, cpus: cpus([0]) }];
    let layout = MemoryLayout { min_free_kbytes: Some(4096), ..MemoryLayout::new(&nodes) };
    for raw in [0, 4] {
        let frames = FrameAllocator::try_new(Host::new(1), &layout).expect("a valid layout");
        let (order, min) = (Order::new(raw), 1024);
        let parked = support::take(&frames, 12);
        frames.free_with_debt(parked, DebtKey::new(7));
        let request = FrameRequest { urgency: Urgency::Reserve, ..FrameRequest::new(order, NODE0) };
        let mut waited = 0;
        while frames.parked() > 0 {
            let unsettled = frames.alloc(request, support::nothing_settled).expect("memory is left");
            waited += u32::from(unsettled.key() != DebtKey::NONE);
            let _ = unsettled.settle(|_| {}).into_raw();
        }
        assert_eq!(waited, 4096 >> raw);
        let settled_only = FrameRequest { settled_only: true, ..request };
        let mut found = 0;
        while let Ok(unsettled) = frames.alloc(settled_only, support::nothing_settled) {
            found += order.frames();
            let _ = unsettled.settle(|_| {}).into_raw();
        }
        assert!((min - order.frames()..=min + 64).contains(&found), "{found} settled frames were kept");
    }
}

#[test]
fn a_key_follows_the_frames_through_coalescing_and_splitting() {
    let frames = support::one_node(&Host::new(1), 0, 32);
    let whole = support::take(&frames, 5);
    frames.free_with_debt(whole, DebtKey::new(3));
    let half = frames.alloc(FrameRequest::new(Order::new(4), NODE0), support::nothing_settled).expect("half of it");
    assert_eq!(half.key(), DebtKey::new(3));
    frames.free_with_debt(half.settle(|_| {}), DebtKey::new(3));
    let whole = frames.alloc(FrameRequest::new(Order::new(5), NODE0), support::nothing_settled).expect("both halves");
    assert_eq!(whole.key(), DebtKey::new(3));
    frames.free(whole.settle(|_| {}));
    assert_eq!(support::take(&frames, 5).into_raw(), Pfn::new(0), "settled frames owe no debt");
}

/// An allocation of this order, or a free of a block that is held.
#[derive(Clone, Copy, Debug)]
enum MarkStep {
    Take { order: u8, node: u8, strict: bool },
    Free(usize),
}

fn a_mark_step() -> impl Strategy<Value = MarkStep> {
    // Orders that pass through no per-CPU list, so that each changes the free count by its frames.
    let order = prop_oneof![4u8..=8, 10u8..=12];
    prop_oneof![
        6 => (order, 0u8..2, any::<bool>()).prop_map(|(order, node, strict)| MarkStep::Take { order, node, strict }),
        1 => any::<usize>().prop_map(MarkStep::Free),
    ]
}

proptest! {
    // A planted bug leaves no file of failing cases behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A request succeeds exactly if a zone stays above the mark without the frames of its order.
    ///
    /// The low marks of all zones are tried before any `min`.
    #[test]
    fn every_order_leaves_the_watermark_free(
        min_free in 64u64..2_048,
        scale in 0u16..300,
        steps in prop::collection::vec(a_mark_step(), 1..300),
    ) {
        run_on(0);
        let ranges = [[range(0, 0x2000)], [range(0x2000, 0x4000)]];
        let nodes = [0, 1].map(|node| NodeSpec {
            id: NodeId::new(node),
            ranges: &ranges[usize::from(node)],
            cpus: cpus([u16::from(node)]),
        });
        let layout = MemoryLayout {
            min_free_kbytes: Some(min_free), watermark_scale_factor: scale, ..MemoryLayout::new(&nodes)
        };
        let frames = FrameAllocator::try_new(Host::new(2), &layout).expect("a valid layout");
        let mut held = Vec::new();
        for step in steps {
            match step {
                MarkStep::Free(which) => if !held.is_empty() {
                    let pfn = held.swap_remove(which % held.len());
                    frames.free(support::block_at(&frames, pfn));
                },
                MarkStep::Take { order, node, strict } => {
                    let (order, node) = (Order::new(order), NodeId::new(node));
                    let permitted = if strict { NodeMask::of(node) } else { NodeMask::ALL };
                    let request = FrameRequest { permitted, ..FrameRequest::new(order, node) };
                    let zones = || {
                        let near = frames.zones().filter(|zone| zone.node() == node);
                        near.chain(frames.zones().filter(|zone| !strict && zone.node() != node))
                    };
                    let has_block = |at: usize| {
                        let zone = zones().nth(at).expect("a zone");
                        (order.raw()..Order::COUNT as u8).any(|raw| zone.blocks(Order::new(raw)) > 0)
                    };
                    let serves = |mark: fn(&pagewright_frame::Watermarks) -> u32| {
                        let mut zones = zones().enumerate();
                        zones.find(|(at, zone)| {
                            u64::from(zone.free()) >= u64::from(mark(&zone.watermarks())) + u64::from(order.frames()) && has_block(*at)
                        }).map(|(_, zone)| zone.node())
                    };
                    let expected = serves(|marks| marks.low).or_else(|| serves(|marks| marks.min));
                    let got = frames.alloc(request, support::nothing_settled).ok().map(|unsettled| unsettled.settle(|_| {}).into_raw());
                    prop_assert_eq!(got.and_then(|pfn| frames.node_of(pfn)), expected, "{:?}", request);
                    held.extend(got);
                }
            }
        }
        for pfn in held {
            frames.free(support::block_at(&frames, pfn));
        }
    }
}

#[test]
fn watermarks_reserve_frames_for_urgent_requests() {
    let ranges = [range(0, 0x8000)];
    let nodes = [NodeSpec { id: NODE0, ranges: &ranges, cpus: cpus([0]) }];
    let layout = MemoryLayout { min_free_kbytes: Some(4096), ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(Host::new(1), &layout).expect("a valid layout");
    let zone = frames.zones().next().expect("one zone");
    let marks = zone.watermarks();
    assert_eq!((marks.min, marks.low, marks.high), (1024, 1280, 1536));
    // Order 4 does not pass through per-CPU lists, so the count is exact.
    let normal = FrameRequest::new(Order::new(4), NODE0);
    while let Ok(unsettled) = frames.alloc(normal, support::nothing_settled) {
        let _ = unsettled.settle(|_| {}).into_raw();
        assert!(zone.free() >= marks.min);
        assert_eq!(zone.below_low(), zone.free() <= marks.low, "{} frames are free", zone.free());
    }
    assert_eq!(zone.free(), marks.min);
    assert_eq!(frames.counters().sum(pagewright_types::Counter::AllocStall), 1);
    let reserve = FrameRequest { urgency: Urgency::Reserve, ..normal };
    while let Ok(unsettled) = frames.alloc(reserve, support::nothing_settled) {
        let _ = unsettled.settle(|_| {}).into_raw();
    }
    assert_eq!(zone.free(), 0);
}

/// INV-FRAME-RESERVE: parked frames are taken from the moment that only the reserve is settled.
#[test]
fn settled_frames_are_handed_out_down_to_the_watermark() {
    let ranges = [range(0, 0x8000)];
    let nodes = [NodeSpec { id: NODE0, ranges: &ranges, cpus: cpus([0]) }];
    let layout = MemoryLayout { min_free_kbytes: Some(4096), ..MemoryLayout::new(&nodes) };
    // Blocks of order 4 come from the buddy lists, smaller ones in batches through a CPU's list.
    // After nine batches of seven frames, one frame more than the reserve is settled at some time.
    let cases = [(4, (0, 5)), (4, (1, 5)), (4, (63, 0)), (1, (0, 5)), (1, (1, 5)), (0, (0, 5)), (0, (1, 5))];
    for (raw, (held, of)) in cases {
        let frames = FrameAllocator::try_new(Host::new(1), &layout).expect("a valid layout");
        let zone = frames.zones().next().expect("one zone");
        let min = zone.watermarks().min;
        let parked: Vec<_> = (0..64).map(|_| frames.new_folio(support::take(&frames, 4))).collect();
        for folio in parked {
            frames.folio_of(&folio).add_debt(DebtKey::new(1));
            frames.free(frames.put(folio).expect("the last reference"));
        }
        let request = FrameRequest::new(Order::new(raw), NODE0);
        let mut left: Vec<_> = (0..held).map(|_| support::take(&frames, of).into_raw()).collect();
        let settled = || zone.free() - zone.parked();
        let mut owing = 0;
        while owing < 3 {
            let before = settled();
            let block = frames.alloc(request, support::nothing_settled).expect("memory is left");
            if block.key() != DebtKey::NONE {
                owing += 1;
                assert!(before <= min, "order {raw}: {before} settled frames, {min} are the reserve");
            } else {
                assert!(before > min || settled() == before, "order {raw}: {before} settled frames");
            }
            assert!(settled() + Order::new(raw).frames() > min, "order {raw}: {} are settled", settled());
            left.push(block.settle(|_| {}).into_raw());
        }
    }
}

/// INV-FRAME-NODES.
#[test]
fn the_nearest_permitted_node_serves_and_no_other_does() {
    let ranges = [[range(0, 256)], [range(256, 512)], [range(512, 768)]];
    let node = |id: u8| NodeSpec {
        id: NodeId::new(id),
        ranges: &ranges[usize::from(id)],
        cpus: if id == 0 { cpus([0]) } else { cpus([]) },
    };
    let nodes = [node(0), node(1), node(2)];
    let distances = [10, 30, 20, 30, 10, 40, 20, 40, 10];
    let layout = MemoryLayout {
        min_free_kbytes: Some(0),
        watermark_scale_factor: 0,
        distances: Some(&distances),
        ..MemoryLayout::new(&nodes)
    };
    let frames = FrameAllocator::try_new(Host::new(1), &layout).expect("a valid layout");
    assert_eq!(frames.node_of_cpu(pagewright_types::CpuId::new(0)), NODE0);
    let whole = FrameRequest::new(Order::new(8), NODE0);
    let served: Vec<_> = std::iter::from_fn(|| frames.alloc(whole, support::nothing_settled).ok())
        .map(|unsettled| frames.node_of(unsettled.settle(|_| {}).into_raw()).map(NodeId::raw))
        .collect();
    assert_eq!(served, [Some(0), Some(2), Some(1)], "nodes serve in the order of their distance");
    frames.free(support::block_at(&frames, Pfn::new(256)));
    let strict = FrameRequest { permitted: NodeMask::of(NODE0), ..whole };
    assert_eq!(
        frames.alloc(strict, support::nothing_settled),
        Err(NoFrames { request: strict, cause: NoFramesCause::Exhausted })
    );
    let on_one = FrameRequest { permitted: NodeMask::of(NodeId::new(1)), ..whole };
    assert_eq!(
        frames.alloc(on_one, support::nothing_settled).map(|unsettled| unsettled.settle(|_| {}).into_raw()),
        Ok(Pfn::new(256))
    );
}

#[test]
fn memory_above_4_gib_is_allocated_first() {
    let frames = support::one_node(&Host::new(1), 0xf_ff00, 0x10_0100);
    let names: Vec<_> = frames.zones().map(|zone| (zone.kind().name(), zone.managed())).collect();
    assert_eq!(names, [("DMA32", 0x100), ("Normal", 0x100)]);
    assert_eq!(support::take(&frames, 8).into_raw(), Pfn::new(0x10_0000));
    assert_eq!(support::take(&frames, 8).into_raw(), Pfn::new(0xf_ff00));
}

#[test]
fn blocks_on_the_list_of_another_cpu_are_found_before_an_allocation_fails() {
    let frames = support::one_node(&Host::new(2), 0, 64);
    run_on(1);
    let all: Vec<Pfn> = (0..64).map(|_| support::take(&frames, 0).into_raw()).collect();
    frames.free(support::block_at(&frames, all[0]));
    assert_eq!(frames.zones().map(|zone| zone.on_pcp()).sum::<u32>(), 1);
    run_on(0);
    assert_eq!(support::take(&frames, 0).into_raw(), all[0]);
}

#[test]
fn an_allocation_that_is_not_permitted_fails_and_allocates_nothing() {
    let host = Host::new(1);
    let frames = support::one_node(&host, 0, 64);
    let untouched = shape(&frames);
    host.permit(0);
    let request = FrameRequest::new(Order::ZERO, NODE0);
    assert_eq!(
        frames.alloc(request, support::nothing_settled),
        Err(NoFrames { request, cause: NoFramesCause::NotPermitted })
    );
    assert_eq!(shape(&frames), untouched);
    assert_eq!(frames.counters().sum(pagewright_types::Counter::PgAlloc), 0);
    host.permit(1);
    let _ = support::take(&frames, 0).into_raw();
    assert_eq!(frames.counters().sum(pagewright_types::Counter::PgAlloc), 1);
}

#[cfg(feature = "planted")]
#[test]
fn a_watermark_that_ignores_the_order_is_found() {
    pagewright_plant::assert_found_by(
        pagewright_plant::PlantedBug::OrderNotKept,
        every_order_leaves_the_watermark_free,
    );
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_parked_blocks_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::ParkedMerges, a_settled_frame_beside_a_parked_one_is_settled);
    assert_found_by(PlantedBug::FloorNotPassedDown, a_parked_block_whose_debt_is_settled_is_a_free_block);
    assert_found_by(PlantedBug::ReserveNotKept, callers_that_may_wait_leave_settled_frames_to_those_that_may_not);
}

/// A zone below 48 MiB has batches of one block, and lists of at most six.
#[test]
fn a_list_of_a_cpu_keeps_its_limit_and_no_more() {
    const LIMIT: usize = 6;
    let frames = support::one_node(&Host::new(1), 0, 2048);
    run_on(0);
    let mut blocks: Vec<_> = (0..=LIMIT).map(|_| support::take(&frames, 0)).collect();
    frames.drain();
    let on_list = |pfns: &[Pfn]| pfns.iter().filter(|pfn| frames.state(**pfn) == FrameState::Pcp).count();
    let pfns: Vec<_> = blocks.iter().map(|block| block.pfn()).collect();
    let last = blocks.pop().expect("seven");
    blocks.into_iter().for_each(|block| frames.free(block));
    assert_eq!(on_list(&pfns), LIMIT);
    frames.free(last);
    assert_eq!(on_list(&pfns), LIMIT, "a batch of one went to the buddy lists");
    assert_eq!(frames.state(pfns[LIMIT]), FrameState::Pcp, "the oldest went");
    assert_ne!(frames.state(pfns[0]), FrameState::Pcp);
}
