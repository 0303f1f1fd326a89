//! CPUs and nodes from ACPI's static tables: MADT, SRAT and SLIT (ACPI 6.5 §5.2).
//!
//! The tables are read once, byte by byte, because their fields are not aligned.
//!
//! Not guaranteed: CPUs with x2APIC ids above 255, which the xAPIC cannot address; they are not
//! started. Latencies of HMAT are not read; a node without CPUs is in the SRAT, too.

use crate::boot::{CPUS, Firmware, Region};
use crate::machine::linear;
use arrayvec::ArrayVec;
use pagewright_types::{NodeId, PhysAddr};

/// The most nodes that the tables may name.
const NODES: usize = 16;
const HEADER: usize = 36;

/// A table including its header, or a structure of one.
#[derive(Clone, Copy)]
struct Bytes(&'static [u8]);

impl Bytes {
    fn at(start: u64, len: usize) -> Self {
        // SAFETY: firmware's tables are in mapped memory, and nothing writes there before they
        // have been read.
        Self(unsafe { core::slice::from_raw_parts(linear(PhysAddr::new(start)), len) })
    }

    fn table(start: u64) -> Self {
        let len = Self::at(start, HEADER).u32(4) as usize;
        Self::at(start, len.max(HEADER))
    }

    fn number<const N: usize>(self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u8(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.number(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.number(at))
    }

    /// The structures of a table from `first` on, each with its type.
    ///
    /// Their first byte is the type, their second the length.
    fn structures(self, first: usize) -> impl Iterator<Item = (u8, Self)> {
        let mut at = first;
        core::iter::from_fn(move || {
            let len = usize::from(self.u8(at + 1));
            let bytes = self.0.get(at..at + len).filter(|_| len >= 2)?;
            at += len;
            Some((bytes[0], Self(bytes)))
        })
    }
}

/// Reads the tables that the RSDP points to, if there is one.
pub(super) fn read(rsdp: u64, firmware: &mut Firmware) {
    if rsdp == 0 {
        return;
    }
    let pointer = Bytes::at(rsdp, HEADER);
    // From revision 2 on there is an XSDT with 64-bit addresses.
    let (root, width) = if pointer.u8(15) >= 2 { (pointer.u64(24), 8) } else { (u64::from(pointer.u32(16)), 4) };
    if root == 0 {
        return;
    }
    let root = Bytes::table(root);
    let find = |signature: &[u8; 4]| {
        let addresses = (HEADER..root.0.len()).step_by(width);
        let addresses = addresses.map(|at| if width == 8 { root.u64(at) } else { u64::from(root.u32(at)) });
        addresses.map(Bytes::table).find(|table| table.0.starts_with(signature))
    };
    let domains = find(b"SRAT").map(|srat| affinities(srat, firmware)).unwrap_or_default();
    if let Some(madt) = find(b"APIC") {
        cpus(madt, &domains, firmware);
    }
    if let Some(slit) = find(b"SLIT") {
        distances(slit, &domains, firmware);
    }
}

/// The proximity domain of each node and of each CPU.
#[derive(Default)]
struct ProximityDomains {
    nodes: ArrayVec<u32, NODES>,
    cpus: ArrayVec<(u32, u32), CPUS>,
}

impl ProximityDomains {
    fn node(&self, domain: u32) -> Option<NodeId> {
        self.nodes.iter().position(|known| *known == domain).map(|index| NodeId::new(index as u8))
    }
}

fn affinities(srat: Bytes, firmware: &mut Firmware) -> ProximityDomains {
    const FIRST: usize = HEADER + 12;
    const ENABLED: u32 = 1;
    let mut domains = ProximityDomains::default();
    for (kind, entry) in srat.structures(FIRST) {
        match kind {
            // Processor local APIC affinity; the domain is split into four bytes.
            0 if entry.u32(4) & ENABLED != 0 => {
                let high: [u8; 3] = entry.number(9);
                let domain = u32::from_le_bytes([entry.u8(2), high[0], high[1], high[2]]);
                let _ = domains.cpus.try_push((u32::from(entry.u8(3)), domain));
            }
            // Memory affinity.
            1 if entry.u32(28) & ENABLED != 0 && entry.u64(16) > 0 => {
                let domain = entry.u32(2);
                if domains.node(domain).is_none() {
                    let _ = domains.nodes.try_push(domain);
                }
                if let Some(node) = domains.node(domain) {
                    let _ = firmware.node_memory.try_push((node, Region::new(entry.u64(8), entry.u64(16))));
                }
            }
            _ => {}
        }
    }
    domains
}

fn cpus(madt: Bytes, domains: &ProximityDomains, firmware: &mut Firmware) {
    const FIRST: usize = HEADER + 8;
    const ENABLED: u32 = 1;
    for (kind, entry) in madt.structures(FIRST) {
        // Processor local APIC.
        if kind == 0 && entry.u32(4) & ENABLED != 0 {
            let id = u32::from(entry.u8(3));
            let domain = domains.cpus.iter().find(|(cpu, _)| *cpu == id).map(|(_, domain)| *domain);
            // A CPU of a node without memory belongs to node 0.
            let node = domain.and_then(|domain| domains.node(domain)).unwrap_or_default();
            let _ = firmware.cpus.try_push((u64::from(id), node));
        }
    }
}

fn distances(slit: Bytes, domains: &ProximityDomains, firmware: &mut Firmware) {
    let localities = slit.u64(HEADER);
    for from in 0..localities {
        for to in 0..localities {
            let distance = slit.u8(HEADER + 8 + (from * localities + to) as usize);
            if let (Some(from), Some(to)) = (domains.node(from as u32), domains.node(to as u32)) {
                let _ = firmware.distances.try_push((from, to, distance));
            }
        }
    }
}
