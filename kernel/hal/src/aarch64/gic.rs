//! GICv3: interrupts to other CPUs, and the timer interrupt.

use super::mmu::LINEAR;
use crate::boot::CPUS;
use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::gicv3::{GicCpuInterface, GicV3, Group, HIGHEST_NS_PRIORITY, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, UniqueMmioPointer};
use core::ptr::NonNull;
use spin::Mutex;

/// The shootdown IPI; arm64 needs none, but a CPU must handle one that is sent.
pub(super) const SHOOTDOWN: IntId = IntId::sgi(0);
/// The kick: leave user mode, or wake up.
pub(super) const KICK: IntId = IntId::sgi(1);
/// The virtual timer (interrupt 27).
pub(super) const TICK: IntId = IntId::ppi(11);

static GIC: Mutex<Option<GicV3<'static>>> = Mutex::new(None);

/// Starts the controller, on CPU 0.
///
/// # Panics
/// If the device does not respond as a GICv3.
pub(super) fn start(distributor: u64, redistributors: u64, cpus: usize) {
    let at = |address: u64| core::ptr::with_exposed_provenance_mut::<u8>((LINEAR + address) as usize);
    let (Some(distributor), Some(redistributors)) =
        (NonNull::new(at(distributor).cast::<Gicd>()), NonNull::new(at(redistributors).cast::<GicrSgi>()))
    else {
        return;
    };
    // SAFETY: the device tree names them; they are mapped as devices and have no other user.
    let gic = unsafe { GicV3::new(UniqueMmioPointer::new(distributor), redistributors, cpus.min(CPUS)) };
    let Ok(mut gic) = gic else { panic!("the GIC does not respond: {:?}", gic.err()) };
    gic.setup(0);
    *GIC.lock() = Some(gic);
    enable_interrupts(0);
}

/// Initialises the CPU interface and the redistributor of this CPU.
pub(super) fn init_cpu(cpu: usize) {
    if let Some(gic) = GIC.lock().as_mut() {
        gic.init_cpu(cpu);
    }
    GicCpuInterface::enable_group1(true);
    enable_interrupts(cpu);
}

fn enable_interrupts(cpu: usize) {
    GicCpuInterface::set_priority_mask(0xff);
    if let Some(gic) = GIC.lock().as_mut() {
        for interrupt in [SHOOTDOWN, KICK, TICK] {
            let set = gic
                .set_group(interrupt, Some(cpu), Group::Group1NS)
                .and_then(|()| gic.set_interrupt_priority(interrupt, Some(cpu), HIGHEST_NS_PRIORITY))
                .and_then(|()| gic.enable_interrupt(interrupt, Some(cpu), true));
            assert!(set.is_ok(), "the GIC rejects {interrupt:?}: {set:?}");
        }
    }
}

/// Interrupts the CPU with this MPIDR.
pub(super) fn send(mpidr: u64, interrupt: IntId) {
    let [affinity0, affinity1, affinity2, _, affinity3, ..] = mpidr.to_le_bytes();
    let target = SgiTarget::List { affinity3, affinity2, affinity1, target_list: 1 << (affinity0 & 0xf) };
    // Earlier stores must be visible to the interrupted CPU.
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::ISHST);
    let sent = GicCpuInterface::send_sgi(interrupt, target, SgiTargetGroup::CurrentGroup1);
    debug_assert!(sent.is_ok(), "{sent:?}");
}

/// Acknowledges the pending interrupt, if any, calls `handler`, and ends the interrupt.
pub(super) fn handle(handler: impl FnOnce(IntId)) -> bool {
    GicCpuInterface::handle_interrupt(InterruptGroup::Group1, handler)
}
