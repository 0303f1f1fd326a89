//! Loads, stores, fetches, and the faults that they take.

use super::cells::{Base, Cells};
use super::contents::PageContents;
use super::file::Files;
use super::page::{Page, PageBacking, PossibleState};
use super::soft_dirty::SoftDirtyBit;
use super::{Process, Spec, SpecVerdict};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, SpecMismatch, Violation};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt;
use pagewright_types::{Access, FileId, SpaceId, VirtAddr};

/// Why the fault of an access cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultSignal {
    /// `SIGSEGV`, `SEGV_MAPERR`: nothing is mapped.
    NotMapped,
    /// `SIGSEGV`, `SEGV_ACCERR`: the mapping does not allow the access.
    NotAllowed,
    /// `SIGBUS`: the page is past the end of the file.
    PastEnd,
    /// `VM_FAULT_OOM`: an allocation failed.
    NoMemory,
}

impl fmt::Display for FaultSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMapped => "SIGSEGV (SEGV_MAPERR)",
            Self::NotAllowed => "SIGSEGV (SEGV_ACCERR)",
            Self::PastEnd => "SIGBUS",
            Self::NoMemory => "out of memory",
        })
    }
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessResult {
    /// A load returned this value.
    Value(u64),
    /// A store or a fetch succeeded.
    Made,
    /// The access got a signal.
    Signal(FaultSignal),
}

impl fmt::Display for AccessResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value:#x}"),
            Self::Made => f.write_str("success"),
            Self::Signal(signal) => signal.fmt(f),
        }
    }
}

/// Identifies a fault in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the end of the fault must be reported"]
pub struct FaultId(u64);

/// A fault in flight.
pub(super) struct Fault {
    id: u64,
    space: SpaceId,
    va: VirtAddr,
    access: Access,
    /// At some time since the fault began, it could have been served.
    served: bool,
    /// Signals that the access could have got since then.
    signals: Vec<FaultSignal>,
    /// The value of [`Spec::drops`] when the fault began.
    drops: (u64, u64),
    /// File pages that the fault may copy, with every value that they have had since it began.
    copies: Vec<(FileId, u64, Rc<Cells>)>,
}

impl Fault {
    /// Adds the present contents of a file page to what the fault may copy.
    fn may_copy(&mut self, file: FileId, index: u64, now: Rc<Cells>) {
        let known = |copy: &&mut (FileId, u64, Rc<Cells>)| (copy.0, copy.1, copy.2.base()) == (file, index, now.base());
        match self.copies.iter_mut().find(known) {
            Some((_, _, copy)) if Rc::ptr_eq(copy, &now) => {}
            Some((_, _, copy)) => {
                Rc::make_mut(copy).join(&now);
            }
            None => self.copies.push((file, index, now)),
        }
    }
}

/// Whether an access in this state makes a private copy.
fn copies(state: &PossibleState, access: Access) -> bool {
    access == Access::Write && state.map.is_some_and(|map| !map.shared)
}

/// Where an access finds its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataLocation {
    /// The private copy.
    Own,
    /// The zero page.
    Zero,
    /// A page of a file.
    File(FileId, u64),
}

/// Where an access to a page in this state finds its data, and which signal it may get.
///
/// Both are possible while a truncation is in flight.
#[inline]
fn access_outcome(state: &PossibleState, access: Access, files: &Files) -> (Option<DataLocation>, Option<FaultSignal>) {
    let Some(map) = state.map else { return (None, Some(FaultSignal::NotMapped)) };
    if !map.allows(access) {
        return (None, Some(FaultSignal::NotAllowed));
    }
    if map.flags.guarded {
        return (None, Some(FaultSignal::NotMapped));
    }
    match map.backing {
        PageBacking::Anon if state.own.is_some() => (Some(DataLocation::Own), None),
        PageBacking::Anon => (Some(DataLocation::Zero), None),
        PageBacking::File { file, index } => {
            let (exists, lacks) = files.0.get(&file).map_or((false, true), |file| file.has(index));
            let place = if state.own.is_some() { DataLocation::Own } else { DataLocation::File(file, index) };
            (exists.then_some(place), lacks.then_some(FaultSignal::PastEnd))
        }
    }
}

fn cell_of(va: VirtAddr) -> u16 {
    debug_assert!(va.is_aligned(8), "cells are eight bytes");
    (va.page_offset() / 8) as u16
}

impl PossibleState {
    /// The contents of the page at `place`.
    fn contents(&self, place: DataLocation, files: &Files) -> Rc<Cells> {
        match (place, &self.own) {
            (DataLocation::Own, Some(own)) => own.read(),
            (DataLocation::File(id, index), _) if let Some(file) = files.0.get(&id) => file.page(id, index),
            (DataLocation::Own | DataLocation::Zero | DataLocation::File(..), _) => Self::zeroes(),
        }
    }

    fn can_load(&self, cell: u16, value: u64, files: &Files) -> bool {
        let (Some(place), _) = access_outcome(self, Access::Read, files) else { return false };
        let base = |base: Base| files.initial(base, cell);
        match (place, &self.own) {
            (DataLocation::Zero, _) => value == 0,
            (DataLocation::Own, Some(own)) => own.can_hold(cell, value, &base),
            (DataLocation::File(id, index), _) => {
                files.0.get(&id).is_some_and(|file| file.can_hold(id, index, cell, value, &base))
            }
            (DataLocation::Own, None) => false,
        }
    }

    /// Resolves the value of a cell after a load of it.
    fn resolve(&mut self, cell: u16, value: u64, files: &mut Files) {
        match access_outcome(self, Access::Read, files).0 {
            Some(DataLocation::Own) => {
                if let Some(own) = self.own.as_mut().filter(|own| own.is_uncertain(cell)) {
                    own.set(cell, value);
                }
            }
            Some(DataLocation::File(id, index)) => {
                if let Some(file) = files.0.get_mut(&id)
                    && file.is_uncertain(index, cell)
                {
                    file.page_mut(id, index).set(cell, value);
                }
            }
            Some(DataLocation::Zero) | None => {}
        }
    }
}

impl Spec {
    /// Reports that a load of the cell at `va` returned `value`.
    ///
    /// # Errors
    /// A [`Violation`] if the cell cannot hold `value`.
    ///
    /// # Panics
    /// If the process is unknown; in debug builds also if `va` is not a multiple of eight.
    pub fn load(&mut self, by: CpuStep, space: SpaceId, va: VirtAddr, value: u64) -> SpecVerdict {
        self.tally.note(Antecedent::Loaded);
        let cell = cell_of(va);
        let Self { processes, files, tally, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was added and has not exited");
        note_overlap(process, va, tally);
        if let Some(page) = process.page(va.page_index()) {
            let fits = |state: &PossibleState| state.can_load(cell, value, files);
            match &mut page.states[..] {
                [only] if fits(only) => {
                    only.resolve(cell, value, files);
                    return Ok(());
                }
                [_] => {}
                states if states.iter().any(fits) => {
                    page.retain(|state| state.can_load(cell, value, files));
                    if let [only] = &mut page.states[..] {
                        only.resolve(cell, value, files);
                    }
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(self.wrong(by, space, va, Access::Read, AccessResult::Value(value)))
    }

    /// Reports a store of `value` to the cell at `va`.
    ///
    /// # Errors
    /// A [`Violation`] if the page cannot be writable.
    ///
    /// # Panics
    /// As [`Spec::load`].
    pub fn store(&mut self, by: CpuStep, space: SpaceId, va: VirtAddr, value: u64) -> SpecVerdict {
        self.tally.note(Antecedent::Stored);
        let cell = cell_of(va);
        let Self { processes, files, tally, faults, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was added and has not exited");
        note_overlap(process, va, tally);
        let permitted = |state: &PossibleState, files: &Files| access_outcome(state, Access::Write, files).0.is_some();
        let page = process.page(va.page_index());
        let Some(page) = page.filter(|page| page.states.iter().any(|state| permitted(state, files))) else {
            return Err(self.wrong(by, space, va, Access::Write, AccessResult::Made));
        };
        if page.states.len() > 1 {
            page.retain(|state| permitted(state, files));
        }
        page.stored = Some(by);
        page.soft_dirty = SoftDirtyBit::Set;
        page.fleeting = false;
        // The store certainly reaches a pinned page only if it does so in every state.
        let lone = page.states.len() == 1;
        // If the store goes to a file in some states only, the file may or may not hold it.
        let mut filed: Vec<(FileId, u64)> = Vec::new();
        let mut private = false;
        for state in &mut page.states {
            let shared = state.map.is_some_and(|map| map.shared);
            match access_outcome(state, Access::Write, files).0 {
                Some(DataLocation::File(id, index)) if shared => filed.push((id, index)),
                Some(DataLocation::Own) => {
                    private = true;
                    let own = state.own_mut(PossibleState::zeroes);
                    if lone || !own.is_pinned() { own.set(cell, value) } else { own.allow(cell, value) }
                }
                Some(place) => {
                    private = true;
                    let from = state.contents(place, files);
                    state.own_mut(|| from).set(cell, value);
                }
                None => {}
            }
        }
        filed.dedup();
        let sure = filed.len() == 1 && !private;
        for (id, index) in filed {
            let Some(file) = files.0.get_mut(&id) else { continue };
            if sure {
                file.page_mut(id, index).set(cell, value);
            } else {
                file.page_mut(id, index).allow(cell, value);
            }
            let copying = faults.iter_mut().flat_map(|fault| &mut fault.copies);
            for (_, _, copy) in copying.filter(|(file, page, _)| (*file, *page) == (id, index)) {
                Rc::make_mut(copy).allow(cell, value);
            }
        }
        process.update_forks(va.page_index());
        Ok(())
    }

    /// Reports an instruction fetch from `va`.
    ///
    /// # Errors
    /// A [`Violation`] if the page cannot be executable.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn fetch(&mut self, by: CpuStep, space: SpaceId, va: VirtAddr) -> SpecVerdict {
        self.tally.note(Antecedent::Loaded);
        let possible = self.expect(space, va, Access::Exec).contains(&AccessResult::Made);
        if possible { Ok(()) } else { Err(self.wrong(by, space, va, Access::Exec, AccessResult::Made)) }
    }

    /// Every result that an access to `va` could have now.
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn expect(&self, space: SpaceId, va: VirtAddr, access: Access) -> Vec<AccessResult> {
        let process = self.processes.get(&space).expect("a process that was added and has not exited");
        let page = process.look(va.page_index()).unwrap_or_default();
        let cell = (va.page_offset() / 8) as u16;
        let mut all = Vec::new();
        for state in &page.states {
            let (place, signal) = access_outcome(state, access, &self.files);
            match (place, access) {
                (Some(place), Access::Read) => {
                    let values =
                        state.contents(place, &self.files).values(cell, &|base| self.files.initial(base, cell));
                    all.extend(values.into_iter().map(AccessResult::Value));
                }
                (Some(_), Access::Write | Access::Exec) => all.push(AccessResult::Made),
                (None, _) => {}
            }
            all.extend(signal.map(AccessResult::Signal));
        }
        let mut unique: Vec<AccessResult> = Vec::new();
        for one in all {
            if !unique.contains(&one) {
                unique.push(one);
            }
        }
        unique
    }

    /// Reports that an access faults.
    ///
    /// The possible results are collected until [`Spec::fault_ends`].
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn fault_begins(&mut self, space: SpaceId, va: VirtAddr, access: Access) -> FaultId {
        assert!(self.processes.contains_key(&space), "a process that was added and has not exited");
        let id = self.fresh_id();
        let drops = self.drops(space, va);
        let fault = Fault { id, space, va, access, served: false, signals: Vec::new(), drops, copies: Vec::new() };
        self.faults.push(fault);
        self.revise_faults();
        FaultId(id)
    }

    /// Reports that a fault was served, or that the access got a signal.
    ///
    /// # Errors
    /// A [`Violation`] if that was possible at no time since the fault began.
    ///
    /// # Panics
    /// If the fault is not in flight.
    pub fn fault_ends(&mut self, by: CpuStep, fault: FaultId, served: Result<(), FaultSignal>) -> SpecVerdict {
        self.tally.note(Antecedent::Faulted);
        let at = self.faults.iter().position(|other| other.id == fault.0).expect("a fault in flight");
        let fault = self.faults.remove(at);
        let Fault { space, va, access, .. } = fault;
        if self.stack_grew(space, va, served) {
            self.revise_faults();
            return self.fault_on_stack(by, &fault, served);
        }
        match served {
            Ok(()) if fault.served => {
                self.copied(&fault);
                Ok(())
            }
            Err(FaultSignal::NoMemory) if self.memory_may_fail => Ok(()),
            Err(signal) if fault.signals.contains(&signal) => {
                self.signalled(&fault, signal);
                Ok(())
            }
            Ok(()) => Err(self.wrong(by, space, va, access, AccessResult::Made)),
            Err(signal) => Err(self.wrong(by, space, va, access, AccessResult::Signal(signal))),
        }
    }

    /// Judges a fault that made a stack grow, by the mapping that the growth has added.
    fn fault_on_stack(&mut self, by: CpuStep, fault: &Fault, served: Result<(), FaultSignal>) -> SpecVerdict {
        let Fault { space, va, access, .. } = *fault;
        let got = served.map_or_else(AccessResult::Signal, |()| AccessResult::Made);
        let expected = self.expect(space, va, access);
        let made = expected.iter().any(|got| matches!(got, AccessResult::Made | AccessResult::Value(_)));
        let possible = match served {
            Ok(()) => made,
            Err(FaultSignal::NoMemory) => self.memory_may_fail,
            Err(signal) => expected.contains(&AccessResult::Signal(signal)),
        };
        if possible { Ok(()) } else { Err(self.wrong(by, space, va, access, got)) }
    }

    /// Reports the end of a fault made by a populating call instead of an access.
    ///
    /// Its result is unknown. With `served`, it may have made a private copy.
    ///
    /// # Panics
    /// If the fault is not in flight.
    pub fn prefault_ends(&mut self, fault: FaultId, served: bool) {
        let at = self.faults.iter().position(|other| other.id == fault.0).expect("a fault in flight");
        let fault = self.faults.remove(at);
        if served {
            self.copied(&fault);
        }
    }

    /// Reports that an access got a signal, while nothing else happened.
    ///
    /// # Errors
    /// As [`Spec::fault_ends`].
    ///
    /// # Panics
    /// If the process is unknown.
    pub fn access_signalled(
        &mut self,
        by: CpuStep,
        space: SpaceId,
        va: VirtAddr,
        access: Access,
        signal: FaultSignal,
    ) -> SpecVerdict {
        let fault = self.fault_begins(space, va, access);
        self.fault_ends(by, fault, Err(signal))
    }

    /// How often states of the page of `va` were dropped, and how many pages were removed.
    fn drops(&self, space: SpaceId, va: VirtAddr) -> (u64, u64) {
        let Some(process) = self.processes.get(&space) else { return (0, 0) };
        let page = process.pages.get(&va.page_index());
        (page.map_or(0, |page| page.drops), process.forgotten)
    }

    /// Drops the states that a signal refutes, unless states were dropped since its fault began.
    fn signalled(&mut self, fault: &Fault, signal: FaultSignal) {
        if self.drops(fault.space, fault.va) != fault.drops {
            return;
        }
        let Self { processes, files, .. } = self;
        let Some(process) = processes.get_mut(&fault.space) else { return };
        let index = fault.va.page_index();
        let acting = process.acting.clone();
        let Some(page) = process.page(index).filter(|page| page.states.len() > 1) else { return };
        page.narrow(index, &acting, |state| access_outcome(state, fault.access, files).1 == Some(signal));
    }

    /// Adds the private copies that a fault may have made of what the file held meanwhile.
    fn copied(&mut self, fault: &Fault) {
        let process = self.process(fault.space);
        let Some(page) = process.page(fault.va.page_index()) else { return };
        for (id, at, copy) in &fault.copies {
            let backing = PageBacking::File { file: *id, index: *at };
            let uncopied = |state: &&PossibleState| {
                state.own.is_none() && state.map.is_some_and(|map| !map.shared && map.backing == backing)
            };
            let copies: Vec<PossibleState> = page.states.iter().filter(uncopied).cloned().collect();
            for state in copies {
                page.add(PossibleState { own: Some(PageContents::Cow(copy.clone())), ..state });
            }
        }
        if fault.access == Access::Write {
            page.forget_soft_dirty();
        }
    }

    /// Adds what is possible now to the results of the pending faults, after a change.
    pub(super) fn revise_faults(&mut self) {
        let Self { processes, faults, files, .. } = self;
        for fault in faults {
            let Some(process) = processes.get(&fault.space) else { continue };
            for state in &process.look(fault.va.page_index()).unwrap_or_default().states {
                let (place, signal) = access_outcome(state, fault.access, files);
                fault.served |= place.is_some();
                if let (Some(DataLocation::File(file, index)), true) = (place, copies(state, fault.access)) {
                    fault.may_copy(file, index, state.contents(DataLocation::File(file, index), files));
                }
                fault.signals.extend(signal.filter(|signal| !fault.signals.contains(signal)));
            }
        }
    }

    #[cold]
    fn wrong(&self, by: CpuStep, space: SpaceId, va: VirtAddr, access: Access, got: AccessResult) -> Box<Violation> {
        let expected = self.expect(space, va, access);
        let page = self.processes.get(&space).and_then(|process| process.pages.get(&va.page_index()));
        let (stored, changed) = page.map_or((None, None), |page: &Page| (page.stored, page.changed));
        Self::violation(by, SpecMismatch::Access { space, va, access, got, expected, stored, changed })
    }
}

#[inline]
fn note_overlap(process: &Process, va: VirtAddr, tally: &mut crate::tally::Tally) {
    if !process.acting.is_empty() && process.acting.iter().any(|call| call.effect.range().contains(va)) {
        tally.note(Antecedent::Overlapped);
    }
}
