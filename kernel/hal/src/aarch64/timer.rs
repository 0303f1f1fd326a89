//! Time: the generic timer's virtual counter and interrupt, and the PL031 for the date.

use super::mmu::LINEAR;
use aarch64_cpu::registers::{CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_TVAL_EL0, CNTVCT_EL0, Readable, Writeable};
use core::sync::atomic::{AtomicU64, Ordering};

static START: AtomicU64 = AtomicU64::new(0);
static DATE: AtomicU64 = AtomicU64::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(0);

/// Records the counter at boot, and reads the PL031 if there is one.
pub(super) fn start(pl031: Option<u64>) {
    START.store(CNTVCT_EL0.get(), Ordering::Relaxed);
    let date = pl031.map_or(0, |address| {
        // SAFETY: the device tree names the PL031, whose first register is the date; reading it has
        // no effect.
        u64::from(unsafe { core::ptr::with_exposed_provenance::<u32>((LINEAR + address) as usize).read_volatile() })
    });
    DATE.store(date, Ordering::Relaxed);
}

pub(crate) fn now_ns() -> u64 {
    since(START.load(Ordering::Relaxed))
}

/// The counter starts at 0 at power-on (Arm ARM D12.1.2).
pub(crate) fn since_power_on_ns() -> u64 {
    since(0)
}

fn since(start: u64) -> u64 {
    let since = CNTVCT_EL0.get().saturating_sub(start);
    (u128::from(since) * 1_000_000_000 / u128::from(CNTFRQ_EL0.get().max(1))) as u64
}

pub(crate) fn boot_seconds() -> u64 {
    DATE.load(Ordering::Relaxed)
}

pub(crate) fn start_ticking(per_second: u64) {
    PERIOD.store(CNTFRQ_EL0.get() / per_second, Ordering::Relaxed);
    rearm();
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET + CNTV_CTL_EL0::IMASK::CLEAR);
}

/// Sets this CPU's timer for the next tick.
pub(super) fn rearm() {
    CNTV_TVAL_EL0.set(PERIOD.load(Ordering::Relaxed));
}
