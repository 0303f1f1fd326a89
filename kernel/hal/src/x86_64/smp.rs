//! The secondary CPUs, started by INIT and start-up IPIs (Intel SDM vol. 3A §9.4).
//!
//! They start one after the other, so that all can use one trampoline page below 1 MiB.

use super::mmu::{self, drop_identity};
use super::{apic, timer, trap};
use crate::boot::{BootInfo, CPUS};
use crate::machine::linear;
use crate::{smp, stacks};
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_types::{CpuId, NodeId, PhysAddr};

/// The physical address of the trampoline (`boot.s`).
const TRAMPOLINE: u64 = 0x8000;
/// The delays after INIT (10 ms) and between two start-up IPIs (200 µs), in ns.
const INIT_DELAY_NS: u64 = 10_000_000;
const START_UP_DELAY_NS: u64 = 200_000;

static HARDWARE_IDS: [AtomicU32; CPUS] = [const { AtomicU32::new(0) }; CPUS];

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static trampoline_cpu: u8;
    static trampoline_stack: u8;
}

/// Stores the hardware ids (APIC ids) of the CPUs.
pub(super) fn set_hardware_ids(cpus: &ArrayVec<(u64, NodeId), CPUS>) {
    for (index, (id, _)) in cpus.iter().enumerate() {
        HARDWARE_IDS[index].store(*id as u32, Ordering::Relaxed);
    }
}

pub(crate) fn hardware_id(cpu: CpuId) -> u32 {
    HARDWARE_IDS[cpu.index()].load(Ordering::Relaxed)
}

fn wait_until(deadline: u64, done: impl Fn() -> bool) -> bool {
    while !done() {
        if timer::now_ns() >= deadline {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

/// Starts every other CPU; each waits for [`smp::release_others`].
pub(crate) fn start_others(info: &BootInfo) {
    let (start, end) = (&raw const trampoline_start, &raw const trampoline_end);
    let at = |label: *const u8| PhysAddr::new(TRAMPOLINE + (label as u64 - start as u64));
    let len = end as usize - start as usize;
    // SAFETY: memory below 1 MiB has no other user; the code is shorter than a page.
    unsafe { linear(PhysAddr::new(TRAMPOLINE)).copy_from_nonoverlapping(start, len) };
    for cpu in 1..info.cpus.len() {
        let stack = stacks::new(CpuId::new(cpu as u16));
        // SAFETY: the words are in the copied trampoline, which no CPU executes now.
        unsafe {
            linear(at(&raw const trampoline_cpu)).cast::<u64>().write_unaligned(cpu as u64);
            linear(at(&raw const trampoline_stack)).cast::<u64>().write_unaligned(stack);
        }
        let target = hardware_id(CpuId::new(cpu as u16));
        let started = || smp::has_started(cpu);
        apic::send_init(target);
        wait_until(timer::now_ns() + INIT_DELAY_NS, || false);
        apic::send_start_up(target, (TRAMPOLINE >> 12) as u8);
        if !wait_until(timer::now_ns() + START_UP_DELAY_NS, started) {
            apic::send_start_up(target, (TRAMPOLINE >> 12) as u8);
        }
        smp::wait_for(cpu);
    }
    drop_identity();
}

/// Entry from `boot.s` on a secondary CPU, on its own stack.
///
/// # Safety
/// Must be called once on each secondary CPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn other_cpu_start(cpu: u64) -> ! {
    trap::install(CpuId::new(cpu as u16));
    mmu::enable();
    apic::enable(trap::SPURIOUS);
    smp::join(cpu)
}
