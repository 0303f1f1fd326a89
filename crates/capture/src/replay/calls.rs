//! The replay of memory calls, with the addresses that Linux returned.

use super::CaptureReplayError;
use super::engine::Engine;
use super::error::DivergedCall;
use crate::trace::{MemCall, MemOp, PAGE_SIZE};
use pagewright_arch::Isa;
use pagewright_mm::space::{FileMapping, SyncFlags};
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, MapRequest, MmError, RemapFlags, RemapRequest, Space};
use pagewright_sim::Sim;
use pagewright_types::{CpuId, PageRange, Rights, VirtAddr};

impl<I: Isa> Engine<'_, I> {
    /// Repeats a call that succeeded in the capture.
    ///
    /// A call that failed there changed nothing, and is not repeated.
    pub(super) fn call(
        &mut self,
        cpu: CpuId,
        pid: u32,
        position: u64,
        call: &MemCall,
    ) -> Result<(), CaptureReplayError> {
        let Ok(linux) = call.result else { return Ok(()) };
        self.diverged_ranges(pid)?.follow(&call.op, linux);
        let space = self.space_of(pid)?;
        let made = match &call.op {
            MemOp::Mmap { .. } => self.map(cpu, &space, &call.op, linux)?,
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
                let now = self.lab.on(cpu, |mm| mm.brk(&space, VirtAddr::new(addr.0))).raw();
                if now != linux {
                    let op = call.op.clone();
                    self.diverge(DivergedCall { position, pid, op, linux, ours: Ok(now) })?;
                }
                Ok(())
            }
            MemOp::Madvise { addr, len, advice } => match Advice::from_raw(*advice) {
                Ok(advice) => self.lab.on(cpu, |mm| mm.madvise(&space, VirtAddr::new(addr.0), *len, advice)),
                Err(_) => return self.skip_call(&call.op),
            },
            MemOp::Mremap { .. } => self.remap(cpu, &space, &call.op, linux),
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
        match made {
            Ok(()) => Ok(()),
            Err(error @ (MmError::NoFrames(_) | MmError::NoKernelMemory { .. } | MmError::CommitRefused { .. })) => {
                Err(self.out_of_memory(pid, error))
            }
            Err(error) => self.diverge(DivergedCall { position, pid, op: call.op.clone(), linux, ours: Err(error) }),
        }
    }

    /// Counts a call that the memory manager does not implement.
    fn skip_call(&mut self, op: &MemOp) -> Result<(), CaptureReplayError> {
        *self.not_replayed.entry(op.name().into_owned()).or_insert(0) += 1;
        Ok(())
    }

    /// Repeats an `mremap` whose result was the address `at`.
    fn remap(&self, cpu: CpuId, space: &Space<Sim<I>>, op: &MemOp, at: u64) -> Result<(), MmError> {
        let MemOp::Mremap { addr, old_len, new_len, flags, .. } = op else { return Ok(()) };
        let mut flags = RemapFlags::from_bits_truncate(*flags);
        let (stays, by_kernel) = (addr.0 == at, !flags.contains(RemapFlags::FIXED));
        flags.set(RemapFlags::FIXED | RemapFlags::MAYMOVE, !stays);
        let (addr, new_addr) = (VirtAddr::new(addr.0), VirtAddr::new(at));
        let request = RemapRequest { addr, old_len: *old_len, new_len: *new_len, flags, new_addr };
        self.lab.on(cpu, |mm| {
            // Linux never chooses an address that is in use.
            if !stays
                && by_kernel
                && let Ok(range) = PageRange::from_len(new_addr, new_len.next_multiple_of(PAGE_SIZE))
                && space.map().read().overlapping(range).next().is_some()
            {
                return Err(MmError::AlreadyMapped { range });
            }
            mm.mremap(space, &request).map(|_| ())
        })
    }

    /// Repeats an `mmap` whose result was the address `at`.
    fn map(
        &mut self,
        cpu: CpuId,
        space: &Space<Sim<I>>,
        op: &MemOp,
        at: u64,
    ) -> Result<Result<(), MmError>, CaptureReplayError> {
        let MemOp::Mmap { len, prot, flags, file, offset, .. } = op else { return Ok(Ok(())) };
        let mut wanted = MapFlags::from_bits_truncate(flags.0);
        // Linux never chooses an address that is in use.
        if !wanted.contains(MapFlags::FIXED) {
            wanted.insert(MapFlags::FIXED_NOREPLACE);
        }
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
        Ok(self.lab.on(cpu, |mm| mm.mmap(space, &request)).map(|_| ()))
    }
}
