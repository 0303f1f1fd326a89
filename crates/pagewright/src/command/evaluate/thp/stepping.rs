//! Executes an operation instruction by instruction and notes which memory it uses.
//!
//! Key types: [`SteppedUse`], what an operation used; [`step`], which executes it.
//!
//! The operation runs in a child of this process under ptrace(2), so the machine code is that of
//! this program, and nothing of this process changes. Before each instruction executes, it is
//! decoded, and the addresses of its operands are computed from the registers. An instruction is
//! *locked* if it has a LOCK prefix, or is XCHG with a memory operand, which locks without one.
//!
//! Not guaranteed: the instructions of the kernel, and of other threads. They are not stepped.

use super::super::EvaluateError;
use super::super::parent::failed;
use fork::{Fork, fork};
use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{BTreeSet, HashMap};
use std::panic;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// An instruction has at most 15 bytes.
const LONGEST: usize = 16;

/// What an operation used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SteppedUse {
    /// The address that each locked instruction stored to, in order.
    pub(super) locked: Vec<u64>,
    /// Cache lines that were loaded from or stored to, by address divided by [`LINE`].
    pub(super) lines: BTreeSet<u64>,
    /// Those of them that were stored to.
    pub(super) stored: BTreeSet<u64>,
}

impl SteppedUse {
    /// The cache line of an address.
    pub(super) const fn line_of(address: u64) -> u64 {
        address / LINE
    }
}

/// Executes `operation` on what `prepare` returns, in a child, and notes what `operation` used.
///
/// # Errors
/// [`EvaluateError::Machine`] if the host permits no ptrace, or the operation panics.
pub(super) fn step<T>(
    prepare: impl FnOnce() -> T,
    operation: impl FnOnce(T) -> T,
) -> Result<SteppedUse, EvaluateError> {
    match fork().map_err(failed)? {
        Fork::Child => in_child(prepare, operation),
        Fork::Parent(child) => {
            let child = Pid::from_raw(child);
            let used = follow(child);
            // The child may have ended already.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            used
        }
    }
}

/// Stops before the operation and after it; the parent kills the process at the second stop.
fn in_child<T>(prepare: impl FnOnce() -> T, operation: impl FnOnce(T) -> T) -> ! {
    // Unwinding would return to the code of the parent.
    panic::set_hook(Box::new(|_| end_process()));
    let prepared = prepare();
    if ptrace::traceme().is_ok() {
        let _ = raise(Signal::SIGSTOP);
        let done = operation(prepared);
        let _ = raise(Signal::SIGSTOP);
        // A reference that the operation took cannot be dropped.
        std::mem::forget(done);
    }
    end_process()
}

fn end_process() -> ! {
    loop {
        let _ = raise(Signal::SIGKILL);
    }
}

/// Steps the child from its first stop to its second.
fn follow(child: Pid) -> Result<SteppedUse, EvaluateError> {
    stopped_by(child, Signal::SIGSTOP)?;
    let mut stepper = Stepper { child, decoded: HashMap::new(), info: InstructionInfoFactory::new() };
    let mut used = SteppedUse::default();
    loop {
        stepper.note_next(&mut used)?;
        ptrace::step(child, None).map_err(failed)?;
        match waitpid(child, None).map_err(failed)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return Ok(used),
            other => return Err(failed(format!("a stepped operation ended: {other:?}"))),
        }
    }
}

fn stopped_by(child: Pid, signal: Signal) -> Result<(), EvaluateError> {
    match waitpid(child, None).map_err(failed)? {
        WaitStatus::Stopped(_, by) if by == signal => Ok(()),
        other => Err(failed(format!("an operation was not stepped: {other:?}"))),
    }
}

struct Stepper {
    child: Pid,
    /// The instructions by address.
    decoded: HashMap<u64, Instruction>,
    info: InstructionInfoFactory,
}

impl Stepper {
    /// Notes the instruction that the child executes next.
    fn note_next(&mut self, used: &mut SteppedUse) -> Result<(), EvaluateError> {
        let registers = ptrace::getregs(self.child).map_err(failed)?;
        let instruction = self.decode(registers.rip)?;
        for memory in self.info.info(&instruction).used_memory() {
            let value = |register, _, _| Some(value_of(register, &registers));
            let Some(address) = memory.virtual_address(0, value) else { continue };
            let is_store = !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
            if matches!(memory.access(), OpAccess::NoMemAccess) {
                continue;
            }
            let last = address.wrapping_add((memory.memory_size().size() as u64).saturating_sub(1));
            for line in SteppedUse::line_of(address)..=SteppedUse::line_of(last) {
                used.lines.insert(line);
                is_store.then(|| used.stored.insert(line));
            }
            if is_store && is_locked(&instruction) {
                used.locked.push(address);
            }
        }
        Ok(())
    }

    fn decode(&mut self, at: u64) -> Result<Instruction, EvaluateError> {
        if let Some(known) = self.decoded.get(&at) {
            return Ok(*known);
        }
        let mut bytes = Vec::with_capacity(LONGEST);
        for offset in (0..LONGEST as u64).step_by(8) {
            // The last instruction of a mapping may be followed by nothing.
            let Ok(word) = ptrace::read(self.child, (at + offset) as ptrace::AddressType) else { break };
            bytes.extend(word.to_ne_bytes());
        }
        let instruction = decoded(&bytes, at);
        if instruction.code() == Code::INVALID {
            return Err(failed(format!("the instruction at {at:#x} is not known: {bytes:02x?}")));
        }
        self.decoded.insert(at, instruction);
        Ok(instruction)
    }
}

fn decoded(bytes: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}

/// Whether an instruction locks the memory that it stores to.
fn is_locked(instruction: &Instruction) -> bool {
    let has_memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg && has_memory
}

/// The value of a register that an address is computed from; segments but FS and GS are flat.
fn value_of(register: Register, registers: &user_regs_struct) -> u64 {
    let narrow = if register.size() == 4 { u64::from(u32::MAX) } else { u64::MAX };
    let value = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::RIP => registers.rip,
        Register::FS => return registers.fs_base,
        Register::GS => return registers.gs_base,
        _ => 0,
    };
    value & narrow
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn lock_prefixes_and_exchanges_with_memory_are_locked() {
        for (bytes, locked) in [
            // lock xadd [rax], rcx
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x08][..], true),
            // lock inc dword [rax]
            (&[0xf0, 0xff, 0x00], true),
            // xadd [rax], rcx
            (&[0x48, 0x0f, 0xc1, 0x08], false),
            // xchg [rax], rcx
            (&[0x48, 0x87, 0x08], true),
            // xchg rax, rcx
            (&[0x48, 0x87, 0xc8], false),
            // mov [rax], rcx
            (&[0x48, 0x89, 0x08], false),
        ] {
            assert_eq!(is_locked(&decoded(bytes, 0x1000)), locked, "{bytes:02x?}");
        }
    }

    #[test]
    fn each_atomic_addition_is_counted_at_its_address() {
        let words = [const { AtomicU64::new(0) }; 32];
        let address = |index: usize| std::ptr::from_ref(&words[index]) as u64;
        let count = |indices: &[usize]| {
            let add = |()| {
                for index in indices {
                    words[*index].fetch_add(2, Ordering::AcqRel);
                }
            };
            step(|| (), add).expect("ptrace").locked
        };
        assert!(count(&[]).is_empty(), "an empty operation");
        assert_eq!(count(&[3]), [address(3)]);
        assert_eq!(count(&[0, 31, 0]), [address(0), address(31), address(0)]);
        assert_eq!(words[0].load(Ordering::Relaxed), 0, "the operation runs in a child");
    }

    #[test]
    fn plain_stores_are_lines_and_are_not_locked() {
        let words = [const { AtomicU64::new(0) }; 32];
        let line = SteppedUse::line_of(std::ptr::from_ref(&words[20]) as u64);
        let used = step(|| (), |()| words[20].store(7, Ordering::Release)).expect("ptrace");
        assert!(used.stored.contains(&line) && used.locked.is_empty(), "{used:?}");
        let used = step(|| 0, |_| words[20].load(Ordering::Acquire)).expect("ptrace");
        assert!(used.lines.contains(&line) && !used.stored.contains(&line), "{used:?}");
    }

    #[test]
    fn an_operation_that_panics_is_an_error() {
        assert!(step(|| (), |()| panic!("expected")).is_err());
    }
}
