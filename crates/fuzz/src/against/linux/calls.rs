//! Operations as system calls: numbers, registers, and what these point to.

use super::{ANSWER, ARGUMENT, LEAST_ERRNO, Linux, bytes_of};
use crate::against::AgainstError;
use crate::against::lack::{DATA, LIMITS};
use crate::against::seen::Seen;
use crate::random::registers::{CallOutput, CallRegisters, Numbers};
use crate::random::{Operation, Syscall};
use nix::libc;
use nix::unistd::Pid;
use pagewright_syscall::{CallArguments, LinuxCall};
use pagewright_types::IsaKind;

/// The number of a memory call.
pub(super) fn number(call: LinuxCall) -> i64 {
    match call.number(IsaKind::X86_64) {
        Some(number) => number as i64,
        None => unreachable!("{} is a call of x86-64", call.name()),
    }
}

/// The other process that a call is about, and a descriptor of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Other {
    pub(super) pid: u64,
    pub(super) pidfd: u64,
}

/// A system call with what it reads and stores.
struct Call {
    number: i64,
    arguments: CallArguments,
    input: Vec<u64>,
    output: CallOutput,
}

impl Linux {
    /// Makes the one call that an operation is.
    pub(super) fn call_once(
        &self,
        pid: Pid,
        operation: &Operation,
        value: u64,
        other: Other,
    ) -> Result<Seen, AgainstError> {
        let Call { number, arguments, input, output } = self.system_call(operation, value, other);
        self.tracee.put(ARGUMENT, &bytes_of(&input))?;
        let answer = match seen(self.answer(pid, self.tracee.call(pid, number, arguments)?)?) {
            Seen::Value(answer) => self.same_base(answer),
            failed => return Ok(failed),
        };
        let count = match output {
            CallOutput::Nothing => return Ok(Seen::Value(answer)),
            CallOutput::Bytes(count) => count,
            CallOutput::AsReturned => answer as usize,
        };
        Ok(Seen::Bytes(answer, self.tracee.take(ANSWER, count)?))
    }

    fn system_call(&self, operation: &Operation, value: u64, other: Other) -> Call {
        let hard_limit = |resource| {
            let place = LIMITS.iter().position(|(known, _)| *known == resource);
            place.map_or(u64::MAX, |place| self.host.hard[place])
        };
        let numbers = Numbers {
            both: self.both,
            reading: self.reading,
            pid: other.pid,
            pidfd: other.pidfd,
            input: DATA + ARGUMENT,
            output: DATA + ANSWER,
            hard_limit: &hard_limit,
        };
        if let Some(registers) = CallRegisters::of(operation, value, &numbers) {
            let CallRegisters { call, arguments, input, output } = registers;
            return Call { number: number(call), arguments, input, output };
        }
        let call = |number, arguments, input: &[u64], output| Call { number, arguments, input: input.to_vec(), output };
        let (input, output) = (numbers.input, numbers.output);
        match *operation {
            Operation::Syscall(Syscall::Read { offset }) => {
                call(libc::SYS_pread64, [self.both, output, 8, offset, 0, 0], &[], CallOutput::AsReturned)
            }
            Operation::Syscall(Syscall::Write { offset }) => {
                call(libc::SYS_pwrite64, [self.both, input, 8, offset, 0, 0], &[value], CallOutput::Nothing)
            }
            Operation::Syscall(Syscall::Splice { addr }) => {
                let arguments = [self.pipe[1], input, 1, libc::SPLICE_F_NONBLOCK.into(), 0, 0];
                call(libc::SYS_vmsplice, arguments, &[addr.raw(), 8], CallOutput::Nothing)
            }
            Operation::Syscall(Syscall::Drain) => {
                call(libc::SYS_read, [self.pipe[0], output, 8, 0, 0, 0], &[], CallOutput::AsReturned)
            }
            _ => unreachable!("{operation} is no single call"),
        }
    }
}

/// What an answer means.
pub(super) fn seen(answer: i64) -> Seen {
    if (LEAST_ERRNO..0).contains(&answer) { Seen::Failed(-answer as u16) } else { Seen::Value(answer as u64) }
}
