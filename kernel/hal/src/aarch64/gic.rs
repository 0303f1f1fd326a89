//! GICv3: interrupts to other CPUs, and the timer's.

use super::mmu::LINEAR;
use crate::boot::CPUS;
use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::gicv3::{GicCpuInterface, GicV3, Group, HIGHEST_NS_PRIORITY, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, UniqueMmioPointer};
use core::ptr::NonNull;
use spin::Mutex;

/// A shootdown. arm64 has none, but a machine that is asked for one must serve it.
pub(super) const SHOOTDOWN: IntId = IntId::sgi(0);
/// Leave user mode, or wake up.
pub(super) const POKE: IntId = IntId::sgi(1);
/// The virtual timer (interrupt 27).
pub(super) const TICK: IntId = IntId::ppi(11);

static GIC: Mutex<Option<GicV3<'static>>> = Mutex::new(None);

/// Starts the controller, on CPU 0.
///
/// # Panics
/// When it does not answer as a GICv3 does.
pub(super) fn start(distributor: u64, redistributors: u64, cpus: usize) {
    let at = |address: u64| core::ptr::with_exposed_provenance_mut::<u8>((LINEAR + address) as usize);
    let (Some(distributor), Some(redistributors)) =
        (NonNull::new(at(distributor).cast::<Gicd>()), NonNull::new(at(redistributors).cast::<GicrSgi>()))
    else {
        return;
    };
    // SAFETY: the device tree says that they are there; they are mapped as devices, and nobody else
    // uses them.
    let gic = unsafe { GicV3::new(UniqueMmioPointer::new(distributor), redistributors, cpus.min(CPUS)) };
    let Ok(mut gic) = gic else { panic!("the GIC does not answer: {:?}", gic.err()) };
    gic.setup(0);
    *GIC.lock() = Some(gic);
    open(0);
}

/// Lets this CPU's interrupts through.
pub(super) fn start_here(cpu: usize) {
    if let Some(gic) = GIC.lock().as_mut() {
        gic.init_cpu(cpu);
    }
    GicCpuInterface::enable_group1(true);
    open(cpu);
}

fn open(cpu: usize) {
    GicCpuInterface::set_priority_mask(0xff);
    if let Some(gic) = GIC.lock().as_mut() {
        for interrupt in [SHOOTDOWN, POKE, TICK] {
            let set = gic
                .set_group(interrupt, Some(cpu), Group::Group1NS)
                .and_then(|()| gic.set_interrupt_priority(interrupt, Some(cpu), HIGHEST_NS_PRIORITY))
                .and_then(|()| gic.enable_interrupt(interrupt, Some(cpu), true));
            assert!(set.is_ok(), "the GIC refuses {interrupt:?}: {set:?}");
        }
    }
}

/// Interrupts the CPU with this MPIDR.
pub(super) fn send(mpidr: u64, interrupt: IntId) {
    let [affinity0, affinity1, affinity2, _, affinity3, ..] = mpidr.to_le_bytes();
    let target = SgiTarget::List { affinity3, affinity2, affinity1, target_list: 1 << (affinity0 & 0xf) };
    // What is stored before is visible to who is interrupted.
    aarch64_cpu::asm::barrier::dsb(aarch64_cpu::asm::barrier::ISHST);
    let sent = GicCpuInterface::send_sgi(interrupt, target, SgiTargetGroup::CurrentGroup1);
    debug_assert!(sent.is_ok(), "{sent:?}");
}

/// Takes the interrupt that has come, if any, and ends it after `serve`.
pub(super) fn handle(serve: impl FnOnce(IntId)) -> bool {
    GicCpuInterface::handle_interrupt(InterruptGroup::Group1, serve)
}
