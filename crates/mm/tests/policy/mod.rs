//! Memory policies: on which node a page is allocated.
//!
//! A machine of two nodes with a CPU each: the local node is the one that a policy excludes.
//!
//! Not covered: the decoding of calls (`pagewright-syscall`), and batches of pages that are cleared
//! ahead, which need a machine with a linear map (`host/tests/clear.rs`).

mod calls;
mod placement;
mod planted;

use pagewright_arch::Isa;
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld, at, one_node_machine};
use pagewright_mm::policy::{MemPolicy, PolicyFlags, PolicyMode, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest};
use pagewright_mm::{MmError, MmSetting};
use pagewright_sim::NodeConfig;
use pagewright_types::{Access, CpuMask, NodeId, NodeMask, PAGE_SIZE, VirtAddr};
use std::rc::Rc;

/// The node of [`CPU`].
const NEAR: NodeId = NodeId::new(0);
/// The node of [`OTHER`].
const FAR: NodeId = NodeId::new(1);
/// The frames of a node.
const FRAMES: u64 = 1024;

fn two_nodes<I: Isa>() -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let mut config = one_node_machine::<I>(2, FRAMES * PAGE_SIZE);
    config.nodes[0].cpus = CpuMask::of(CPU);
    config.nodes.push(NodeConfig { bytes: FRAMES * PAGE_SIZE, cpus: CpuMask::of(OTHER) });
    let world = TestWorld::<I>::on_machine(config);
    world.set(MmSetting::OvercommitMemory, "1");
    let process = TestProcess::new(&world);
    (world, process)
}

fn policy(mode: PolicyMode, nodes: &[NodeId]) -> PolicyRequest {
    let word = nodes.iter().fold(0, |word, node| word | NodeMask::of(*node).word());
    PolicyRequest { mode, flags: PolicyFlags::empty(), nodes: NodeMask::from_word(word) }
}

fn bind_to(node: NodeId) -> PolicyRequest {
    policy(PolicyMode::Bind, &[node])
}

/// `mbind` of pages of a process.
fn mbind<I: Isa>(
    process: &TestProcess<I>,
    addr: VirtAddr,
    pages: u64,
    policy: PolicyRequest,
    flags: BindFlags,
) -> Result<(), MmError> {
    let request = BindRequest { addr, len: pages * PAGE_SIZE, policy, flags };
    process.world.on(CPU, |mm| mm.mbind(&process.space, request, false))
}

fn bind<I: Isa>(process: &TestProcess<I>, addr: VirtAddr, pages: u64, policy: PolicyRequest) {
    mbind(process, addr, pages, policy, BindFlags::empty()).expect("a policy for mapped pages");
}

/// The node of the page that an access of [`CPU`] reaches.
fn node<I: Isa>(process: &TestProcess<I>, va: VirtAddr, access: Access) -> Option<NodeId> {
    let pfn = process.frame(CPU, va, access);
    process.world.on(CPU, |mm| mm.tlb().frames().node_of(pfn))
}

/// The policy of the mapping at an address.
fn policy_at<I: Isa>(process: &TestProcess<I>, va: VirtAddr) -> MemPolicy {
    process.space.map().read().find(va).expect("a mapping").1.policy()
}

/// The mode and the nodes of the policy of each of `pages` from `base` on.
fn modes<I: Isa>(process: &TestProcess<I>, base: VirtAddr, pages: u64) -> Vec<(PolicyMode, u64)> {
    let of = |page| policy_at(process, at(base, page));
    (0..pages).map(of).map(|policy| (policy.mode(), policy.reported_nodes().word())).collect()
}
