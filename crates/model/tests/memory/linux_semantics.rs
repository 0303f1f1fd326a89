//! Corner cases of Linux's semantics, and results that must be reported.

use super::naive_memory::{FILE, initial};
use super::{PARENT, spec};
use pagewright_model::spec::{
    AccessResult, CallResult, FaultSignal, MappingFlags, MapsLine, MemoryCall, MmapObject, MmapPlacement, RangeCall,
    Spec,
};
use pagewright_model::{CpuStep, Rule};
use pagewright_types::{Access, CpuId, Errno, PageRange, Rights, SpaceId, VirtAddr};

const CHILD: SpaceId = SpaceId::new(2);
const ZERO: AccessResult = AccessResult::Value(0);

fn by(step: u64) -> CpuStep {
    CpuStep { cpu: CpuId::new(1), step }
}

const fn va(raw: u64) -> VirtAddr {
    VirtAddr::new(raw)
}

fn anon(at: u64, len: u64, rights: Rights) -> MemoryCall {
    MemoryCall::Mmap {
        place: MmapPlacement::Fixed(va(at)),
        len,
        rights,
        shared: false,
        object: MmapObject::Anon,
        flags: MappingFlags::default(),
    }
}

fn file(at: u64, len: u64, rights: Rights, shared: bool, index: u64, opened: Rights) -> MemoryCall {
    let object = MmapObject::File { file: FILE, index, opened };
    MemoryCall::Mmap {
        place: MmapPlacement::Fixed(va(at)),
        len,
        rights,
        shared,
        object,
        flags: MappingFlags::default(),
    }
}

/// Reports a call whose result must be accepted.
fn must(spec: &mut Spec, call: MemoryCall, result: CallResult) {
    spec.call(by(1), PARENT, call, result).unwrap_or_else(|violation| panic!("{violation}"));
}

fn map(spec: &mut Spec, call: MemoryCall) {
    let MemoryCall::Mmap { place: MmapPlacement::Fixed(at), .. } = call else { panic!("a fixed mapping") };
    must(spec, call, CallResult::Mapped(at));
}

/// Whether the result is reported as a violation.
fn refused(spec: &mut Spec, call: MemoryCall, result: CallResult) -> bool {
    spec.call(by(1), PARENT, call, result).is_err_and(|violation| violation.rule == Rule::Memory)
}

#[test]
fn a_load_returns_the_last_store_or_is_reported() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x2000, Rights::RW));
    spec.store(by(2), PARENT, va(0x1008), 7).expect("a store");
    spec.load(by(3), PARENT, va(0x1008), 7).expect("the value stored");
    spec.load(by(3), PARENT, va(0x1000), 0).expect("the neighbouring cell is unchanged");
    let violation = spec.load(by(4), PARENT, va(0x1008), 0).expect_err("a lost store");
    assert_eq!(
        violation.to_string(),
        "INV-ORACLE-O3 at step 4, on CPU 1: read at va 0x1008 of space 1: got 0x0; expected 0x7\n\
         \x20 the page was last stored to by CPU 1 at step 2\n\
         \x20 the page was last changed by mmap, by CPU 1 at step 1"
    );
    spec.load(by(5), PARENT, va(0x1008), 7).expect("a report changes nothing");
}

#[test]
fn unmapped_pages_are_gone_once_munmap_has_returned() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    spec.store(by(2), PARENT, va(0x1000), 7).expect("a store");
    let call = spec.call_begins(by(3), PARENT, MemoryCall::Range(RangeCall::Munmap { addr: va(0x1000), len: 1 }));
    spec.load(by(3), PARENT, va(0x1000), 7).expect("still there");
    spec.access_signalled(by(3), PARENT, va(0x1000), Access::Read, FaultSignal::NotMapped).expect("already gone");
    assert!(spec.load(by(3), PARENT, va(0x1000), 8).is_err(), "no other value is possible");
    spec.call_ends(by(4), call, CallResult::Done).expect("munmap succeeds");
    assert!(spec.load(by(5), PARENT, va(0x1000), 7).is_err());
    assert!(spec.access_signalled(by(5), PARENT, va(0x1000), Access::Read, FaultSignal::NotAllowed).is_err());
    spec.access_signalled(by(5), PARENT, va(0x1000), Access::Read, FaultSignal::NotMapped).expect("the right signal");
}

#[test]
fn once_an_effect_was_observed_the_old_state_is_impossible() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    spec.store(by(2), PARENT, va(0x1000), 7).expect("a store");
    let call =
        spec.call_begins(by(3), PARENT, MemoryCall::Range(RangeCall::DontNeed { addr: va(0x1000), len: 0x1000 }));
    spec.load(by(4), PARENT, va(0x1000), 0).expect("dropped");
    assert!(spec.load(by(5), PARENT, va(0x1000), 7).is_err(), "a stale translation would return the old value");
    spec.call_ends(by(6), call, CallResult::Done).expect("success");
}

#[test]
fn a_fault_may_have_any_result_possible_since_it_began() {
    let mut spec = spec();
    let fault = spec.fault_begins(PARENT, va(0x1000), Access::Write);
    map(&mut spec, anon(0x1000, 0x1000, Rights::READ));
    must(
        &mut spec,
        MemoryCall::Range(RangeCall::Mprotect { addr: va(0x1000), len: 0x1000, rights: Rights::RW }),
        CallResult::Done,
    );
    spec.fault_ends(by(2), fault, Err(FaultSignal::NotAllowed)).expect("between the two calls");
    let fault = spec.fault_begins(PARENT, va(0x1000), Access::Write);
    assert!(spec.fault_ends(by(3), fault, Err(FaultSignal::NotAllowed)).is_err(), "the result is no longer possible");
}

#[test]
fn mprotect_changes_the_pages_before_a_hole() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x2000, Rights::RW));
    map(&mut spec, anon(0x4000, 0x1000, Rights::RW));
    let call = MemoryCall::Range(RangeCall::Mprotect { addr: va(0x1000), len: 0x4000, rights: Rights::READ });
    must(&mut spec, call, CallResult::Failed(Errno::ENOMEM));
    let writable = |spec: &Spec, at| spec.expect(PARENT, va(at), Access::Write) == [AccessResult::Made];
    assert!(!writable(&spec, 0x1000) && !writable(&spec, 0x2000) && writable(&spec, 0x4000));
    must(
        &mut spec,
        MemoryCall::Range(RangeCall::Mprotect { addr: va(0x9000), len: 0, rights: Rights::RW }),
        CallResult::Done,
    );
    must(
        &mut spec,
        MemoryCall::Range(RangeCall::Mprotect { addr: va(0x9001), len: 0, rights: Rights::RW }),
        CallResult::Failed(Errno::EINVAL),
    );
}

#[test]
fn mprotect_cannot_grant_more_than_the_file_was_opened_for() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x1000, Rights::READ));
    map(&mut spec, file(0x2000, 0x1000, Rights::READ, true, 0, Rights::READ));
    let call = MemoryCall::Range(RangeCall::Mprotect { addr: va(0x1000), len: 0x2000, rights: Rights::RW });
    must(&mut spec, call, CallResult::Failed(Errno::EACCES));
    assert_eq!(
        spec.expect(PARENT, va(0x1000), Access::Write),
        [AccessResult::Made],
        "the pages before it were changed"
    );
    assert!(refused(&mut spec, call, CallResult::Failed(Errno::ENOMEM)));
    assert!(refused(&mut spec, call, CallResult::Done));
    let shared = file(0x3000, 0x1000, Rights::RW, true, 0, Rights::READ);
    must(&mut spec, shared, CallResult::Failed(Errno::EACCES));
    map(&mut spec, file(0x3000, 0x1000, Rights::RW, false, 0, Rights::READ));
}

#[test]
fn invalid_arguments_get_linuxs_errors() {
    let mut spec = spec();
    let failed = CallResult::Failed;
    must(&mut spec, MemoryCall::Range(RangeCall::Munmap { addr: va(0x1000), len: 0 }), failed(Errno::EINVAL));
    must(&mut spec, MemoryCall::Range(RangeCall::Munmap { addr: va(0x1001), len: 1 }), failed(Errno::EINVAL));
    must(
        &mut spec,
        MemoryCall::Range(RangeCall::Munmap { addr: va(0x7fff_ffff_e000), len: 0x2000 }),
        failed(Errno::EINVAL),
    );
    must(&mut spec, MemoryCall::Range(RangeCall::Munmap { addr: va(0x1000), len: 0x1000 }), CallResult::Done);
    must(&mut spec, anon(0x1000, 0, Rights::RW), failed(Errno::EINVAL));
    must(&mut spec, anon(0x1234, 1, Rights::RW), failed(Errno::EINVAL));
    must(&mut spec, anon(0x7fff_ffff_e000, 0x2000, Rights::RW), failed(Errno::ENOMEM));
    must(&mut spec, MemoryCall::Range(RangeCall::DontNeed { addr: va(0x1000), len: 0 }), CallResult::Done);
    must(&mut spec, MemoryCall::Range(RangeCall::DontNeed { addr: va(0x1000), len: 1 }), failed(Errno::ENOMEM));
    must(&mut spec, MemoryCall::Range(RangeCall::DontNeed { addr: va(0x1000), len: u64::MAX }), failed(Errno::EINVAL));
}

#[test]
fn a_chosen_address_must_be_free_and_noreplace_fails_on_mappings() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    let anywhere = MemoryCall::Mmap {
        place: MmapPlacement::Anywhere,
        len: 0x2000,
        rights: Rights::READ,
        shared: false,
        object: MmapObject::Anon,
        flags: MappingFlags::default(),
    };
    assert!(refused(&mut spec, anywhere, CallResult::Failed(Errno::ENOMEM)));
    let mut other = super::spec();
    map(&mut other, anon(0x1000, 0x1000, Rights::RW));
    assert!(refused(&mut other, anywhere, CallResult::Mapped(va(0))));
    must(&mut spec, anywhere, CallResult::Mapped(va(0x10_0000)));
    assert_eq!(spec.expect(PARENT, va(0x10_1008), Access::Read), [ZERO]);
    let vacant = |at| MemoryCall::Mmap {
        place: MmapPlacement::FixedNoReplace(va(at)),
        len: 0x2000,
        rights: Rights::RW,
        shared: false,
        object: MmapObject::Anon,
        flags: MappingFlags::default(),
    };
    must(&mut spec, vacant(0), CallResult::Failed(Errno::EEXIST));
    assert!(refused(&mut spec, vacant(0x2000), CallResult::Failed(Errno::EEXIST)));
}

#[test]
fn brk_moves_or_stays() {
    let mut spec = spec();
    let brk = |to: u64| MemoryCall::Range(RangeCall::Brk { to: va(to) });
    must(&mut spec, brk(0), CallResult::Break(va(0x100_0000)));
    must(&mut spec, brk(0x100_2800), CallResult::Break(va(0x100_2800)));
    spec.store(by(2), PARENT, va(0x100_2ff8), 1).expect("the last page is whole");
    must(&mut spec, brk(0x100_0800), CallResult::Break(va(0x100_0800)));
    assert_eq!(spec.expect(PARENT, va(0x100_1000), Access::Read), [AccessResult::Signal(FaultSignal::NotMapped)]);
    map(&mut spec, anon(0x100_1000, 0x1000, Rights::READ));
    assert!(refused(&mut spec, brk(0x100_3000), CallResult::Break(va(0x100_3000))));
}

#[test]
fn brk_does_not_move_over_a_mapping() {
    let mut spec = spec();
    map(&mut spec, anon(0x100_1000, 0x1000, Rights::READ));
    must(&mut spec, MemoryCall::Range(RangeCall::Brk { to: va(0x100_1800) }), CallResult::Break(va(0x100_0000)));
    must(&mut spec, MemoryCall::Range(RangeCall::Brk { to: va(0x100_1000) }), CallResult::Break(va(0x100_1000)));
}

#[test]
fn parent_and_child_have_separate_private_memory_after_fork() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    map(&mut spec, file(0x2000, 0x1000, Rights::RW, true, 0, Rights::RW));
    spec.store(by(2), PARENT, va(0x1000), 1).expect("a store");
    must(&mut spec, MemoryCall::Fork, CallResult::Child(CHILD));
    spec.store(by(3), PARENT, va(0x1000), 2).expect("a store");
    spec.store(by(3), CHILD, va(0x1008), 3).expect("a store");
    spec.store(by(3), CHILD, va(0x2000), 4).expect("a store");
    spec.load(by(4), CHILD, va(0x1000), 1).expect("the contents at the fork");
    assert!(spec.load(by(4), CHILD, va(0x1000), 2).is_err(), "the parent's later store");
    assert!(spec.load(by(4), PARENT, va(0x1008), 3).is_err(), "the child's store");
    spec.load(by(4), PARENT, va(0x2000), 4).expect("shared memory is shared");
    spec.call(by(5), CHILD, MemoryCall::Exit, CallResult::Done).expect("an end");
    assert!(!spec.has_space(CHILD) && spec.has_space(PARENT));
}

#[test]
fn a_private_mapping_shows_the_file_until_the_first_store() {
    let mut spec = spec();
    map(&mut spec, file(0x1000, 0x1000, Rights::RW, true, 0, Rights::RW));
    map(&mut spec, file(0x2000, 0x2000, Rights::RW, false, 0, Rights::READ));
    spec.load(by(2), PARENT, va(0x3008), initial(1, 1)).expect("the contents of the file");
    spec.store(by(2), PARENT, va(0x1000), 1).expect("a store to the file");
    spec.load(by(2), PARENT, va(0x2000), 1).expect("the private mapping shows the file");
    spec.store(by(2), PARENT, va(0x2008), 2).expect("a store to a copy");
    spec.store(by(2), PARENT, va(0x1000), 3).expect("a store to the file");
    spec.load(by(2), PARENT, va(0x2000), 1).expect("the copy stays");
    assert!(spec.load(by(2), PARENT, va(0x1008), 2).is_err(), "the store to the copy is not in the file");
}

#[test]
fn a_private_copy_may_have_any_contents_the_file_had_during_the_fault() {
    let mut spec = spec();
    map(&mut spec, file(0x1000, 0x1000, Rights::RW, true, 0, Rights::RW));
    map(&mut spec, file(0x2000, 0x1000, Rights::RW, false, 0, Rights::READ));
    let fault = spec.fault_begins(PARENT, va(0x2008), Access::Write);
    spec.store(by(2), PARENT, va(0x1000), 1).expect("a store to the file");
    spec.fault_ends(by(3), fault, Ok(())).expect("served");
    spec.store(by(4), PARENT, va(0x1000), 2).expect("after the copy");
    spec.store(by(5), PARENT, va(0x2008), 5).expect("the store that faulted");
    let possible = spec.expect(PARENT, va(0x2000), Access::Read);
    assert!(
        possible.contains(&AccessResult::Value(initial(0, 0))) && possible.contains(&AccessResult::Value(1)),
        "{possible:?}"
    );
    spec.load(by(6), PARENT, va(0x2000), 1).expect("copied after the first store");
    assert_eq!(
        spec.expect(PARENT, va(0x2000), Access::Read),
        [AccessResult::Value(1)],
        "the load has resolved the cell"
    );
}

#[test]
fn truncation_drops_private_copies_and_regrown_pages_are_zero() {
    let mut spec = spec();
    map(&mut spec, file(0x1000, 0x2000, Rights::RW, false, 0, Rights::READ));
    spec.store(by(2), PARENT, va(0x2000), 1).expect("a store to a copy");
    spec.truncate_begins(FILE, 1);
    let both = spec.expect(PARENT, va(0x2000), Access::Read);
    assert_eq!(both, [AccessResult::Value(1), AccessResult::Signal(FaultSignal::PastEnd)]);
    spec.truncate_ends(FILE);
    assert_eq!(spec.expect(PARENT, va(0x2000), Access::Read), [AccessResult::Signal(FaultSignal::PastEnd)]);
    assert_eq!(spec.expect(PARENT, va(0x1000), Access::Read), [AccessResult::Value(initial(0, 0))]);
    spec.truncate_begins(FILE, 4);
    spec.truncate_ends(FILE);
    assert_eq!(spec.expect(PARENT, va(0x2000), Access::Read), [ZERO]);
}

#[test]
fn adjacent_mappings_that_can_merge_are_one_line() {
    let mut spec = spec();
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    map(&mut spec, anon(0x2000, 0x1000, Rights::RW));
    map(&mut spec, file(0x3000, 0x1000, Rights::READ, false, 2, Rights::READ));
    map(&mut spec, file(0x4000, 0x1000, Rights::READ, false, 3, Rights::READ));
    map(&mut spec, file(0x5000, 0x1000, Rights::READ, false, 3, Rights::READ));
    let line =
        |from, to, rights, file| MapsLine { range: PageRange::new(va(from), va(to)), rights, shared: false, file };
    let expected = vec![
        line(0x1000, 0x3000, Rights::RW, None),
        line(0x3000, 0x5000, Rights::READ, Some((FILE, 2))),
        line(0x5000, 0x6000, Rights::READ, Some((FILE, 3))),
    ];
    assert_eq!(spec.maps(PARENT), Some(expected));
    let call = spec.call_begins(by(2), PARENT, MemoryCall::Range(RangeCall::Munmap { addr: va(0x1000), len: 0x5000 }));
    spec.access_signalled(by(3), PARENT, va(0x1000), Access::Read, FaultSignal::NotMapped).expect("already gone");
    assert_eq!(spec.maps(PARENT), None);
    spec.call_ends(by(4), call, CallResult::Done).expect("success");
    assert_eq!(spec.maps(PARENT), Some(Vec::new()));
}

#[test]
fn a_call_that_fails_for_lack_of_memory_changes_nothing() {
    let mut spec = Spec::new(va(0x7fff_ffff_f000), true);
    spec.add_space(PARENT, va(0x100_0000));
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    must(
        &mut spec,
        MemoryCall::Range(RangeCall::Munmap { addr: va(0x1000), len: 0x1000 }),
        CallResult::Failed(Errno::ENOMEM),
    );
    must(&mut spec, MemoryCall::Fork, CallResult::Failed(Errno::ENOMEM));
    assert_eq!(spec.expect(PARENT, va(0x1000), Access::Read), [ZERO]);
    must(
        &mut spec,
        MemoryCall::Range(RangeCall::Mprotect { addr: va(0x1000), len: 0x1000, rights: Rights::READ }),
        CallResult::Failed(Errno::ENOMEM),
    );
    assert_eq!(spec.expect(PARENT, va(0x1000), Access::Write), [AccessResult::Made]);
    spec.access_signalled(by(2), PARENT, va(0x1000), Access::Write, FaultSignal::NoMemory).expect("a possible signal");
    assert!(super::spec().access_signalled(by(2), PARENT, va(0x1000), Access::Write, FaultSignal::NoMemory).is_err());
}

/// `MADV_DONTNEED` may need a table that forks share for itself, and drops what it can.
#[test]
fn a_discard_fails_for_lack_of_memory_alone() {
    let discard = MemoryCall::Range(RangeCall::DontNeed { addr: va(0x1000), len: 0x1000 });
    let failed = CallResult::Failed(Errno::ENOMEM);
    let mut spec = Spec::new(va(0x7fff_ffff_f000), true);
    spec.add_space(PARENT, va(0x100_0000));
    map(&mut spec, anon(0x1000, 0x1000, Rights::RW));
    spec.store(by(1), PARENT, va(0x1000), 7).expect("mapped");
    must(&mut spec, discard, failed);
    let left = spec.expect(PARENT, va(0x1000), Access::Read);
    assert!(left.len() == 2 && left.contains(&ZERO) && left.contains(&AccessResult::Value(7)), "{left:?}");
    spec.set_memory_may_fail(false);
    assert!(refused(&mut spec, discard, failed), "no allocation failed");
}
