//! The files of NUMA nodes below `/sys/devices/system`, with Linux's formats.
//!
//! ```text
//!  node/online, possible, has_cpu, …                lists of nodes
//!  node/node0/cpulist, cpumap, distance             firmware's description of the machine
//!  node/node0/meminfo, numastat, vmstat             the memory manager's counts of the node
//!  node/node0/cpu1 ─▶ ../../cpu/cpu1                the CPUs of the node
//!  cpu/cpu1/node0  ─▶ ../../node/node0              the node of the CPU
//! ```
//!
//! Source: Linux, `drivers/base/node.c`.
//!
//! **INV-KERNEL-NODES** Each CPU is on the node that firmware says, by `getcpu`, the lists and
//! masks of `/sys` and the links there alike. Otherwise a program binds its threads and its memory
//! to different nodes.
//!
//! Not guaranteed: files of nodes that Linux has and [`OF_NODE`] does not.

use crate::inode::{Inode, InodeKind};
use crate::memory::mm;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use pagewright_arch::Effects;
use pagewright_hal::NodeInfo;
use pagewright_types::{CpuId, CpuMask};

const READ_ONLY: u32 = 0o100_444;
const DIRECTORY: u32 = 0o040_555;
const LINK: u32 = 0o120_777;

/// The folder of the CPUs.
pub(crate) const CPUS: &str = "/sys/devices/system/cpu";
/// The folder of the nodes.
const NODES: &str = "/sys/devices/system/node";

/// Writes the text of a file of a node.
type ShowNode = fn(&NodeInfo, &mut dyn Write) -> fmt::Result;

/// The files of each node.
const OF_NODE: &[(&str, ShowNode)] = &[
    ("cpulist", |node, out| writeln!(out, "{}", list(cpus_of(node)))),
    ("cpumap", |node, out| show_mask(&cpus_of(node).collect::<Vec<_>>(), out)),
    ("distance", |node, out| {
        let distances = &pagewright_hal::boot_info().distances;
        let nodes = all().len();
        let row = distances.iter().skip(node.id.index() * nodes).take(nodes).map(u8::to_string);
        writeln!(out, "{}", row.collect::<Vec<_>>().join(" "))
    }),
    ("meminfo", |node, out| mm().show_node_meminfo(node.id, out)),
    ("numastat", |node, out| mm().show_numastat(node.id, out)),
    ("vmstat", |node, out| mm().show_node_vmstat(node.id, out)),
];

fn all() -> &'static [NodeInfo] {
    &pagewright_hal::boot_info().nodes
}

/// The CPUs that are online, by number.
pub(crate) fn cpus() -> impl Iterator<Item = usize> {
    online().iter().map(CpuId::index).collect::<Vec<_>>().into_iter()
}

fn online() -> CpuMask {
    pagewright_hal::Machine.online()
}

fn cpus_of(node: &NodeInfo) -> impl Iterator<Item = usize> {
    let online = online();
    node.cpus.iter().filter(move |cpu| online.contains(*cpu)).map(CpuId::index)
}

/// The nodes, as Linux prints a mask of them.
pub(crate) fn node_list() -> String {
    list(all().iter().map(|node| node.id.index()))
}

/// The nodes with CPUs, as Linux prints a mask of them.
pub(crate) fn nodes_with_cpus() -> String {
    list(all().iter().filter(|node| cpus_of(node).next().is_some()).map(|node| node.id.index()))
}

/// Ascending numbers, as Linux prints a mask as a list (`%*pbl`).
pub(crate) fn list(numbers: impl Iterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut().filter(|(_, last)| last + 1 == number) {
            Some((_, last)) => *last = number,
            None => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Writes CPUs as Linux prints a mask (`%*pb`): words of 32 bits, as wide as there are CPUs.
fn show_mask(set: &[usize], out: &mut dyn Write) -> fmt::Result {
    const BITS: usize = 32;
    let possible = cpus().count();
    for word in (0..possible.div_ceil(BITS)).rev() {
        let bits = set.iter().filter(|cpu| *cpu / BITS == word).fold(0_u32, |bits, cpu| bits | 1 << (cpu % BITS));
        let width = (possible - word * BITS).min(BITS).div_ceil(4);
        write!(out, "{bits:0width$x}{}", if word == 0 { "\n" } else { "," })?;
    }
    Ok(())
}

/// What a folder has of these, with modes.
pub(crate) fn entries(directory: &str) -> Vec<(String, u32)> {
    if directory == NODES {
        return all().iter().map(|node| (format!("node{}", node.id), DIRECTORY)).collect();
    }
    if directory == CPUS {
        return cpus().map(|cpu| (format!("cpu{cpu}"), DIRECTORY)).collect();
    }
    if let Some(node) = node_at(directory) {
        let files = OF_NODE.iter().map(|(name, _)| ((*name).to_string(), READ_ONLY));
        return files.chain(cpus_of(node).map(|cpu| (format!("cpu{cpu}"), LINK))).collect();
    }
    let node = cpu_at(directory).and_then(node_of_cpu);
    node.map(|node| (format!("node{}", node.id), LINK)).into_iter().collect()
}

/// The file, the link or the folder at a path.
pub(crate) fn find(path: &str) -> Option<Arc<Inode>> {
    if node_at(path).is_some() || cpu_at(path).is_some() {
        return Some(Inode::new(path, DIRECTORY, InodeKind::Directory));
    }
    let (directory, name) = path.rsplit_once('/')?;
    if let Some((node, (_, show))) =
        node_at(directory).and_then(|node| Some((node, OF_NODE.iter().find(|(known, _)| *known == name)?)))
    {
        let mut text = String::new();
        show(node, &mut text).ok()?;
        return Some(Inode::new(path, READ_ONLY, InodeKind::Text(text.into_bytes())));
    }
    let target = link(path)?;
    Some(Inode::new(path, LINK, InodeKind::Link(target)))
}

/// What a link says, if there is one at a path.
pub(crate) fn link(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/')?;
    let is_link = entries(directory).iter().any(|(known, mode)| known == name && *mode == LINK);
    let folder = if name.starts_with("cpu") { "cpu" } else { "node" };
    is_link.then(|| format!("../../{folder}/{name}"))
}

/// The node whose folder a path is.
fn node_at(path: &str) -> Option<&'static NodeInfo> {
    let number = path.strip_prefix(NODES)?.strip_prefix("/node")?;
    all().iter().find(|node| node.id.to_string() == number)
}

/// The CPU whose folder a path is.
fn cpu_at(path: &str) -> Option<usize> {
    let number = path.strip_prefix(CPUS)?.strip_prefix("/cpu")?;
    cpus().find(|cpu| cpu.to_string() == number)
}

/// The node of a CPU (INV-KERNEL-NODES).
pub(crate) fn node_of_cpu(cpu: usize) -> Option<&'static NodeInfo> {
    all().iter().find(|node| cpus_of(node).any(|known| known == cpu))
}
