//! Copies between processes (`process_vm_readv(2)`, `process_vm_writev(2)`), cell by cell.
//!
//! The remote page is pinned for the time of the copy, and the local page is accessed as by a
//! program.
//!
//! Not guaranteed: anything about copies whose pages are uncertain, or whose source and destination
//! overlap. The caller must not make those ([`Spec::process_vm_bytes`]).

use super::page::PossibleState;
use super::{AccessResult, CallResult, PinMode, Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use alloc::string::ToString;
use pagewright_types::{Access, Errno, SpaceId, VirtAddr};

/// A copy between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessVmCopy {
    /// The calling process and its address, a multiple of eight.
    pub local: (SpaceId, VirtAddr),
    /// The remote process and its address, a multiple of eight.
    pub remote: (SpaceId, VirtAddr),
    /// Length in bytes, a multiple of eight.
    pub len: u64,
    /// `process_vm_writev`: the copy goes from local to remote.
    pub writes: bool,
}

impl ProcessVmCopy {
    /// The source and the destination of cell `index`.
    fn cell(&self, index: u64) -> [(SpaceId, VirtAddr); 2] {
        let at = |(space, va): (SpaceId, VirtAddr)| (space, va.add(index * 8));
        if self.writes { [at(self.local), at(self.remote)] } else { [at(self.remote), at(self.local)] }
    }
}

impl Spec {
    /// The number of bytes that a copy moves, or `None` if that is uncertain.
    ///
    /// # Panics
    /// If one of the processes is unknown.
    pub fn process_vm_bytes(&self, vm: &ProcessVmCopy) -> Option<u64> {
        let mode = PinMode { write: vm.writes, longterm: false, fast: false };
        let access = if vm.writes { Access::Read } else { Access::Write };
        for index in 0..vm.len / 8 {
            let ((here, ours), (there, theirs)) = {
                let [from, to] = vm.cell(index);
                if vm.writes { (from, to) } else { (to, from) }
            };
            let (mine, other) = (self.only_state(here, ours)?, self.only_state(there, theirs)?);
            let reached = other.is_some_and(|state| self.can_pin(state, mode));
            let possible = mine.is_some()
                && self.expect(here, ours, access).iter().all(|got| !matches!(got, AccessResult::Signal(_)));
            if !reached || !possible {
                return Some(index * 8);
            }
        }
        Some(vm.len)
    }

    /// The single possible state of the page of `va`, or `None` if it is uncertain.
    ///
    /// The inner `None` means that nothing is mapped and that no stack can grow there.
    fn only_state(&self, space: SpaceId, va: VirtAddr) -> Option<Option<&PossibleState>> {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        if !process.is_certain() {
            return None;
        }
        match process.pages.get(&va.page_index()).map(|page| &page.states[..]) {
            Some([only]) if only.map.is_some() => Some(Some(only)),
            Some([_, _, ..]) => None,
            Some(_) | None if process.has_stacks() => None,
            Some(_) | None => Some(None),
        }
    }

    /// Reports the result of a copy, before its cells ([`Spec::process_vm_cell`]).
    ///
    /// # Errors
    /// A [`crate::Violation`] if the result is impossible.
    ///
    /// # Panics
    /// If one of the processes is unknown.
    pub fn process_vm_returned(&mut self, by: CpuStep, vm: &ProcessVmCopy, result: CallResult) -> SpecVerdict {
        let Some(most) = self.process_vm_bytes(vm) else { return Ok(()) };
        // A copy that ended early may have broken copy-on-write on pages that it did not write.
        for index in (0..vm.len / 8).filter(|_| result != CallResult::Bytes(vm.len)) {
            let [_, (space, va)] = vm.cell(index);
            self.may_have_copied(space, va);
        }
        let right = if most == 0 && vm.len > 0 { CallResult::Failed(Errno::EFAULT) } else { CallResult::Bytes(most) };
        let less = match result {
            CallResult::Bytes(bytes) => bytes < most && bytes.is_multiple_of(8),
            CallResult::Failed(errno) => errno == Errno::EFAULT,
            CallResult::Done
            | CallResult::Mapped(_)
            | CallResult::Break(_)
            | CallResult::Child(_)
            | CallResult::Number(_) => false,
        };
        if result == right || self.memory_may_fail && less {
            return Ok(());
        }
        let call = if vm.writes { "process_vm_writev" } else { "process_vm_readv" };
        Err(Self::violation(
            by,
            SpecMismatch::Call { space: vm.local.0, call, got: result, expected: right.to_string() },
        ))
    }

    /// Reports that cell `index` of a copy was copied and that the destination holds `value`.
    ///
    /// # Errors
    /// A [`crate::Violation`] if the source cannot hold `value`.
    ///
    /// # Panics
    /// If one of the processes is unknown.
    pub fn process_vm_cell(&mut self, by: CpuStep, vm: &ProcessVmCopy, index: u64, value: u64) -> SpecVerdict {
        let [(from, source), (to, target)] = vm.cell(index);
        self.load(by, from, source, value)?;
        self.store(by, to, target, value)
    }
}
