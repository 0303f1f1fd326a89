//! Executes a decoded instruction on the CPU that runs now.

use crate::decode::{ControlRegister, GeneralRegisters, Privileged};
use pagewright_check::{Cpu, Invalidate, InvalidateScope, InvalidateTarget, Level, Tag, VirtAddr, X86_64};

/// Executes `instruction`, with the address of the next one.
///
/// `read` returns the two words of an INVPCID descriptor.
///
/// # Panics
/// As the methods of [`Cpu`], and for an INVPCID type that does not exist.
pub(crate) fn execute(
    cpu: &Cpu<X86_64>,
    instruction: Privileged,
    registers: &mut GeneralRegisters,
    next: u64,
    read: impl Fn(u64) -> [u64; 2],
) {
    match instruction {
        Privileged::Invlpg(operand) => {
            let va = VirtAddr::new(operand.address(registers, next));
            // Of the PCID in CR3, which has a value before the test loads a root, too.
            let tag = Tag::new(cpu.read_cr3() as u16 & 0xfff);
            let target = InvalidateTarget::Page { tag, va, level: Level::PTE, last_level: false };
            cpu.invalidate(Invalidate { scope: InvalidateScope::Local, target });
        }
        Privileged::Invpcid { kind, descriptor } => {
            let [pcid, va] = read(descriptor.address(registers, next));
            let (tag, va) = (Tag::new(pcid as u16 & 0xfff), VirtAddr::new(va));
            let target = match registers[kind] {
                0 => InvalidateTarget::Page { tag, va, level: Level::PTE, last_level: false },
                1 => InvalidateTarget::Tag(tag),
                2 => InvalidateTarget::Everything,
                3 => InvalidateTarget::AllTags,
                kind => panic!("INVPCID of type {kind}; the types are 0 to 3"),
            };
            cpu.invalidate(Invalidate { scope: InvalidateScope::Local, target });
        }
        Privileged::ReadControl(ControlRegister::Cr3, to) => registers[to] = cpu.read_cr3(),
        Privileged::ReadControl(ControlRegister::Cr4, to) => registers[to] = cpu.read_cr4(),
        Privileged::WriteControl(ControlRegister::Cr3, from) => cpu.write_cr3(registers[from]),
        Privileged::WriteControl(ControlRegister::Cr4, from) => cpu.write_cr4(registers[from]),
        Privileged::Cli => cpu.set_interrupts(false),
        Privileged::Sti => cpu.set_interrupts(true),
        Privileged::Hlt => cpu.relax(),
    }
}
