//! The memory-mapped local APIC: IPIs, the timer, end of interrupt (Intel SDM vol. 3A ch. 11).

use super::mmu::DEVICES;
use core::ptr;

const BASE: u64 = DEVICES + 0xfee0_0000;

/// Registers, by offset.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Register {
    Id = 0x20,
    EndOfInterrupt = 0xb0,
    Spurious = 0xf0,
    CommandLow = 0x300,
    CommandHigh = 0x310,
    Timer = 0x320,
    InitialCount = 0x380,
    CurrentCount = 0x390,
    Divide = 0x3e0,
}

const ENABLE: u32 = 1 << 8;
const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;
const PENDING: u32 = 1 << 12;
const INIT: u32 = 0b101 << 8 | 1 << 14;
const START_UP: u32 = 0b110 << 8 | 1 << 14;
/// Divide by one.
const BY_ONE: u32 = 0b1011;

fn read(register: Register) -> u32 {
    // SAFETY: the page of the local APIC is mapped for devices.
    unsafe { ptr::read_volatile((BASE + register as u64) as *const u32) }
}

fn write(register: Register, value: u32) {
    // SAFETY: as for `read`.
    unsafe { ptr::write_volatile((BASE + register as u64) as *mut u32, value) }
}

/// Enables this CPU's APIC.
pub(crate) fn enable(spurious: u8) {
    write(Register::Spurious, ENABLE | u32::from(spurious));
}

/// This CPU's APIC id.
pub(crate) fn id() -> u32 {
    read(Register::Id) >> 24
}

/// Signals the end of the interrupt.
pub(crate) fn end_of_interrupt() {
    write(Register::EndOfInterrupt, 0);
}

fn command(target: u32, word: u32) {
    // The two halves are one command, which an interrupt handler must not interleave with its own.
    crate::machine::without_interrupts(|| {
        while read(Register::CommandLow) & PENDING != 0 {
            core::hint::spin_loop();
        }
        write(Register::CommandHigh, target << 24);
        write(Register::CommandLow, word);
    });
}

/// Sends an interrupt to a CPU.
pub(crate) fn send(target: u32, vector: u8) {
    command(target, u32::from(vector) | 1 << 14);
}

/// Sends an INIT, which resets a CPU.
pub(crate) fn send_init(target: u32) {
    command(target, INIT);
}

/// Sends a start-up IPI, which starts a CPU at a page below 1 MiB.
pub(crate) fn send_start_up(target: u32, page: u8) {
    command(target, START_UP | u32::from(page));
}

/// Starts counting down from the maximum without an interrupt.
pub(crate) fn count_from_top() {
    write(Register::Divide, BY_ONE);
    write(Register::Timer, MASKED);
    write(Register::InitialCount, u32::MAX);
}

/// Timer ticks since [`count_from_top`].
pub(crate) fn counted() -> u32 {
    u32::MAX - read(Register::CurrentCount)
}

/// Interrupts this CPU every `count` timer ticks.
pub(crate) fn tick(vector: u8, count: u32) {
    write(Register::Divide, BY_ONE);
    write(Register::Timer, PERIODIC | u32::from(vector));
    write(Register::InitialCount, count);
}
