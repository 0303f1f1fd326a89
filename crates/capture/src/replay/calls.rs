//! The replay of memory calls, with the addresses that Linux returned.

use super::CaptureReplayError;
use super::engine::Engine;
use crate::trace::{MemCall, MemOp};
use pagewright_arch::Isa;
use pagewright_mm::space::{FileMapping, SyncFlags};
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, MapRequest, MmError, RemapFlags, RemapRequest, Space};
use pagewright_sim::Sim;
use pagewright_types::{CpuId, Rights, VirtAddr};

impl<I: Isa> Engine<'_, I> {
    /// Repeats a call that succeeded in the capture.
    ///
    /// A call that failed there changed nothing, and is not repeated.
    pub(super) fn call(&mut self, cpu: CpuId, pid: u32, call: &MemCall) -> Result<(), CaptureReplayError> {
        let Ok(result) = call.result else { return Ok(()) };
        let space = self.space_of(pid)?;
        let made = match &call.op {
            MemOp::Mmap { .. } => return self.map(cpu, pid, &space, &call.op, result),
            MemOp::Inferred { addr, len } => {
                let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
                let request =
                    MapRequest { addr: VirtAddr::new(addr.0), len: *len, rights: Rights::all(), flags, file: None };
                self.lab.on(cpu, |mm| mm.mmap(&space, &request)).map(|_| ())
            }
            MemOp::Munmap { addr, len } => self.lab.on(cpu, |mm| mm.munmap(&space, VirtAddr::new(addr.0), *len)),
            MemOp::Mprotect { addr, len, prot } => {
                let rights = Rights::from_bits_truncate(prot.0 as u8);
                self.lab.on(cpu, |mm| mm.mprotect(&space, VirtAddr::new(addr.0), *len, rights))
            }
            MemOp::Brk { addr } => {
                let now = self.lab.on(cpu, |mm| mm.brk(&space, VirtAddr::new(addr.0)));
                if now.raw() != result {
                    self.diverge(pid, format_args!("brk({addr}) returned {now}, on Linux {result:#x}"));
                }
                Ok(())
            }
            MemOp::Madvise { addr, len, advice } => match Advice::from_raw(*advice) {
                Ok(advice) => self.lab.on(cpu, |mm| mm.madvise(&space, VirtAddr::new(addr.0), *len, advice)),
                Err(_) => return self.skip_call(&call.op),
            },
            MemOp::Mremap { .. } => self.remap(cpu, &space, &call.op, result),
            MemOp::Mlock { addr, len, flags } => {
                let flags = LockFlags::from_bits_retain(*flags);
                self.lab.on(cpu, |mm| mm.mlock2(&space, VirtAddr::new(addr.0), *len, flags))
            }
            MemOp::Munlock { addr, len } => self.lab.on(cpu, |mm| mm.munlock(&space, VirtAddr::new(addr.0), *len)),
            MemOp::Mlockall { flags } => {
                self.lab.on(cpu, |mm| mm.mlockall(&space, LockAllFlags::from_bits_retain(*flags)))
            }
            MemOp::Munlockall {} => {
                self.lab.on(cpu, |mm| mm.munlockall(&space));
                Ok(())
            }
            MemOp::Msync { addr, len, flags } => {
                let flags = SyncFlags::from_bits_retain(*flags);
                self.lab.on(cpu, |mm| mm.msync(&space, VirtAddr::new(addr.0), *len, flags))
            }
            // The call changes nothing; the store to its vector is a run of the capture.
            MemOp::Mincore { .. } => Ok(()),
            MemOp::Membarrier { .. } | MemOp::Other { .. } => return self.skip_call(&call.op),
        };
        self.check_result(pid, &call.op, made)
    }

    /// Counts a call that the memory manager does not implement.
    fn skip_call(&mut self, op: &MemOp) -> Result<(), CaptureReplayError> {
        *self.not_replayed.entry(name(op)).or_insert(0) += 1;
        Ok(())
    }

    /// Repeats an `mremap` whose result was the address `at`.
    fn remap(&self, cpu: CpuId, space: &Space<Sim<I>>, op: &MemOp, at: u64) -> Result<(), MmError> {
        let MemOp::Mremap { addr, old_len, new_len, flags, .. } = op else { return Ok(()) };
        let mut flags = RemapFlags::from_bits_truncate(*flags);
        let stays = addr.0 == at;
        flags.set(RemapFlags::FIXED | RemapFlags::MAYMOVE, !stays);
        let (addr, new_addr) = (VirtAddr::new(addr.0), VirtAddr::new(at));
        let request = RemapRequest { addr, old_len: *old_len, new_len: *new_len, flags, new_addr };
        self.lab.on(cpu, |mm| mm.mremap(space, &request)).map(|_| ())
    }

    /// Repeats an `mmap` whose result was the address `at`.
    fn map(
        &mut self,
        cpu: CpuId,
        pid: u32,
        space: &Space<Sim<I>>,
        op: &MemOp,
        at: u64,
    ) -> Result<(), CaptureReplayError> {
        let MemOp::Mmap { len, prot, flags, file, offset, .. } = op else { return Ok(()) };
        let mut wanted = MapFlags::from_bits_truncate(flags.0) | MapFlags::FIXED;
        wanted.remove(MapFlags::FIXED_NOREPLACE);
        let file = match file {
            Some(id) => Some(self.file(id.0)?),
            None => None,
        };
        let request = MapRequest {
            addr: VirtAddr::new(at),
            len: *len,
            rights: Rights::from_bits_truncate(prot.0 as u8),
            flags: wanted,
            file: file.as_ref().map(|file| FileMapping { file, offset: *offset, opened: Rights::all() }),
        };
        let made = self.lab.on(cpu, |mm| mm.mmap(space, &request)).map(|_| ());
        self.check_result(pid, op, made)
    }

    /// Records a failure as a divergence, or ends the replay if memory is exhausted.
    fn check_result(&mut self, pid: u32, op: &MemOp, made: Result<(), MmError>) -> Result<(), CaptureReplayError> {
        match made {
            Ok(()) => Ok(()),
            Err(error @ (MmError::NoFrames(_) | MmError::NoKernelMemory { .. } | MmError::CommitRefused { .. })) => {
                Err(self.out_of_memory(pid, error))
            }
            Err(error) => {
                self.diverge(pid, format_args!("{}: {error}", name(op)));
                Ok(())
            }
        }
    }
}

/// The name of a call in a report.
fn name(op: &MemOp) -> String {
    match op {
        MemOp::Mmap { .. } => "mmap".into(),
        MemOp::Munmap { .. } => "munmap".into(),
        MemOp::Mprotect { .. } => "mprotect".into(),
        MemOp::Mremap { .. } => "mremap".into(),
        MemOp::Madvise { advice, .. } => format!("madvise({advice})"),
        MemOp::Brk { .. } => "brk".into(),
        MemOp::Mlock { .. } => "mlock".into(),
        MemOp::Munlock { .. } => "munlock".into(),
        MemOp::Mlockall { .. } => "mlockall".into(),
        MemOp::Munlockall {} => "munlockall".into(),
        MemOp::Msync { .. } => "msync".into(),
        MemOp::Mincore { .. } => "mincore".into(),
        MemOp::Membarrier { .. } => "membarrier".into(),
        MemOp::Other { number, .. } => format!("system call {number}"),
        MemOp::Inferred { .. } => "inferred mapping".into(),
    }
}
