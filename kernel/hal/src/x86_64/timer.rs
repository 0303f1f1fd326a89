//! Time: the time-stamp counter and the local APIC's timer.
//!
//! Both are calibrated against the PIT, whose frequency is known.
//!
//! Not guaranteed: time-stamp counters of different CPUs that agree better than firmware set them.

use super::apic;
use super::trap::TICK;
use core::arch::x86_64::_rdtsc;
use spin::Once;
use x86_64::instructions::port::Port;

/// The PIT's input, in Hz.
const PIT_HZ: u64 = 1_193_182;
/// The calibration takes 1/500 s.
const PIT_COUNT: u16 = (PIT_HZ / 500) as u16;

struct Rates {
    tsc_start: u64,
    tsc_hz: u64,
    apic_hz: u64,
    /// Seconds since 1970 at `tsc_start`.
    date: u64,
}

static RATES: Once<Rates> = Once::new();

fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the counter, and reading it has no effect.
    unsafe { _rdtsc() }
}

/// The current count of channel 0 of the PIT, which counts down.
fn pit() -> u16 {
    let (mut command, mut channel) = (Port::<u8>::new(0x43), Port::<u8>::new(0x40));
    // SAFETY: the command latches the count until it is read. The PIT's interrupt is masked, and
    // the PIT has no other user.
    unsafe {
        command.write(0);
        u16::from_le_bytes([channel.read(), channel.read()])
    }
}

/// Makes channel 0 of the PIT count down from 65,535 repeatedly.
fn start_pit() {
    let (mut command, mut channel) = (Port::<u8>::new(0x43), Port::<u8>::new(0x40));
    // SAFETY: as for `pit`.
    unsafe {
        command.write(0b0011_0100);
        channel.write(0xff);
        channel.write(0xff);
    }
}

/// Calibrates both timers and reads the date; on CPU 0, before the first use of the time.
pub(crate) fn measure() {
    RATES.call_once(|| {
        start_pit();
        apic::count_from_top();
        let first = pit();
        let (tsc, apic) = (ticks(), apic::counted());
        let passed = loop {
            let passed = first.wrapping_sub(pit());
            if passed >= PIT_COUNT {
                break u64::from(passed);
            }
        };
        let (tsc, apic) = (ticks() - tsc, apic::counted() - apic);
        let hz = |count: u64| (count * PIT_HZ / passed).max(1);
        let date = date();
        Rates { tsc_start: ticks(), tsc_hz: hz(tsc), apic_hz: hz(u64::from(apic)), date }
    });
}

pub(crate) fn now_ns() -> u64 {
    since(RATES.get().map_or(0, |rates| rates.tsc_start))
}

/// The counter starts at 0 when the CPU is reset (Intel SDM vol. 3B §18.17).
pub(crate) fn since_power_on_ns() -> u64 {
    since(0)
}

fn since(start: u64) -> u64 {
    let Some(rates) = RATES.get() else { return 0 };
    let since = ticks().saturating_sub(start);
    (u128::from(since) * 1_000_000_000 / u128::from(rates.tsc_hz)) as u64
}

pub(crate) fn boot_seconds() -> u64 {
    RATES.get().map_or(0, |rates| rates.date)
}

/// Seconds since 1970 by the battery-backed clock.
///
/// The clock may advance between two registers, so they are read until two readings agree.
fn date() -> u64 {
    let registers = || [0, 2, 4, 7, 8, 9].map(clock);
    let mut read = registers();
    loop {
        let again = registers();
        if again == read {
            break;
        }
        read = again;
    }
    let [second, minute, hour, day, month, year] = read;
    days_since_1970(2000 + year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
}

/// One register of the MC146818, from binary-coded decimal.
fn clock(register: u8) -> u64 {
    // SAFETY: reading a register changes only the clock's index.
    let raw = unsafe {
        Port::<u8>::new(0x70).write(register);
        Port::<u8>::new(0x71).read()
    };
    u64::from(raw >> 4) * 10 + u64::from(raw & 0xf)
}

/// Days from 1970-01-01 in the Gregorian calendar (Hinnant, `days_from_civil`).
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.saturating_sub(1);
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year;
    year / 400 * 146_097 + of_era - 719_468
}

pub(crate) fn start_ticking(per_second: u64) {
    if let Some(rates) = RATES.get() {
        apic::tick(TICK, (rates.apic_hz / per_second) as u32);
    }
}
