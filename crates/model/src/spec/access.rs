//! Loads, stores, fetches and the faults on their way.

use super::data::{Base, Data};
use super::file::Files;
use super::page::{Page, Source, World};
use super::sheet::Sheet;
use super::soft_dirty::Mark;
use super::{Process, Spec, Verdict};
use crate::tally::Antecedent;
use crate::violation::{Did, Misread, Violation};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt;
use pagewright_types::{Access, FileId, SpaceId, VirtAddr};

/// What an access that can't be made gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// `SIGSEGV`, `SEGV_MAPERR`: nothing is mapped.
    NotMapped,
    /// `SIGSEGV`, `SEGV_ACCERR`: the mapping does not allow it.
    NotAllowed,
    /// `SIGBUS`: past the end of the file.
    PastEnd,
    /// Nothing was left to serve it with.
    NoMemory,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMapped => "SIGSEGV (SEGV_MAPERR)",
            Self::NotAllowed => "SIGSEGV (SEGV_ACCERR)",
            Self::PastEnd => "SIGBUS",
            Self::NoMemory => "out of memory",
        })
    }
}

/// What an access gave, or can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Got {
    /// A load: this.
    Value(u64),
    /// A store or a fetch: it was made.
    Made,
    /// A signal.
    Signal(Signal),
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value:#x}"),
            Self::Made => f.write_str("success"),
            Self::Signal(signal) => signal.fmt(f),
        }
    }
}

/// Names a fault under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the end of the fault must be told"]
pub struct FaultId(u64);

/// A fault under way.
pub(super) struct Fault {
    id: u64,
    space: SpaceId,
    va: VirtAddr,
    access: Access,
    /// At some time since it began, the access could have been made.
    served: bool,
    /// Signals that it could have got.
    signals: Vec<Signal>,
    /// What [`Spec::drops`] said when it began.
    drops: (u64, u64),
    /// Pages of files that it may be copying, with all that they may have held meanwhile.
    copies: Vec<(FileId, u64, Rc<Data>)>,
}

impl Fault {
    /// It may copy what this page of a file holds now.
    fn may_copy(&mut self, file: FileId, index: u64, now: Rc<Data>) {
        let known = |copy: &&mut (FileId, u64, Rc<Data>)| (copy.0, copy.1, copy.2.base()) == (file, index, now.base());
        match self.copies.iter_mut().find(known) {
            Some((_, _, copy)) if Rc::ptr_eq(copy, &now) => {}
            Some((_, _, copy)) => {
                Rc::make_mut(copy).join(&now);
            }
            None => self.copies.push((file, index, now)),
        }
    }
}

/// Whether such an access makes a private copy.
fn copies(world: &World, access: Access) -> bool {
    access == Access::Write && world.map.is_some_and(|map| !map.shared)
}

/// Where the bytes of an access are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the private copy.
    Own,
    /// Nowhere yet: zeroes.
    Zero,
    /// In the file.
    File(FileId, u64),
}

/// What an access to a page in this world comes to: where it leads, if anywhere, and what signal it
/// gets, if any. Both are possible while a truncation is under way.
#[inline]
fn outcome(world: &World, access: Access, files: &Files) -> (Option<Place>, Option<Signal>) {
    let Some(map) = world.map else { return (None, Some(Signal::NotMapped)) };
    if !map.allows(access) {
        return (None, Some(Signal::NotAllowed));
    }
    if map.traits.guarded {
        return (None, Some(Signal::NotMapped));
    }
    match map.source {
        Source::Anon if world.own.is_some() => (Some(Place::Own), None),
        Source::Anon => (Some(Place::Zero), None),
        Source::File { file, index } => {
            let (exists, lacks) = files.0.get(&file).map_or((false, true), |file| file.has(index));
            let place = if world.own.is_some() { Place::Own } else { Place::File(file, index) };
            (exists.then_some(place), lacks.then_some(Signal::PastEnd))
        }
    }
}

fn cell_of(va: VirtAddr) -> u16 {
    debug_assert!(va.is_aligned(8), "cells are eight bytes");
    (va.page_offset() / 8) as u16
}

impl World {
    /// The page that an access finds in `place`.
    fn contents(&self, place: Place, files: &Files) -> Rc<Data> {
        match (place, &self.own) {
            (Place::Own, Some(own)) => own.read(),
            (Place::File(id, index), _) if let Some(file) = files.0.get(&id) => file.page(id, index),
            (Place::Own | Place::Zero | Place::File(..), _) => Self::zeroes(),
        }
    }

    fn can_load(&self, cell: u16, value: u64, files: &Files) -> bool {
        let (Some(place), _) = outcome(self, Access::Read, files) else { return false };
        let base = |base: Base| files.initial(base, cell);
        match (place, &self.own) {
            (Place::Zero, _) => value == 0,
            (Place::Own, Some(own)) => own.can_hold(cell, value, &base),
            (Place::File(id, index), _) => {
                files.0.get(&id).is_some_and(|file| file.can_hold(id, index, cell, value, &base))
            }
            (Place::Own, None) => false,
        }
    }

    /// A load has shown what the cell holds.
    fn settle(&mut self, cell: u16, value: u64, files: &mut Files) {
        match outcome(self, Access::Read, files).0 {
            Some(Place::Own) => {
                if let Some(own) = self.own.as_mut().filter(|own| own.is_in_doubt(cell)) {
                    own.set(cell, value);
                }
            }
            Some(Place::File(id, index)) => {
                if let Some(file) = files.0.get_mut(&id)
                    && file.is_in_doubt(index, cell)
                {
                    file.page_mut(id, index).set(cell, value);
                }
            }
            Some(Place::Zero) | None => {}
        }
    }
}

impl Spec {
    /// A load of the cell at `va` gave `value`.
    ///
    /// # Errors
    /// A [`Violation`] when it could not have.
    ///
    /// # Panics
    /// When the process is unknown; in debug builds when `va` is no multiple of eight.
    pub fn load(&mut self, did: Did, space: SpaceId, va: VirtAddr, value: u64) -> Verdict {
        self.tally.note(Antecedent::Loaded);
        let cell = cell_of(va);
        let Self { processes, files, tally, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was told of and has not ended");
        note_overlap(process, va, tally);
        if let Some(page) = process.page(va.page_index()) {
            let fits = |world: &World| world.can_load(cell, value, files);
            match &mut page.worlds[..] {
                [only] if fits(only) => {
                    only.settle(cell, value, files);
                    return Ok(());
                }
                [_] => {}
                worlds if worlds.iter().any(fits) => {
                    page.retain(|world| world.can_load(cell, value, files));
                    if let [only] = &mut page.worlds[..] {
                        only.settle(cell, value, files);
                    }
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(self.wrong(did, space, va, Access::Read, Got::Value(value)))
    }

    /// A store of `value` to the cell at `va` was made.
    ///
    /// # Errors
    /// A [`Violation`] when it could not have been.
    ///
    /// # Panics
    /// As [`Spec::load`].
    pub fn store(&mut self, did: Did, space: SpaceId, va: VirtAddr, value: u64) -> Verdict {
        self.tally.note(Antecedent::Stored);
        let cell = cell_of(va);
        let Self { processes, files, tally, faults, .. } = self;
        let process = processes.get_mut(&space).expect("a process that was told of and has not ended");
        note_overlap(process, va, tally);
        let permitted = |world: &World, files: &Files| outcome(world, Access::Write, files).0.is_some();
        let page = process.page(va.page_index());
        let Some(page) = page.filter(|page| page.worlds.iter().any(|world| permitted(world, files))) else {
            return Err(self.wrong(did, space, va, Access::Write, Got::Made));
        };
        if page.worlds.len() > 1 {
            page.retain(|world| permitted(world, files));
        }
        page.stored = Some(did);
        page.mark = Mark::Set;
        page.fleeting = false;
        // Whether it reaches a page that is pinned is certain only if it does in all worlds.
        let lone = page.worlds.len() == 1;
        // In some worlds the store goes to a file and in others it doesn't: then the file may or
        // may not have it.
        let mut filed: Vec<(FileId, u64)> = Vec::new();
        let mut private = false;
        for world in &mut page.worlds {
            let shared = world.map.is_some_and(|map| map.shared);
            match outcome(world, Access::Write, files).0 {
                Some(Place::File(id, index)) if shared => filed.push((id, index)),
                Some(Place::Own) => {
                    private = true;
                    let own = world.own_mut(World::zeroes);
                    if lone || !own.is_pinned() { own.set(cell, value) } else { own.allow(cell, value) }
                }
                Some(place) => {
                    private = true;
                    let from = world.contents(place, files);
                    world.own_mut(|| from).set(cell, value);
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
        process.tell_forks(va.page_index());
        Ok(())
    }

    /// An instruction was fetched from `va`.
    ///
    /// # Errors
    /// A [`Violation`] when it could not have been.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn fetch(&mut self, did: Did, space: SpaceId, va: VirtAddr) -> Verdict {
        self.tally.note(Antecedent::Loaded);
        let possible = self.expect(space, va, Access::Exec).contains(&Got::Made);
        if possible { Ok(()) } else { Err(self.wrong(did, space, va, Access::Exec, Got::Made)) }
    }

    /// Everything that an access to `va` could give now.
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn expect(&self, space: SpaceId, va: VirtAddr, access: Access) -> Vec<Got> {
        let process = self.processes.get(&space).expect("a process that was told of and has not ended");
        let page = process.look(va.page_index()).unwrap_or_default();
        let cell = (va.page_offset() / 8) as u16;
        let mut all = Vec::new();
        for world in &page.worlds {
            let (place, signal) = outcome(world, access, &self.files);
            match (place, access) {
                (Some(place), Access::Read) => {
                    let values =
                        world.contents(place, &self.files).values(cell, &|base| self.files.initial(base, cell));
                    all.extend(values.into_iter().map(Got::Value));
                }
                (Some(_), Access::Write | Access::Exec) => all.push(Got::Made),
                (None, _) => {}
            }
            all.extend(signal.map(Got::Signal));
        }
        let mut unique: Vec<Got> = Vec::new();
        for one in all {
            if !unique.contains(&one) {
                unique.push(one);
            }
        }
        unique
    }

    /// An access faults.
    ///
    /// What it could come to is watched until [`Spec::fault_ends`].
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn fault_begins(&mut self, space: SpaceId, va: VirtAddr, access: Access) -> FaultId {
        assert!(self.processes.contains_key(&space), "a process that was told of and has not ended");
        let id = self.fresh_id();
        let drops = self.drops(space, va);
        let fault = Fault { id, space, va, access, served: false, signals: Vec::new(), drops, copies: Vec::new() };
        self.faults.push(fault);
        self.revise_faults();
        FaultId(id)
    }

    /// The fault has been served, and the access is tried again – or it got a signal.
    ///
    /// # Errors
    /// A [`Violation`] when it could have come to that at no time since it began.
    ///
    /// # Panics
    /// When the fault was not begun.
    pub fn fault_ends(&mut self, did: Did, fault: FaultId, served: Result<(), Signal>) -> Verdict {
        self.tally.note(Antecedent::Refused);
        let at = self.faults.iter().position(|other| other.id == fault.0).expect("a fault under way");
        let fault = self.faults.remove(at);
        let Fault { space, va, access, .. } = fault;
        if self.stack_grew(space, va, served) {
            self.revise_faults();
            return self.fault_on_stack(did, &fault, served);
        }
        match served {
            Ok(()) if fault.served => {
                self.copied(&fault);
                Ok(())
            }
            Err(Signal::NoMemory) if self.memory_may_fail => Ok(()),
            Err(signal) if fault.signals.contains(&signal) => {
                self.signalled(&fault, signal);
                Ok(())
            }
            Ok(()) => Err(self.wrong(did, space, va, access, Got::Made)),
            Err(signal) => Err(self.wrong(did, space, va, access, Got::Signal(signal))),
        }
    }

    /// The fault made a stack grow: what came of the access is judged by what is mapped since.
    fn fault_on_stack(&mut self, did: Did, fault: &Fault, served: Result<(), Signal>) -> Verdict {
        let Fault { space, va, access, .. } = *fault;
        let got = served.map_or_else(Got::Signal, |()| Got::Made);
        let expected = self.expect(space, va, access);
        let made = expected.iter().any(|got| matches!(got, Got::Made | Got::Value(_)));
        let possible = match served {
            Ok(()) => made,
            Err(Signal::NoMemory) => self.memory_may_fail,
            Err(signal) => expected.contains(&Got::Signal(signal)),
        };
        if possible { Ok(()) } else { Err(self.wrong(did, space, va, access, got)) }
    }

    /// A fault that no program waited for, as populating makes them, is over.
    ///
    /// Nobody knows what it came to: with `served` it may have made a private copy.
    ///
    /// # Panics
    /// When the fault was not begun.
    pub fn fault_unseen(&mut self, fault: FaultId, served: bool) {
        let at = self.faults.iter().position(|other| other.id == fault.0).expect("a fault under way");
        let fault = self.faults.remove(at);
        if served {
            self.copied(&fault);
        }
    }

    /// An access got a signal, while nothing else happened.
    ///
    /// # Errors
    /// As [`Spec::fault_ends`].
    ///
    /// # Panics
    /// When the process is unknown.
    pub fn refused(&mut self, did: Did, space: SpaceId, va: VirtAddr, access: Access, signal: Signal) -> Verdict {
        let fault = self.fault_begins(space, va, access);
        self.fault_ends(did, fault, Err(signal))
    }

    /// How often worlds of the page of `va` were dropped, and how often whole pages were forgotten.
    fn drops(&self, space: SpaceId, va: VirtAddr) -> (u64, u64) {
        let Some(process) = self.processes.get(&space) else { return (0, 0) };
        let page = process.pages.get(&va.page_index());
        (page.map_or(0, |page| page.drops), process.forgotten)
    }

    /// A signal tells worlds apart as an access does, if nothing else has done so since its fault
    /// began.
    fn signalled(&mut self, fault: &Fault, signal: Signal) {
        if self.drops(fault.space, fault.va) != fault.drops {
            return;
        }
        let Self { processes, files, .. } = self;
        let Some(process) = processes.get_mut(&fault.space) else { return };
        let index = fault.va.page_index();
        let acting = process.acting.clone();
        let Some(page) = process.page(index).filter(|page| page.worlds.len() > 1) else { return };
        page.settle_on(index, &acting, |world| outcome(world, fault.access, files).1 == Some(signal));
    }

    /// A fault for a store may have made a private copy, of anything that the file held meanwhile.
    fn copied(&mut self, fault: &Fault) {
        let process = self.process(fault.space);
        let Some(page) = process.page(fault.va.page_index()) else { return };
        for (id, at, copy) in &fault.copies {
            let source = Source::File { file: *id, index: *at };
            let uncopied = |world: &&World| {
                world.own.is_none() && world.map.is_some_and(|map| !map.shared && map.source == source)
            };
            let copies: Vec<World> = page.worlds.iter().filter(uncopied).cloned().collect();
            for world in copies {
                page.add(World { own: Some(Sheet::Lent(copy.clone())), ..world });
            }
        }
        if fault.access == Access::Write {
            page.blur();
        }
    }

    /// Something has changed: faults under way may come to what is possible now.
    pub(super) fn revise_faults(&mut self) {
        let Self { processes, faults, files, .. } = self;
        for fault in faults {
            let Some(process) = processes.get(&fault.space) else { continue };
            for world in &process.look(fault.va.page_index()).unwrap_or_default().worlds {
                let (place, signal) = outcome(world, fault.access, files);
                fault.served |= place.is_some();
                if let (Some(Place::File(file, index)), true) = (place, copies(world, fault.access)) {
                    fault.may_copy(file, index, world.contents(Place::File(file, index), files));
                }
                fault.signals.extend(signal.filter(|signal| !fault.signals.contains(signal)));
            }
        }
    }

    #[cold]
    fn wrong(&self, did: Did, space: SpaceId, va: VirtAddr, access: Access, got: Got) -> Box<Violation> {
        let expected = self.expect(space, va, access);
        let page = self.processes.get(&space).and_then(|process| process.pages.get(&va.page_index()));
        let (stored, changed) = page.map_or((None, None), |page: &Page| (page.stored, page.changed));
        Self::violation(did, Misread::Access { space, va, access, got, expected, stored, changed })
    }
}

#[inline]
fn note_overlap(process: &Process, va: VirtAddr, tally: &mut crate::tally::Tally) {
    if !process.acting.is_empty() && process.acting.iter().any(|call| call.effect.range().contains(va)) {
        tally.note(Antecedent::Overlapped);
    }
}
