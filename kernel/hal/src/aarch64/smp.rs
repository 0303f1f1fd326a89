//! The secondary CPUs, started through PSCI.

use super::mmu::{self, LINEAR};
use super::{gic, trap};
use crate::boot::{BootInfo, CPUS};
use crate::{smp, stacks};
use aarch64_cpu::asm::barrier;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::{CpuId, NodeId};
use smccc::{Hvc, psci};

static HARDWARE_IDS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

unsafe extern "C" {
    safe fn other_cpu_entry();
}

/// Stores the hardware ids (MPIDR) of the CPUs.
pub(super) fn set_hardware_ids(cpus: &ArrayVec<(u64, NodeId), CPUS>) {
    for (index, (id, _)) in cpus.iter().enumerate() {
        HARDWARE_IDS[index].store(*id, Ordering::Relaxed);
    }
}

pub(crate) fn hardware_id(cpu: CpuId) -> u64 {
    HARDWARE_IDS[cpu.index()].load(Ordering::Relaxed)
}

/// Starts every other CPU; each waits for [`smp::release_others`].
///
/// # Panics
/// If firmware refuses to start one: the memory manager numbers CPUs from 0 without a gap.
pub(crate) fn start_others(info: &BootInfo) {
    for cpu in 1..info.cpus.len() {
        let id = CpuId::new(cpu as u16);
        let words = Box::leak(Box::new([cpu as u64, stacks::new(id)]));
        // The CPU must see its words and the tables of its stack.
        mmu::publish();
        barrier::isb(barrier::SY);
        let target = hardware_id(id);
        let entry = other_cpu_entry as *const () as u64 - LINEAR;
        let asked = psci::cpu_on::<Hvc>(target, entry, words.as_ptr() as u64 - LINEAR);
        assert!(asked.is_ok(), "CPU {cpu} (MPIDR {target:#x}): {asked:?}");
        smp::wait_for(cpu);
    }
}

/// Entry from `boot.s` on a secondary CPU, on its own stack.
///
/// # Safety
/// Must be called once on each secondary CPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn other_cpu_start(cpu: u64) -> ! {
    trap::install(CpuId::new(cpu as u16));
    mmu::drop_identity();
    gic::init_cpu(cpu as usize);
    smp::join(cpu)
}
