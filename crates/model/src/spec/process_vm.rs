//! Copies between processes (`process_vm_readv(2)`, `process_vm_writev(2)`), cell by cell.
//!
//! The other's page is taken as for a device, for the time of the copy; one's own is accessed as by
//! a program.
//!
//! Not guaranteed: anything about copies in doubt, or onto one another. Whoever draws them leaves
//! those out ([[`Spec::process_vm_bytes`]]).

use super::page::PossibleState;
use super::{AccessResult, CallResult, PinMode, Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use alloc::string::ToString;
use pagewright_types::{Access, Errno, SpaceId, VirtAddr};

/// A copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessVmCopy {
    /// The caller, and where in it; a multiple of eight.
    pub local: (SpaceId, VirtAddr),
    /// The other, and where in it.
    pub remote: (SpaceId, VirtAddr),
    /// Bytes; a multiple of eight.
    pub len: u64,
    /// From here to there, and not the other way.
    pub writes: bool,
}

impl ProcessVmCopy {
    /// Where cell `index` comes from, and where it goes.
    fn cell(&self, index: u64) -> [(SpaceId, VirtAddr); 2] {
        let at = |(space, va): (SpaceId, VirtAddr)| (space, va.add(index * 8));
        if self.writes { [at(self.local), at(self.remote)] } else { [at(self.remote), at(self.local)] }
    }
}

impl Spec {
    /// Bytes that a copy moves, or `None` where that is in doubt.
    ///
    /// # Panics
    /// When one of the processes is unknown.
    pub fn process_vm_bytes(&self, vm: &ProcessVmCopy) -> Option<u64> {
        let mode = PinMode { write: vm.writes, longterm: false, fast: false };
        let access = if vm.writes { Access::Read } else { Access::Write };
        for index in 0..vm.len / 8 {
            let ((here, ours), (there, theirs)) = {
                let [from, to] = vm.cell(index);
                if vm.writes { (from, to) } else { (to, from) }
            };
            let (mine, other) = (self.only(here, ours)?, self.only(there, theirs)?);
            let reached = other.is_some_and(|state| self.can_pin(state, mode));
            let possible = mine.is_some()
                && self.expect(here, ours, access).iter().all(|got| !matches!(got, AccessResult::Signal(_)));
            if !reached || !possible {
                return Some(index * 8);
            }
        }
        Some(vm.len)
    }

    /// The page of `va` if there is no doubt about it; `None` in it if nothing is mapped, nor will
    /// be by a stack that grows.
    fn only(&self, space: SpaceId, va: VirtAddr) -> Option<Option<&PossibleState>> {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
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

    /// A copy has answered.
    ///
    /// Its cells are told with [`Spec::process_vm_cell`].
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have answered so.
    ///
    /// # Panics
    /// When one of the processes is unknown.
    pub fn process_vm_returned(&mut self, by: CpuStep, vm: &ProcessVmCopy, result: CallResult) -> SpecVerdict {
        let Some(most) = self.process_vm_bytes(vm) else { return Ok(()) };
        // Where it ended, a page may have been made ready to be written.
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

    /// Cell `index` of a copy was moved, and holds `value` where it went.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have held that where it came from.
    ///
    /// # Panics
    /// When one of the processes is unknown.
    pub fn process_vm_cell(&mut self, by: CpuStep, vm: &ProcessVmCopy, index: u64, value: u64) -> SpecVerdict {
        let [(from, source), (to, target)] = vm.cell(index);
        self.load(by, from, source, value)?;
        self.store(by, to, target, value)
    }
}
