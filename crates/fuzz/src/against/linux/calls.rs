//! Operations as system calls of a tracee.

use super::{ARGUMENT, LEAST_ERRNO, Linux, OUTPUT, bytes_of};
use crate::against::AgainstError;
use crate::against::initial_state::{DATA, LIMITS};
use crate::against::observation::Observation;
use crate::random::registers::{CallOutput, CallRegisters, CallerNumbers};
use crate::random::{Operation, Syscall};
use nix::libc;
use nix::unistd::Pid;
use pagewright_syscall::{CallArguments, LinuxCall};
use pagewright_types::IsaKind;

/// The x86-64 number of a memory call.
pub(super) fn number(call: LinuxCall) -> i64 {
    match call.number(IsaKind::X86_64) {
        Some(number) => number as i64,
        None => unreachable!("{} is a call of x86-64", call.name()),
    }
}

/// The other process on which a call acts, and a descriptor of it.
#[derive(Clone, Copy, Default)]
pub(super) struct OtherProcess {
    pub(super) pid: u64,
    pub(super) pidfd: u64,
}

/// A system call, the words that it reads, and its output.
struct PreparedCall {
    number: i64,
    arguments: CallArguments,
    input: Vec<u64>,
    output: CallOutput,
}

impl Linux {
    /// Makes the single call of an operation.
    pub(super) fn single_call(
        &self,
        pid: Pid,
        operation: &Operation,
        value: u64,
        other: OtherProcess,
    ) -> Result<Observation, AgainstError> {
        let PreparedCall { number, arguments, input, output } = self.system_call(operation, value, other);
        self.tracee.write_data(ARGUMENT, &bytes_of(&input))?;
        let returned = match observation(self.returned(pid, self.tracee.call(pid, number, arguments)?)?) {
            Observation::Value(value) => self.same_base(value),
            failed => return Ok(failed),
        };
        let count = match output {
            CallOutput::Nothing => return Ok(Observation::Value(returned)),
            CallOutput::Bytes(count) => count,
            CallOutput::AsReturned => returned as usize,
        };
        Ok(Observation::Bytes(returned, self.tracee.read_data(OUTPUT, count)?))
    }

    fn system_call(&self, operation: &Operation, value: u64, other: OtherProcess) -> PreparedCall {
        let hard_limit = |resource| {
            let index = LIMITS.iter().position(|(known, _)| *known == resource);
            index.map_or(u64::MAX, |index| self.host.hard[index])
        };
        let numbers = CallerNumbers {
            read_write: self.read_write,
            read_only: self.read_only,
            pid: other.pid,
            pidfd: other.pidfd,
            input: DATA + ARGUMENT,
            output: DATA + OUTPUT,
            hard_limit: &hard_limit,
        };
        if let Some(registers) = CallRegisters::of(operation, value, &numbers) {
            let CallRegisters { call, arguments, input, output } = registers;
            return PreparedCall { number: number(call), arguments, input, output };
        }
        let call = |number, arguments, input: &[u64], output| PreparedCall {
            number,
            arguments,
            input: input.to_vec(),
            output,
        };
        let (input, output) = (numbers.input, numbers.output);
        match *operation {
            Operation::Syscall(Syscall::Pread { offset }) => {
                call(libc::SYS_pread64, [self.read_write, output, 8, offset, 0, 0], &[], CallOutput::AsReturned)
            }
            Operation::Syscall(Syscall::Pwrite { offset }) => {
                call(libc::SYS_pwrite64, [self.read_write, input, 8, offset, 0, 0], &[value], CallOutput::Nothing)
            }
            Operation::Syscall(Syscall::Vmsplice { addr }) => {
                let arguments = [self.pipe[1], input, 1, libc::SPLICE_F_NONBLOCK.into(), 0, 0];
                call(libc::SYS_vmsplice, arguments, &[addr.raw(), 8], CallOutput::Nothing)
            }
            Operation::Syscall(Syscall::ReadPipe) => {
                call(libc::SYS_read, [self.pipe[0], output, 8, 0, 0, 0], &[], CallOutput::AsReturned)
            }
            _ => unreachable!("{operation} is not a single call"),
        }
    }
}

/// The observation of a returned value.
pub(super) fn observation(returned: i64) -> Observation {
    if (LEAST_ERRNO..0).contains(&returned) {
        Observation::Failed(-returned as u16)
    } else {
        Observation::Value(returned as u64)
    }
}
