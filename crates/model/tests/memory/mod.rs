//! The reference memory, on cases made by hand and against a naive memory.
//!
//! Calls on the naive memory act page by page and overlap with accesses (INV-ORACLE-O3,
//! INV-ORACLE-SPEC).

mod exclusive;
mod linux_semantics;
mod naive_memory;

use naive_memory::{CELLS, FILE, Naive, initial};
use pagewright_model::spec::{
    AccessResult, CallId, CallResult, FaultId, FaultSignal, MappingFlags, MemoryCall, MmapObject, MmapPlacement,
    RangeCall, Spec,
};
use pagewright_model::{Antecedent, CpuStep};
use pagewright_types::{Access, CpuId, PageRange, Rights, SpaceId, VirtAddr};
use proptest::prelude::*;

const ARENA: u64 = 0x100;
const PAGES: u64 = 8;
const FILE_PAGES: u64 = 6;
const PARENT: SpaceId = SpaceId::new(1);
const RIGHTS: [Rights; 4] = [Rights::RW, Rights::READ, Rights::empty(), Rights::RW];

fn spec() -> Spec {
    let mut spec = Spec::new(VirtAddr::new(0x7fff_ffff_f000), false);
    spec.add_space(PARENT, VirtAddr::new(0x100_0000));
    spec.add_file(FILE, FILE_PAGES, Box::new(initial));
    spec
}

/// Random decisions; 0 once they have run out.
struct Choices(std::vec::IntoIter<u16>);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next().map_or(0, |choice| u64::from(choice) % n)
    }

    fn pages(&mut self) -> (VirtAddr, u64) {
        let first = self.below(PAGES);
        let pages = 1 + self.below(3).min(PAGES - first - 1);
        (VirtAddr::from_page_index(ARENA + first), pages * 4096)
    }

    fn cell(&mut self) -> VirtAddr {
        VirtAddr::from_page_index(ARENA + self.below(PAGES)).add(self.below(CELLS as u64) * 8)
    }

    fn call(&mut self) -> MemoryCall {
        let (addr, len) = self.pages();
        let rights = RIGHTS[self.below(4) as usize];
        match self.below(6) {
            0 | 1 => {
                let place =
                    if self.below(3) == 0 { MmapPlacement::FixedNoReplace(addr) } else { MmapPlacement::Fixed(addr) };
                let opened = if self.below(4) == 0 { Rights::READ } else { Rights::RW };
                let file = self.below(2) == 0;
                let shared = file && self.below(2) == 0;
                let object = if file {
                    MmapObject::File { file: FILE, index: self.below(FILE_PAGES), opened }
                } else {
                    MmapObject::Anon
                };
                let rights = if shared && opened == Rights::READ { Rights::READ } else { rights };
                MemoryCall::Mmap { place, len, rights, shared, object, flags: MappingFlags::default() }
            }
            2 => MemoryCall::Range(RangeCall::Munmap { addr, len }),
            3 => MemoryCall::Range(RangeCall::Mprotect { addr, len, rights }),
            4 => MemoryCall::Range(RangeCall::DontNeed { addr, len }),
            _ => MemoryCall::Fork,
        }
    }
}

/// What a thread is doing.
enum Doing {
    Nothing,
    /// In a call: its result and the pages left to act on, once they are decided.
    Calling {
        id: CallId,
        call: MemoryCall,
        decided: Option<(CallResult, Vec<VirtAddr>)>,
    },
    /// In a fault: its result, once it is decided.
    Faulting {
        id: FaultId,
        va: VirtAddr,
        access: Access,
        decided: Option<Result<(), FaultSignal>>,
    },
}

struct Run {
    spec: Spec,
    naive: Naive,
    threads: [Doing; 3],
    /// The thread whose call acts on pages; calls are serialised, accesses are not.
    lock: Option<usize>,
    children: u64,
    /// The child of the fork in flight, and the pages copied so far.
    copying: Option<(SpaceId, Vec<u64>)>,
    step: u64,
}

impl Run {
    fn by(&self, thread: usize) -> CpuStep {
        CpuStep { cpu: CpuId::new(thread as u16), step: self.step }
    }

    fn step(&mut self, choices: &mut Choices) -> Result<(), TestCaseError> {
        self.step += 1;
        let thread = choices.below(3) as usize;
        match std::mem::replace(&mut self.threads[thread], Doing::Nothing) {
            Doing::Nothing if choices.below(3) == 0 => {
                let call = choices.call();
                let id = self.spec.call_begins(self.by(thread), PARENT, call);
                self.threads[thread] = Doing::Calling { id, call, decided: None };
            }
            Doing::Nothing => self.access(thread, choices)?,
            Doing::Calling { id, call, decided: None } => {
                if self.lock.is_none() {
                    self.lock = Some(thread);
                    let decided = Some(self.decide(call));
                    self.threads[thread] = Doing::Calling { id, call, decided };
                } else {
                    self.threads[thread] = Doing::Calling { id, call, decided: None };
                }
            }
            Doing::Calling { id, call, decided: Some((result, mut left)) } => {
                if let Some(va) = left.pop() {
                    self.act(call, va);
                    self.threads[thread] = Doing::Calling { id, call, decided: Some((result, left)) };
                } else {
                    if self.lock == Some(thread) {
                        self.lock = None;
                    }
                    self.copying = self.copying.take().filter(|_| call != MemoryCall::Fork);
                    check(self.spec.call_ends(self.by(thread), id, result))?;
                }
            }
            Doing::Faulting { id, va, access, decided: None } => {
                let decided = Some(self.naive.refuses(PARENT, va, access).map_or(Ok(()), Err));
                self.threads[thread] = Doing::Faulting { id, va, access, decided };
            }
            Doing::Faulting { id, decided: Some(served), .. } => {
                check(self.spec.fault_ends(self.by(thread), id, served))?
            }
        }
        Ok(())
    }

    fn decide(&mut self, call: MemoryCall) -> (CallResult, Vec<VirtAddr>) {
        if call == MemoryCall::Fork {
            self.children += 1;
            let child = SpaceId::new(1 + self.children);
            self.naive.spaces.insert(child.raw(), Default::default());
            self.copying = Some((child, Vec::new()));
            let range = PageRange::new(VirtAddr::from_page_index(ARENA), VirtAddr::from_page_index(ARENA + PAGES));
            return (CallResult::Child(child), range.iter().collect());
        }
        let (result, range) = self.naive.decide(PARENT, call);
        (result, range.iter().collect())
    }

    fn act(&mut self, call: MemoryCall, va: VirtAddr) {
        match (&mut self.copying, call) {
            (Some((child, copied)), MemoryCall::Fork) => {
                let child = *child;
                copied.push(va.page_index());
                self.naive.copy_page(PARENT, child, va.page_index());
            }
            (_, _) => self.naive.act(PARENT, call, va),
        }
    }

    /// Makes an access of the parent or a child; one that would get a signal may begin a fault.
    fn access(&mut self, thread: usize, choices: &mut Choices) -> Result<(), TestCaseError> {
        let (va, write, by) = (choices.cell(), choices.below(2) == 0, self.by(thread));
        let youngest = SpaceId::new(1 + self.children);
        let space = if choices.below(4) == 0 && self.spec.has_space(youngest) { youngest } else { PARENT };
        let access = if write { Access::Write } else { Access::Read };
        if let Some(signal) = self.naive.refuses(space, va, access) {
            if space == PARENT && choices.below(2) == 0 {
                let id = self.spec.fault_begins(space, va, access);
                self.threads[thread] = Doing::Faulting { id, va, access, decided: None };
                return Ok(());
            }
            return check(self.spec.access_signalled(by, space, va, access, signal));
        }
        if !write {
            return check(self.spec.load(by, space, va, self.naive.load(space, va)));
        }
        self.naive.store(space, va, self.step);
        // Until fork returns, a CPU may still store to a page that was copied.
        if let Some((child, copied)) = &self.copying
            && space == PARENT
            && copied.contains(&va.page_index())
            && choices.below(2) == 0
        {
            self.naive.copy_page(PARENT, *child, va.page_index());
        }
        check(self.spec.store(by, space, va, self.step))
    }

    /// Checks that the naive memory's value of each cell is among the expected ones.
    fn compare(&self) -> Result<(), TestCaseError> {
        for &space in self.naive.spaces.keys() {
            let space = SpaceId::new(space);
            for cell in 0..PAGES * CELLS as u64 {
                let va = VirtAddr::from_page_index(ARENA + cell / CELLS as u64).add(cell % CELLS as u64 * 8);
                let got = match self.naive.refuses(space, va, Access::Read) {
                    Some(signal) => AccessResult::Signal(signal),
                    None => AccessResult::Value(self.naive.load(space, va)),
                };
                let expected = self.spec.expect(space, va, Access::Read);
                prop_assert!(expected.contains(&got), "{got} at {va} of {space}, expected {expected:?}");
            }
        }
        Ok(())
    }
}

fn check(verdict: pagewright_model::spec::SpecVerdict) -> Result<(), TestCaseError> {
    verdict.map_err(|violation| TestCaseError::fail(violation.to_string()))
}

fn run(choices: Vec<u16>) -> Result<Run, TestCaseError> {
    let mut choices = Choices(choices.into_iter());
    let threads = [Doing::Nothing, Doing::Nothing, Doing::Nothing];
    let mut run =
        Run { spec: spec(), naive: Naive::new(FILE_PAGES), threads, lock: None, children: 0, copying: None, step: 0 };
    while choices.0.len() > 0 {
        run.step(&mut choices)?;
    }
    Ok(run)
}

proptest! {
    /// However calls and accesses overlap, no possible result is reported.
    #[test]
    fn every_result_of_a_memory_without_tlbs_is_accepted(choices in prop::collection::vec(any::<u16>(), 0..800)) {
        run(choices)?;
    }

    /// Without overlap, exactly one result is possible, and it is the right one.
    #[test]
    fn without_overlap_exactly_one_result_is_possible(calls in prop::collection::vec(any::<u16>(), 0..300)) {
        let mut choices = Choices(calls.into_iter());
        let (mut spec, mut naive, mut step) = (spec(), Naive::new(FILE_PAGES), 0);
        let by = |step| CpuStep { cpu: CpuId::new(0), step };
        let mut spaces = vec![PARENT];
        while choices.0.len() > 0 {
            step += 1;
            let space = spaces[choices.below(spaces.len() as u64) as usize];
            match choices.below(8) {
                0..=3 => {
                    let va = choices.cell();
                    match naive.refuses(space, va, Access::Write) {
                        Some(signal) => check(spec.access_signalled(by(step), space, va, Access::Write, signal))?,
                        None => {
                            naive.store(space, va, step);
                            check(spec.store(by(step), space, va, step))?;
                        }
                    }
                }
                4 => {
                    let pages = choices.below(FILE_PAGES + 2);
                    spec.truncate_begins(FILE, pages);
                    naive.truncate(pages);
                    spec.truncate_ends(FILE);
                }
                _ => {
                    let call = choices.call();
                    if call == MemoryCall::Fork {
                        let child = SpaceId::new(1 + spaces.len() as u64);
                        naive.spaces.insert(child.raw(), Default::default());
                        (ARENA..ARENA + PAGES).for_each(|index| naive.copy_page(space, child, index));
                        check(spec.call(by(step), space, call, CallResult::Child(child)))?;
                        spaces.push(child);
                    } else {
                        let (result, range) = naive.decide(space, call);
                        range.iter().for_each(|va| naive.act(space, call, va));
                        check(spec.call(by(step), space, call, result))?;
                    }
                }
            }
        }
        for &space in &spaces {
            for cell in 0..PAGES * CELLS as u64 {
                let va = VirtAddr::from_page_index(ARENA + cell / CELLS as u64).add(cell % CELLS as u64 * 8);
                let got = naive.refuses(space, va, Access::Read).map_or_else(|| AccessResult::Value(naive.load(space, va)), AccessResult::Signal);
                prop_assert_eq!(spec.expect(space, va, Access::Read), vec![got], "at {}", va);
            }
            prop_assert!(spec.maps(space).is_some());
        }
    }
}

#[test]
fn overlapping_runs_do_overlap() {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u16
    };
    let choices: Vec<u16> = (0..60_000).map(|_| next()).collect();
    let run = run(choices).expect("no violation");
    let overlapped = run.spec.tally().of(Antecedent::Overlapped);
    assert!(overlapped > 100 && run.children > 3, "{overlapped} accesses and {} forks", run.children);
    run.compare().expect("the naive memory's values are expected");
}
