//! Encodings, as an assembler makes them.

use super::{ControlRegister, Privileged, decode};

fn of(bytes: &[u8]) -> Option<(Privileged, usize)> {
    decode(|at| bytes.get(at).copied().expect("no byte past the instruction is read"))
}

/// The address of the operand of an INVLPG at 0x1000, if register *n* holds `0x100 << n`.
fn invlpg(bytes: &[u8]) -> u64 {
    let (decoded, length) = of(bytes).expect("an INVLPG");
    assert_eq!(length, bytes.len());
    let Privileged::Invlpg(operand) = decoded else { panic!("{decoded:?}") };
    operand.address(&std::array::from_fn(|number| 0x100 << number), 0x1000 + length as u64)
}

#[test]
fn invlpg_has_every_form_of_address() {
    assert_eq!(invlpg(&[0x0f, 0x01, 0x38]), 0x100, "[rax]");
    assert_eq!(invlpg(&[0x41, 0x0f, 0x01, 0x3f]), 0x100 << 15, "[r15]");
    assert_eq!(invlpg(&[0x0f, 0x01, 0x7d, 0xf8]), (0x100 << 5) - 8, "[rbp-8]");
    assert_eq!(invlpg(&[0x0f, 0x01, 0x3c, 0x24]), 0x100 << 4, "[rsp]");
    assert_eq!(invlpg(&[0x0f, 0x01, 0xbc, 0x24, 0, 1, 0, 0]), (0x100 << 4) + 0x100, "[rsp+0x100]");
    assert_eq!(invlpg(&[0x43, 0x0f, 0x01, 0x3c, 0xc8]), (0x100 << 8) + (0x100 << 9 << 3), "[r8+r9*8]");
    assert_eq!(invlpg(&[0x0f, 0x01, 0x3c, 0x25, 0, 0, 0x40, 0]), 0x40_0000, "[0x400000]");
    assert_eq!(invlpg(&[0x0f, 0x01, 0x3d, 0xf9, 0xff, 0xff, 0xff]), 0x1000, "[rip-7]");
}

#[test]
fn control_registers_name_a_general_one() {
    assert_eq!(of(&[0x0f, 0x22, 0xd8]), Some((Privileged::WriteControl(ControlRegister::Cr3, 0), 3)), "mov cr3, rax");
    assert_eq!(
        of(&[0x41, 0x0f, 0x20, 0xd9]),
        Some((Privileged::ReadControl(ControlRegister::Cr3, 9), 4)),
        "mov r9, cr3"
    );
    assert_eq!(of(&[0x0f, 0x22, 0xe1]), Some((Privileged::WriteControl(ControlRegister::Cr4, 1), 3)), "mov cr4, rcx");
    assert_eq!(of(&[0x0f, 0x20, 0xc0]), None, "mov rax, cr0");
    assert_eq!(of(&[0x44, 0x0f, 0x22, 0xc0]), None, "mov cr8, rax");
}

#[test]
fn invpcid_needs_its_prefix() {
    let Some((Privileged::Invpcid { kind: 2, descriptor }, 5)) = of(&[0x66, 0x0f, 0x38, 0x82, 0x10]) else {
        panic!("invpcid rdx, [rax]")
    };
    assert_eq!(descriptor.address(&[7; 16], 0), 7);
    assert_eq!(of(&[0x0f, 0x38, 0x82]), None);
}

#[test]
fn interrupts_and_all_else() {
    let one_byte =
        [(0xf4, Some(Privileged::Hlt)), (0xfa, Some(Privileged::Cli)), (0xfb, Some(Privileged::Sti)), (0x90, None)];
    for (byte, decoded) in one_byte {
        assert_eq!(of(&[byte]), decoded.map(|decoded| (decoded, 1)));
    }
    assert_eq!(of(&[0x0f, 0x30]), None, "wrmsr");
    assert_eq!(of(&[0x64, 0x0f]), None, "a segment with a base");
    assert_eq!(of(&[0x0f, 0x01, 0xf8]), None, "swapgs");
}
