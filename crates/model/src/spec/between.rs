//! Copies between processes (`process_vm_readv(2)`, `process_vm_writev(2)`), cell by cell.
//!
//! The other's page is taken as for a device, for the time of the copy; one's own is accessed as by
//! a program.
//!
//! Not guaranteed: anything about copies in doubt, or onto one another. Whoever draws them leaves
//! those out ([`Spec::copying`]).

use super::page::World;
use super::{Answer, Got, Spec, Take, Verdict};
use crate::violation::{Did, Misread};
use alloc::string::ToString;
use pagewright_types::{Access, Errno, SpaceId, VirtAddr};

/// A copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vm {
    /// The caller, and where in it; a multiple of eight.
    pub here: (SpaceId, VirtAddr),
    /// The other, and where in it.
    pub there: (SpaceId, VirtAddr),
    /// Bytes; a multiple of eight.
    pub len: u64,
    /// From here to there, and not the other way.
    pub writes: bool,
}

impl Vm {
    /// Where cell `index` comes from, and where it goes.
    fn cell(&self, index: u64) -> [(SpaceId, VirtAddr); 2] {
        let at = |(space, va): (SpaceId, VirtAddr)| (space, va.add(index * 8));
        if self.writes { [at(self.here), at(self.there)] } else { [at(self.there), at(self.here)] }
    }
}

impl Spec {
    /// Bytes that a copy moves, or `None` where that is in doubt.
    ///
    /// # Panics
    /// When one of the processes is unknown.
    pub fn copying(&self, vm: &Vm) -> Option<u64> {
        let take = Take { writes: vm.writes, long: false, fast: false };
        let access = if vm.writes { Access::Read } else { Access::Write };
        for index in 0..vm.len / 8 {
            let ((here, ours), (there, theirs)) = {
                let [from, to] = vm.cell(index);
                if vm.writes { (from, to) } else { (to, from) }
            };
            let (mine, other) = (self.only(here, ours)?, self.only(there, theirs)?);
            let reached = other.is_some_and(|world| self.can_take(world, take));
            let possible =
                mine.is_some() && self.expect(here, ours, access).iter().all(|got| !matches!(got, Got::Signal(_)));
            if !reached || !possible {
                return Some(index * 8);
            }
        }
        Some(vm.len)
    }

    /// The page of `va` if there is no doubt about it; `None` in it if nothing is mapped, nor will
    /// be by a stack that grows.
    fn only(&self, space: SpaceId, va: VirtAddr) -> Option<Option<&World>> {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
        if !process.is_clear() {
            return None;
        }
        match process.pages.get(&va.page_index()).map(|page| &page.worlds[..]) {
            Some([only]) if only.map.is_some() => Some(Some(only)),
            Some([_, _, ..]) => None,
            Some(_) | None if process.has_stacks() => None,
            Some(_) | None => Some(None),
        }
    }

    /// A copy has answered.
    ///
    /// Its cells are told with [`Spec::copied_cell`].
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have answered so.
    ///
    /// # Panics
    /// When one of the processes is unknown.
    pub fn copied_between(&mut self, did: Did, vm: &Vm, answer: Answer) -> Verdict {
        let Some(most) = self.copying(vm) else { return Ok(()) };
        // Where it ended, a page may have been made ready to be written.
        for index in (0..vm.len / 8).filter(|_| answer != Answer::Bytes(vm.len)) {
            let [_, (space, va)] = vm.cell(index);
            self.may_have_copied(space, va);
        }
        let right = if most == 0 && vm.len > 0 { Answer::Failed(Errno::EFAULT) } else { Answer::Bytes(most) };
        let less = match answer {
            Answer::Bytes(bytes) => bytes < most && bytes.is_multiple_of(8),
            Answer::Failed(errno) => errno == Errno::EFAULT,
            Answer::Done | Answer::Mapped(_) | Answer::Break(_) | Answer::Child(_) | Answer::Number(_) => false,
        };
        if answer == right || self.memory_may_fail && less {
            return Ok(());
        }
        let call = if vm.writes { "process_vm_writev" } else { "process_vm_readv" };
        Err(Self::violation(did, Misread::Call { space: vm.here.0, call, got: answer, expected: right.to_string() }))
    }

    /// Cell `index` of a copy was moved, and holds `value` where it went.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have held that where it came from.
    ///
    /// # Panics
    /// When one of the processes is unknown.
    pub fn copied_cell(&mut self, did: Did, vm: &Vm, index: u64, value: u64) -> Verdict {
        let [(from, source), (to, target)] = vm.cell(index);
        self.load(did, from, source, value)?;
        self.store(did, to, target, value)
    }
}
