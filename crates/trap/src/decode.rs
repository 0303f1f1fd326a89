//! Decodes the privileged instructions that are routed (Intel SDM vol. 2).

/// The general registers by number: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
pub(crate) type GeneralRegisters = [u64; 16];

/// The longest instruction, in bytes.
pub(crate) const LONGEST: usize = 15;

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryOperand {
    base: Base,
    /// The number of the index register, and the power of two by which it is scaled.
    index: Option<(usize, u32)>,
    displacement: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Register(usize),
    /// The address of the next instruction.
    Next,
    Nothing,
}

impl MemoryOperand {
    /// Its address; `next` is the address of the next instruction.
    pub(crate) fn address(self, registers: &GeneralRegisters, next: u64) -> u64 {
        let base = match self.base {
            Base::Register(number) => registers[number],
            Base::Next => next,
            Base::Nothing => 0,
        };
        let index = self.index.map_or(0, |(number, scale)| registers[number] << scale);
        base.wrapping_add(index).wrapping_add_signed(self.displacement)
    }
}

/// A control register that is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlRegister {
    Cr3,
    Cr4,
}

/// A privileged instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileged {
    Invlpg(MemoryOperand),
    Invpcid {
        /// The register with the type.
        kind: usize,
        descriptor: MemoryOperand,
    },
    ReadControl(ControlRegister, usize),
    WriteControl(ControlRegister, usize),
    Cli,
    Sti,
    Hlt,
}

/// The bytes of an instruction, read one at a time.
struct Bytes<R> {
    read: R,
    at: usize,
}

impl<R: Fn(usize) -> u8> Bytes<R> {
    fn next(&mut self) -> Option<u8> {
        let at = self.at;
        self.at += 1;
        (at < LONGEST).then(|| (self.read)(at))
    }

    fn number(&mut self, bytes: u32) -> Option<i64> {
        let mut value = 0_u64;
        for index in 0..bytes {
            value |= u64::from(self.next()?) << (8 * index);
        }
        let unused = 64 - 8 * bytes;
        Some((value << unused) as i64 >> unused)
    }
}

/// The prefixes that matter.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand_size: bool,
    /// REX.R, REX.X and REX.B: bit 3 of the numbers of registers.
    reg: usize,
    index: usize,
    base: usize,
}

/// The ModRM byte.
#[derive(Clone, Copy)]
struct ModRm {
    mode: u8,
    reg: usize,
    rm: usize,
}

impl ModRm {
    fn of(byte: u8) -> Self {
        Self { mode: byte >> 6, reg: usize::from(byte >> 3 & 7), rm: usize::from(byte & 7) }
    }
}

/// The instruction that begins with byte 0 of `read`, and its length; `None` if it is not routed.
///
/// Only as many bytes are read as the instruction has.
pub(crate) fn decode(read: impl Fn(usize) -> u8) -> Option<(Privileged, usize)> {
    let mut bytes = Bytes { read, at: 0 };
    let mut prefixes = Prefixes::default();
    let mut first = bytes.next()?;
    // FS and GS have a base that is not known here.
    while matches!(first, 0x66 | 0x2e | 0x36 | 0x3e | 0x26) {
        prefixes.operand_size |= first == 0x66;
        first = bytes.next()?;
    }
    if first & 0xf0 == 0x40 {
        let bit = |shift: u32| usize::from(first >> shift & 1) << 3;
        (prefixes.reg, prefixes.index, prefixes.base) = (bit(2), bit(1), bit(0));
        first = bytes.next()?;
    }
    let decoded = match first {
        0xf4 => Privileged::Hlt,
        0xfa => Privileged::Cli,
        0xfb => Privileged::Sti,
        0x0f => two_bytes(&mut bytes, prefixes)?,
        _ => return None,
    };
    Some((decoded, bytes.at))
}

fn two_bytes(bytes: &mut Bytes<impl Fn(usize) -> u8>, prefixes: Prefixes) -> Option<Privileged> {
    match bytes.next()? {
        0x01 => {
            let modrm = ModRm::of(bytes.next()?);
            (modrm.mode != 3 && modrm.reg == 7).then_some(())?;
            Some(Privileged::Invlpg(memory(bytes, prefixes, modrm)?))
        }
        opcode @ (0x20 | 0x22) => {
            let modrm = ModRm::of(bytes.next()?);
            let control = match modrm.reg | prefixes.reg {
                3 => ControlRegister::Cr3,
                4 => ControlRegister::Cr4,
                _ => return None,
            };
            let register = modrm.rm | prefixes.base;
            Some(match opcode {
                0x20 => Privileged::ReadControl(control, register),
                _ => Privileged::WriteControl(control, register),
            })
        }
        0x38 if prefixes.operand_size && bytes.next()? == 0x82 => {
            let modrm = ModRm::of(bytes.next()?);
            (modrm.mode != 3).then_some(())?;
            Some(Privileged::Invpcid { kind: modrm.reg | prefixes.reg, descriptor: memory(bytes, prefixes, modrm)? })
        }
        _ => None,
    }
}

/// The operand in memory that `modrm` begins (SDM vol. 2A §2.1.5, tables 2-2 and 2-3).
fn memory(bytes: &mut Bytes<impl Fn(usize) -> u8>, prefixes: Prefixes, modrm: ModRm) -> Option<MemoryOperand> {
    let (mut base, mut index) = (Base::Register(modrm.rm | prefixes.base), None);
    let mut only_displacement = modrm.mode == 0 && modrm.rm == 5;
    if only_displacement {
        base = Base::Next;
    }
    if modrm.rm == 4 {
        let sib = bytes.next()?;
        let numbered = usize::from(sib >> 3 & 7) | prefixes.index;
        // RSP cannot be an index.
        index = (numbered != 4).then_some((numbered, u32::from(sib >> 6)));
        base = Base::Register(usize::from(sib & 7) | prefixes.base);
        if sib & 7 == 5 && modrm.mode == 0 {
            (base, only_displacement) = (Base::Nothing, true);
        }
    }
    let displacement = match modrm.mode {
        1 => bytes.number(1)?,
        2 => bytes.number(4)?,
        _ if only_displacement => bytes.number(4)?,
        _ => 0,
    };
    Some(MemoryOperand { base, index, displacement })
}

#[cfg(test)]
mod tests;
