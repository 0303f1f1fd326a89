//! From PVH's start info to [`Firmware`].
//!
//! Source: Xen, `include/public/arch-x86/hvm/start_info.h`.
//!
//! Not guaranteed: a boot by any other protocol.

use super::mmu::IMAGE;
use super::{acpi, apic, interrupts, mmu, smp, timer, trap};
use crate::boot::{Firmware, Region};
use crate::machine::linear;
use arrayvec::ArrayVec;
use core::ffi::CStr;
use pagewright_types::{CpuId, NodeId, PhysAddr};

#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
struct MemoryEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
/// Usable memory, as in the BIOS's E820 map.
const RAM: u32 = 1;

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// A structure of the boot protocol.
///
/// # Safety
/// `at` must be the physical address of a `T` that nothing writes to.
unsafe fn boot_data<T>(at: u64) -> &'static T {
    // SAFETY: guaranteed by the caller.
    unsafe { &*linear(PhysAddr::new(at)).cast::<T>() }
}

/// Entry from `boot.s` on CPU 0, with interrupts disabled, on the boot tables and the boot stack.
///
/// # Safety
/// Must be called once, with the address of PVH's start info.
#[unsafe(no_mangle)]
unsafe extern "C" fn boot_cpu_start(start_info: u32) -> ! {
    interrupts::mask_pics();
    trap::install(CpuId::new(0));
    mmu::guard_boot_stack();
    mmu::enable();
    apic::enable(trap::SPURIOUS);
    timer::measure();
    // SAFETY: PVH passes the address.
    let info: &StartInfo = unsafe { boot_data(u64::from(start_info)) };
    assert_eq!(info.magic, MAGIC, "not started by PVH");
    crate::boot::start(firmware(info))
}

fn firmware(info: &'static StartInfo) -> Firmware {
    // Only the addresses of these symbols are used.
    let ends = (&raw const image_start as u64 - IMAGE, &raw const image_end as u64 - IMAGE);
    let mut reserved: ArrayVec<Region, { crate::boot::REGIONS }> = ArrayVec::new();
    reserved.push(Region { start: ends.0, end: ends.1 });
    let entry_size = size_of::<MemoryEntry>() as u64;
    let memory = (0..u64::from(info.memory_entries))
        // SAFETY: the list has that many entries.
        .map(|index| unsafe { boot_data::<MemoryEntry>(info.memory_map + index * entry_size) })
        .filter(|entry| entry.kind == RAM)
        .map(|entry| Region::new(entry.address, entry.size))
        .collect();
    let module = (info.modules > 0).then(|| {
        // SAFETY: the list has at least one entry.
        unsafe { boot_data::<Module>(info.module_list) }
    });
    let initrd = module.map(|module| Region::new(module.address, module.size));
    reserved.extend(initrd);
    let command_line = match info.command_line {
        0 => "",
        // SAFETY: PVH terminates the command line with a zero.
        at => unsafe { CStr::from_ptr(linear(PhysAddr::new(at)).cast_const().cast()) }.to_str().unwrap_or(""),
    };
    // The other structures of the boot protocol are read before their memory is allocated. The
    // command line is kept.
    reserved.push(Region::new(info.command_line, command_line.len() as u64 + 1));
    let mut firmware = Firmware {
        memory,
        reserved,
        node_memory: ArrayVec::new(),
        cpus: ArrayVec::new(),
        distances: ArrayVec::new(),
        initrd,
        command_line,
    };
    acpi::read(info.rsdp, &mut firmware);
    let first = u64::from(apic::id());
    if firmware.cpus.is_empty() {
        firmware.cpus.push((first, NodeId::new(0)));
    }
    // The boot CPU is CPU 0.
    firmware.cpus.sort_by_key(|(id, _)| (*id != first, *id));
    smp::set_hardware_ids(&firmware.cpus);
    firmware
}
