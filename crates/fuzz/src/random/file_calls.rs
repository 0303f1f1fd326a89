//! Calls on the file descriptor, whose results the reference memory checks.

use super::program_run::{Process, ProgramRun};
use super::syscall::{FileDescriptor, Syscall};
use pagewright_arch::Isa;
use pagewright_mm::file::{FallocateFlags, Seals};
use pagewright_mm::{Mm, MmError};
use pagewright_model::spec::{CallResult, FileCall};
use pagewright_sim::Sim;
use pagewright_types::{CpuId, Rights};

impl<I: Isa> ProgramRun<I> {
    /// Makes a call of [`Syscall`] on the file.
    pub(super) fn file_call(&self, cpu: CpuId, process: &Process<I>, call: Syscall) {
        let call = match call {
            Syscall::Fallocate { flags, offset, len } => FileCall::Allocate { flags, offset, len },
            Syscall::AddSeals { file: FileDescriptor::ReadWrite, seals } => {
                FileCall::AddSeals { opened: Rights::RW, seals }
            }
            Syscall::AddSeals { file: FileDescriptor::ReadOnly | FileDescriptor::None, seals } => {
                FileCall::AddSeals { opened: Rights::READ, seals }
            }
            Syscall::GetSeals => FileCall::GetSeals,
            Syscall::Pread { offset } => FileCall::Read { offset, got: 0 },
            Syscall::Pwrite { offset } => FileCall::Write { offset, value: self.fresh_value() },
            other => unreachable!("{other} is not a call on the file"),
        };
        self.checked_file_call(cpu, process, call);
    }

    /// `ftruncate` of a file that may be sealed.
    pub(super) fn truncate_memfd(&self, cpu: CpuId, bytes: u64) {
        if let Some(process) = self.current_process(cpu) {
            self.checked_file_call(cpu, &process, FileCall::Resize { bytes });
        }
    }

    fn checked_file_call(&self, cpu: CpuId, process: &Process<I>, call: FileCall) {
        let refused = self.sim().refused_allocations();
        let mut call = call;
        let result = self.lab.on(cpu, |mm| self.make_file_call(mm, &mut call));
        let result = result.unwrap_or_else(|error| CallResult::Failed(error.errno()));
        self.record_result(cpu, call.name(), result);
        if !self.uses_spec {
            return;
        }
        let mut spec = self.spec.borrow_mut();
        spec.set_memory_may_fail(self.sim().refused_allocations() > refused);
        let verdict = spec.file_call(self.cpu_step(cpu), process.id(), self.file.id(), call, result);
        drop(spec);
        self.judge(verdict);
    }

    fn make_file_call(&self, mm: &Mm<Sim<I>>, call: &mut FileCall) -> Result<CallResult, MmError> {
        let file = &self.file;
        match call {
            FileCall::Resize { bytes } => mm.truncate(file, *bytes).map(|()| CallResult::Done),
            FileCall::Allocate { flags, offset, len } => {
                mm.fallocate(file, FallocateFlags::from_bits_retain(*flags), *offset, *len).map(|()| CallResult::Done)
            }
            FileCall::AddSeals { opened, seals } => {
                mm.add_seals(file, *opened, Seals::from_bits_retain(*seals)).map(|()| CallResult::Done)
            }
            FileCall::GetSeals => file.seals().map(|seals| CallResult::Number(seals.bits().into())),
            FileCall::Read { offset, got } => {
                let mut bytes = [0; 8];
                let count = mm.read_at(file, *offset, &mut bytes)?;
                *got = u64::from_le_bytes(bytes);
                Ok(CallResult::Bytes(count as u64))
            }
            FileCall::Write { offset, value } => {
                mm.write_at(file, *offset, &value.to_le_bytes()).map(|count| CallResult::Bytes(count as u64))
            }
        }
    }
}
