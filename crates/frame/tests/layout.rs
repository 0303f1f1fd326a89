//! The memory layout: invalid layouts are refused with the reason, valid ones are accepted.

#[path = "../../sync/tests/support/refusing_heap.rs"]
mod refusing_heap;
mod support;

use pagewright_frame::{FrameAllocator, FramesError, MAX_NODES, MemoryLayout, MemoryLayoutError, NodeSpec};
use pagewright_sync::AllocError;
use pagewright_types::{CpuId, CpuMask, FrameRange, NodeId, Pfn};
use refusing_heap::{RefusingHeap, refusing};
use support::{Host, NODE0, cpus, range};

#[global_allocator]
static HEAP: RefusingHeap = RefusingHeap;

fn error(nodes: &[NodeSpec<'_>]) -> MemoryLayoutError {
    match FrameAllocator::try_new(Host::new(1), &MemoryLayout::new(nodes)) {
        Err(FramesError::Layout(error)) => error,
        Err(FramesError::OutOfMemory(error)) => panic!("{error}"),
        Ok(_) => panic!("an invalid layout is accepted"),
    }
}

fn node(id: u8, ranges: &[FrameRange], mask: CpuMask) -> NodeSpec<'_> {
    NodeSpec { id: NodeId::new(id), ranges, cpus: mask }
}

#[test]
fn every_invalid_layout_is_refused_with_its_error() {
    let (low, high) = ([range(0, 64)], [range(64, 128)]);
    assert_eq!(error(&[]), MemoryLayoutError::NodeCount(0));
    assert_eq!(error(&[node(0, &low, cpus([0])); MAX_NODES + 1]), MemoryLayoutError::NodeCount(MAX_NODES + 1));
    assert_eq!(error(&[node(1, &low, cpus([0]))]), MemoryLayoutError::NodeOutOfOrder(NodeId::new(1)));
    assert_eq!(error(&[node(0, &[], cpus([0]))]), MemoryLayoutError::NodeWithoutMemory(NODE0));
    assert_eq!(error(&[node(0, &low, cpus([]))]), MemoryLayoutError::NoCpu);
    for (there, missing) in [([0, 2], 1), ([1, 2], 0)] {
        assert_eq!(error(&[node(0, &low, cpus(there))]), MemoryLayoutError::CpuOnNoNode(CpuId::new(missing)));
    }
    let twice = [node(0, &low, cpus([0])), node(1, &high, cpus([0]))];
    assert_eq!(error(&twice), MemoryLayoutError::CpuOnTwoNodes(CpuId::new(0)));
    for bad in [range(5, 5), range(0, u32::MAX)] {
        assert_eq!(error(&[node(0, &[bad], cpus([0]))]), MemoryLayoutError::BadRange { node: NODE0, range: bad });
    }
    let backwards = [range(64, 128), range(0, 65)];
    let refused = MemoryLayoutError::BadRange { node: NODE0, range: backwards[1] };
    assert_eq!(error(&[node(0, &backwards, cpus([0]))]), refused);
    let over = [range(63, 70)];
    let overlapping = [node(0, &low, cpus([0])), node(1, &over, cpus([]))];
    assert_eq!(error(&overlapping), MemoryLayoutError::Overlap { node: NodeId::new(1), range: over[0], other: low[0] });
    let distances = MemoryLayout { distances: Some(&[10, 20]), ..MemoryLayout::new(&twice[..1]) };
    let refused = FramesError::Layout(MemoryLayoutError::Distances { nodes: 1, given: 2 });
    assert_eq!(FrameAllocator::try_new(Host::new(1), &distances).err(), Some(refused));
}

#[test]
fn an_error_text_names_the_node_and_the_frames() {
    let overlap = MemoryLayoutError::Overlap { node: NodeId::new(3), range: range(16, 32), other: range(0, 17) };
    assert_eq!(overlap.to_string(), "node 3 has frames 0x10-0x20, which overlap 0x0-0x11 of another node");
    assert_eq!(MemoryLayoutError::CpuOnTwoNodes(CpuId::new(7)).to_string(), "CPU 7 is on two nodes");
}

#[test]
fn setup_fails_if_the_allocation_is_not_permitted() {
    let host = Host::new(1);
    host.permit(0);
    let ranges = [range(0, 64)];
    let made = FrameAllocator::try_new(host, &MemoryLayout::new(&[node(0, &ranges, cpus([0]))]));
    assert!(matches!(made, Err(FramesError::OutOfMemory(_))));
}

#[test]
fn setup_fails_by_the_size_of_whatever_can_not_be_allocated() {
    let (low, high) = ([range(0, 64)], [range(64, 128), range(1 << 20, (1 << 20) + 64)]);
    let nodes = [node(0, &low, cpus([0, 2])), node(1, &high, cpus([1]))];
    let (host, layout) = (Host::new(3), MemoryLayout::new(&nodes));
    // What is allocated once in a program is allocated here.
    drop(FrameAllocator::try_new(host.clone(), &layout));
    for others in 0.. {
        match refusing(others, || FrameAllocator::try_new(host.clone(), &layout)) {
            (made, Some(bytes)) => {
                let refused = FramesError::OutOfMemory(AllocError { bytes });
                assert_eq!(made.err(), Some(refused), "after {others} others");
            }
            (made, None) => {
                assert!(made.is_ok());
                assert!(others > 10, "{others} allocations were refused");
                break;
            }
        }
    }
}

#[test]
fn a_cpu_is_on_the_node_that_names_it() {
    let (low, high) = ([range(0, 64)], [range(64, 128)]);
    let nodes = [node(0, &low, cpus([0, 3])), node(1, &high, cpus([1, 2]))];
    let frames = FrameAllocator::try_new(Host::new(4), &MemoryLayout::new(&nodes)).expect("a valid layout");
    let on = [0, 1, 2, 3].map(|cpu| frames.node_of_cpu(CpuId::new(cpu)).raw());
    assert_eq!(on, [0, 1, 1, 0]);
}

#[test]
fn a_hole_belongs_to_no_node_and_its_frames_are_never_allocated() {
    // An arm64 machine whose memory begins at 1 GiB, with interleaved nodes and a hole.
    let (even, odd) = ([range(0x4_0000, 0x4_0040), range(0x4_0080, 0x4_00c0)], [range(0x4_0040, 0x4_0080)]);
    let nodes = [node(0, &even, cpus([0])), node(1, &odd, cpus([1]))];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(Host::new(2), &layout).expect("a valid layout");
    assert_eq!((frames.managed(), frames.nodes(), frames.cpus()), (192, 2, 2));
    for (pfn, owner) in
        [(0x3_ffff, None), (0x4_0000, Some(0)), (0x4_007f, Some(1)), (0x4_0080, Some(0)), (0x4_00c0, None)]
    {
        assert_eq!(frames.node_of(Pfn::new(pfn)).map(NodeId::raw), owner);
    }
    // INV-FRAME-BUDDY: free buddies in different zones never coalesce.
    for zone in frames.zones() {
        assert_eq!(zone.blocks(pagewright_types::Order::new(6)), if zone.node() == NODE0 { 2 } else { 1 });
    }
}

#[test]
fn a_machine_has_as_many_nodes_as_the_limit() {
    let ranges: Vec<_> = (0..MAX_NODES as u32).map(|number| [range(number * 64, number * 64 + 64)]).collect();
    let on_first = |number| if number == 0 { cpus([0]) } else { cpus([]) };
    let nodes: Vec<_> = (0_u8..).zip(&ranges).map(|(number, ranges)| node(number, ranges, on_first(number))).collect();
    let frames = FrameAllocator::try_new(Host::new(1), &MemoryLayout::new(&nodes)).expect("a valid layout");
    assert_eq!(frames.nodes(), MAX_NODES);
}

/// At 4 GiB a zone ends, and with it a range that reaches there.
#[test]
fn ranges_of_two_nodes_meet_where_a_zone_ends() {
    const END: u32 = 1 << 20;
    let (one, two) = ([range(END, END + 64)], [range(END - 64, END), range(END + 64, END + 128)]);
    let nodes = [node(0, &one, cpus([0])), node(1, &two, cpus([]))];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(Host::new(1), &layout).expect("a valid layout");
    for (pfn, owner) in [(END - 1, 1), (END, 0), (END + 63, 0), (END + 64, 1)] {
        assert_eq!(frames.node_of(Pfn::new(pfn)).map(NodeId::raw), Some(owner), "frame {pfn:#x}");
    }
}

#[test]
fn records_of_untouched_frames_cost_no_memory() {
    // 64 GiB of frames have 1 GiB of records.
    let frames = support::one_node(&Host::new(1), 0, 1 << 24);
    assert_eq!(frames.managed(), 1 << 24);
    frames.free(support::take(&frames, 18));
    frames.free(support::take(&frames, 0));
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line VmRSS");
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kilobytes < 128 << 10, "{kilobytes} kB are resident");
}
