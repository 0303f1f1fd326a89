//! Calls about the file by its descriptor: made on the memory manager, and told to the reference
//! memory when they have answered.

use super::syscall::{Descriptor, Syscall};
use super::world::{Process, World};
use pagewright_arch::Isa;
use pagewright_mm::file::{FallocateFlags, Seals};
use pagewright_mm::{Mm, MmError};
use pagewright_model::spec::{CallResult, FileCall};
use pagewright_sim::Sim;
use pagewright_types::{CpuId, Rights};

impl<I: Isa> World<I> {
    /// One of those calls.
    pub(super) fn file_call(&self, cpu: CpuId, process: &Process<I>, call: Syscall) {
        let call = match call {
            Syscall::Allocate { flags, offset, len } => FileCall::Allocate { flags, offset, len },
            Syscall::AddSeals { file: Descriptor::Both, seals } => FileCall::AddSeals { opened: Rights::RW, seals },
            Syscall::AddSeals { file: Descriptor::Reading | Descriptor::None, seals } => {
                FileCall::AddSeals { opened: Rights::READ, seals }
            }
            Syscall::GetSeals => FileCall::GetSeals,
            Syscall::Read { offset } => FileCall::Read { offset, got: 0 },
            Syscall::Write { offset } => FileCall::Write { offset, value: self.fresh_value() },
            other => unreachable!("{other} does not concern the file alone"),
        };
        self.filed(cpu, process, call);
    }

    /// `ftruncate` of a file that may be sealed.
    pub(super) fn resize(&self, cpu: CpuId, bytes: u64) {
        if let Some(process) = self.enter(cpu) {
            self.filed(cpu, &process, FileCall::Resize { bytes });
        }
    }

    fn filed(&self, cpu: CpuId, process: &Process<I>, call: FileCall) {
        let refused = self.sim().refused_allocations();
        let mut call = call;
        let answer = self.lab.on(cpu, |mm| self.ask_file(mm, &mut call));
        let answer = answer.unwrap_or_else(|error| CallResult::Failed(error.errno()));
        self.say(cpu, call.name(), answer);
        if !self.is_told {
            return;
        }
        let mut spec = self.spec.borrow_mut();
        spec.set_memory_may_fail(self.sim().refused_allocations() > refused);
        let verdict = spec.file_call(self.cpu_step(cpu), process.id(), self.file.id(), call, answer);
        drop(spec);
        self.judge(verdict);
    }

    fn ask_file(&self, mm: &Mm<Sim<I>>, call: &mut FileCall) -> Result<CallResult, MmError> {
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
