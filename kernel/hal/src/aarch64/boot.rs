//! From the device tree to [`Firmware`].
//!
//! Not guaranteed: that the image boots on a machine whose memory does not begin at 1 GiB, for
//! which it is linked.

use super::mmu::{self, LINEAR};
use super::{gic, io, smp, timer, trap};
use crate::boot::{CPUS, Firmware, REGIONS, Region};
use arrayvec::ArrayVec;
use core::ffi::CStr;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use pagewright_types::{CpuId, NodeId};

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// Entry from `boot.s` on CPU 0, with interrupts disabled, on the boot tables and the boot stack.
///
/// # Safety
/// Must be called once, with the physical address of the device tree.
#[unsafe(no_mangle)]
unsafe extern "C" fn boot_cpu_start(tree: u64) -> ! {
    trap::install(CpuId::new(0));
    mmu::drop_identity();
    let pointer = core::ptr::with_exposed_provenance::<u8>((LINEAR + tree) as usize);
    // SAFETY: the boot protocol places the tree there, in the GiB of memory that is mapped, and
    // nothing writes to it.
    let Ok(fdt) = (unsafe { Fdt::from_raw(pointer) }) else { super::io::power_off(1) };
    devices(fdt);
    mmu::check();
    let firmware = firmware(fdt, tree);
    firmware.memory.iter().for_each(|region| mmu::map_memory(*region));
    crate::boot::start(firmware)
}

fn compatible<'a>(fdt: Fdt<'a>, name: &str) -> Option<FdtNode<'a>> {
    fdt.root().children().find(|node| node.compatible().is_some_and(|mut names| names.any(|known| known == name)))
}

/// The `reg` property of a node as regions.
fn registers(node: FdtNode<'_>) -> ArrayVec<Region, REGIONS> {
    let all = node.reg().ok().flatten().into_iter().flatten();
    all.filter_map(|reg| Some(Region::new(reg.address().ok()?, reg.size().ok()?))).take(REGIONS).collect()
}

fn number(node: FdtNode<'_>, name: &str) -> Option<u32> {
    node.property(name)?.value_as().ok()
}

fn node_id(node: FdtNode<'_>) -> NodeId {
    NodeId::new(number(node, "numa-node-id").unwrap_or(0) as u8)
}

/// Starts the serial port, the clock and the interrupt controller.
fn devices(fdt: Fdt<'_>) {
    if let Some(uart) = compatible(fdt, "arm,pl011").and_then(|node| registers(node).first().copied()) {
        io::start(uart.start);
    }
    timer::start(compatible(fdt, "arm,pl031").and_then(|node| registers(node).first().map(|region| region.start)));
    let cpus = cpus(fdt);
    smp::set_hardware_ids(&cpus);
    let gic = compatible(fdt, "arm,gic-v3").map(registers).unwrap_or_default();
    let [distributor, redistributors, ..] = gic[..] else { panic!("no GICv3 in the device tree") };
    gic::start(distributor.start, redistributors.start, cpus.len());
}

fn cpus(fdt: Fdt<'_>) -> ArrayVec<(u64, NodeId), CPUS> {
    let Some(all) = fdt.find_node("/cpus") else { return ArrayVec::new() };
    let cpus = all.children().filter(|node| node.name_without_address() == "cpu");
    // The `reg` of a CPU has an address and no size.
    let id = |node: FdtNode<'_>| node.reg().ok().flatten().and_then(|mut all| all.next()?.address::<u64>().ok());
    cpus.filter_map(|node| Some((id(node)?, node_id(node)))).take(CPUS).collect()
}

fn firmware(fdt: Fdt<'static>, tree: u64) -> Firmware {
    let mut reserved: ArrayVec<Region, REGIONS> = ArrayVec::new();
    reserved.push(Region { start: &raw const image_start as u64 - LINEAR, end: &raw const image_end as u64 - LINEAR });
    reserved.push(Region::new(tree, fdt.data().len() as u64));
    let mut memory: ArrayVec<Region, REGIONS> = ArrayVec::new();
    let mut node_memory: ArrayVec<(NodeId, Region), REGIONS> = ArrayVec::new();
    for node in fdt.root().children().filter(|node| node.name_without_address() == "memory") {
        for region in registers(node) {
            memory.push(region);
            node_memory.push((node_id(node), region));
        }
    }
    let chosen = fdt.find_node("/chosen");
    let address = |name: &str| {
        let property = chosen?.property(name)?;
        // The loader may write one cell or two.
        property.value_as::<u64>().ok().or_else(|| property.value_as::<u32>().ok().map(u64::from))
    };
    let initrd = address("linux,initrd-start").zip(address("linux,initrd-end"));
    let initrd = initrd.map(|(start, end)| Region { start, end });
    reserved.extend(initrd);
    let line = chosen.and_then(|node| node.property("bootargs"));
    let line = line.and_then(|property| CStr::from_bytes_until_nul(property.value_as().ok()?).ok());
    let command_line = line.and_then(|line| line.to_str().ok()).unwrap_or_default();
    Firmware {
        memory,
        reserved,
        node_memory,
        cpus: cpus(fdt),
        distances: distances(fdt),
        initrd,
        command_line: report_to(command_line),
    }
}

/// Opens the report file named by `report=FILE` at the start of the command line.
///
/// Returns the rest of the command line.
fn report_to(line: &'static str) -> &'static str {
    let Some(rest) = line.strip_prefix("report=") else { return line };
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut bytes = [0; 256];
    if let Some(place) = bytes.get_mut(..name.len()) {
        place.copy_from_slice(name.as_bytes());
        if let Ok(name) = CStr::from_bytes_until_nul(&bytes) {
            io::open_report(name);
        }
    }
    rest
}

/// The NUMA distance map: triples of two nodes and their distance.
fn distances(fdt: Fdt<'_>) -> ArrayVec<(NodeId, NodeId, u8), 256> {
    let map = fdt.find_node("/distance-map").and_then(|node| node.property("distance-matrix"));
    let bytes: &[u8] = map.and_then(|property| property.value_as().ok()).unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_be_bytes) as u8;
    let triples = bytes.chunks_exact(12);
    triples
        .map(|triple| (NodeId::new(word(&triple[..4])), NodeId::new(word(&triple[4..8])), word(&triple[8..])))
        .take(256)
        .collect()
}
