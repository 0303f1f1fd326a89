//! Exclusive calls: possible results are accepted, and impossible ones are reported.

use super::{PARENT, spec};
use pagewright_model::CpuStep;
use pagewright_model::spec::{
    AccessResult, CallResult, ExclusiveCall, FaultSignal, MappingFlags, MemoryCall, MmapObject, MmapPlacement,
    RangeCall, Spec,
};
use pagewright_types::{Access, CpuId, Errno, Rights, SpaceId, VirtAddr};

const fn va(raw: u64) -> VirtAddr {
    VirtAddr::new(raw)
}

fn by() -> CpuStep {
    CpuStep { cpu: CpuId::new(0), step: 1 }
}

/// Private anonymous memory at `at`, with a value in its first cell.
fn mapped(spec: &mut Spec, at: u64, len: u64, flags: MappingFlags) {
    let (place, rights, object) = (MmapPlacement::Fixed(va(at)), Rights::RW, MmapObject::Anon);
    let call = MemoryCall::Mmap { place, len, rights, shared: false, object, flags };
    spec.call(by(), PARENT, call, CallResult::Mapped(va(at))).expect("a mapping");
    spec.store(by(), PARENT, va(at), at).expect("a store");
}

/// Reports a call with this result, and returns whether the result was accepted.
fn accepts(spec: &mut Spec, call: ExclusiveCall, result: CallResult) -> bool {
    spec.call(by(), PARENT, MemoryCall::Exclusive(call), result).is_ok()
}

fn shows(spec: &Spec, at: u64) -> Vec<AccessResult> {
    spec.expect(PARENT, va(at), Access::Read)
}

const fn remap(addr: u64, old_len: u64, new_len: u64, flags: u32, new_addr: u64) -> ExclusiveCall {
    ExclusiveCall::Remap { addr: va(addr), old_len, new_len, flags, new_addr: va(new_addr) }
}

const fn advise(addr: u64, len: u64, advice: u32) -> ExclusiveCall {
    ExclusiveCall::Advise { addr: va(addr), len, advice }
}

#[test]
fn mremap_moves_contents_and_leaves_nothing_or_an_empty_mapping() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x2000, MappingFlags::default());
    assert!(!accepts(&mut spec, remap(0x1000, 0x2000, 0x2000, 3, 0x8000), CallResult::Mapped(va(0x9000))));
    assert!(accepts(&mut spec, remap(0x1000, 0x2000, 0x2000, 3, 0x8000), CallResult::Mapped(va(0x8000))));
    assert_eq!(shows(&spec, 0x8000), [AccessResult::Value(0x1000)]);
    assert_eq!(shows(&spec, 0x1000), [AccessResult::Signal(FaultSignal::NotMapped)]);
    assert!(accepts(&mut spec, remap(0x8000, 0x2000, 0x2000, 7, 0x4000), CallResult::Mapped(va(0x4000))));
    assert_eq!(
        (shows(&spec, 0x4000), shows(&spec, 0x8000)),
        (vec![AccessResult::Value(0x1000)], vec![AccessResult::Value(0)])
    );
}

#[test]
fn pages_mapped_by_one_call_are_one_vma_and_pages_that_differ_are_not() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x2000, MappingFlags::default());
    assert!(!accepts(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), CallResult::Failed(Errno::EFAULT)));
    assert!(accepts(&mut spec, advise(0x2000, 0x1000, 10), CallResult::Done));
    assert!(accepts(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), CallResult::Failed(Errno::EFAULT)));
    assert!(accepts(&mut spec, advise(0x2000, 0x1000, 11), CallResult::Done));
    // Whether the two VMAs have merged again is not specified.
    assert!(accepts(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), CallResult::Failed(Errno::EFAULT)));
    assert!(accepts(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), CallResult::Mapped(va(0x1000))));
}

#[test]
fn locked_memory_refuses_advice_and_counts_against_the_limit() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x3000, MappingFlags::default());
    let limit = |bytes| ExclusiveCall::Limit { resource: 8, bytes };
    let lock = |len| ExclusiveCall::Lock { addr: va(0x1000), len, flags: 0 };
    assert!(accepts(&mut spec, limit(0x1000), CallResult::Done));
    assert!(!accepts(&mut spec, lock(0x2000), CallResult::Done));
    assert!(accepts(&mut spec, lock(0x2000), CallResult::Failed(Errno::ENOMEM)));
    assert!(accepts(&mut spec, lock(0x1000), CallResult::Done));
    assert!(!accepts(&mut spec, advise(0x1000, 0x1000, 4), CallResult::Done));
    assert!(accepts(&mut spec, advise(0x1000, 0x1000, 4), CallResult::Failed(Errno::EINVAL)));
    assert_eq!(shows(&spec, 0x1000), [AccessResult::Value(0x1000)]);
    assert!(accepts(&mut spec, ExclusiveCall::UnlockAll, CallResult::Done));
    assert!(accepts(&mut spec, advise(0x1000, 0x1000, 4), CallResult::Done));
    assert_eq!(shows(&spec, 0x1000), [AccessResult::Value(0)]);
}

/// Linux asks for the limit before it looks at the file (`do_mmap`), of whole pages.
#[test]
fn a_mapping_that_is_refused_anyway_may_be_over_the_limit_by_part_of_a_page() {
    for (len, over) in [(0x1000, false), (0x1001, true)] {
        let mut spec = spec();
        assert!(accepts(&mut spec, ExclusiveCall::Limit { resource: 8, bytes: 0x1000 }, CallResult::Done));
        assert!(accepts(&mut spec, ExclusiveCall::LockAll { flags: 2 }, CallResult::Done));
        let (place, rights, object) = (MmapPlacement::Fixed(va(0x1000)), Rights::RW, MmapObject::Anon);
        let flags = MappingFlags { grows_down: true, ..MappingFlags::default() };
        let call = MemoryCall::Mmap { place, len, rights, shared: true, object, flags };
        let judged = spec.call(by(), PARENT, call, CallResult::Failed(Errno::EAGAIN));
        assert_eq!(judged.is_ok(), over, "{len:#x} bytes");
    }
}

#[test]
fn freed_contents_may_go_at_any_moment_until_the_next_store() {
    let mut spec = spec();
    let at = va(0x1000);
    mapped(&mut spec, 0x1000, 0x1000, MappingFlags::default());
    assert!(accepts(&mut spec, advise(0x1000, 0x1000, 8), CallResult::Done));
    // A load that finds the contents does not make them stay.
    for value in [0x1000, 0x1000, 0] {
        spec.load(by(), PARENT, at, value).expect("present or gone");
    }
    assert!(spec.load(by(), PARENT, at, 0x1000).is_err(), "gone contents do not come back");
    spec.store(by(), PARENT, at, 7).expect("a store");
    assert_eq!(shows(&spec, 0x1000), [AccessResult::Value(7)]);

    assert!(accepts(&mut spec, advise(0x1000, 0x1000, 8), CallResult::Done));
    spec.store(by(), PARENT, va(0x1008), 8).expect("a store");
    let mut first = shows(&spec, 0x1000);
    first.sort_by_key(|got| *got == AccessResult::Value(7));
    assert_eq!(first, [AccessResult::Value(0), AccessResult::Value(7)], "the contents may have gone before the store");
    spec.load(by(), PARENT, at, 7).expect("the contents had stayed");
    assert!(spec.load(by(), PARENT, at, 0).is_err(), "contents that were stored to stay");
}

#[test]
fn guards_refuse_accesses_until_they_are_removed() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x2000, MappingFlags::default());
    assert!(accepts(&mut spec, advise(0x1000, 0x1000, 102), CallResult::Done));
    assert_eq!(shows(&spec, 0x1000), [AccessResult::Signal(FaultSignal::NotMapped)]);
    assert!(spec.load(by(), PARENT, va(0x1000), 0).is_err());
    assert!(accepts(&mut spec, advise(0x1000, 0x2000, 103), CallResult::Done));
    assert_eq!(shows(&spec, 0x1000), [AccessResult::Value(0)]);
}

#[test]
fn sealed_memory_cannot_be_unmapped_or_protected() {
    let sealed = || {
        let mut spec = spec();
        mapped(&mut spec, 0x1000, 0x2000, MappingFlags::default());
        assert!(accepts(&mut spec, ExclusiveCall::Seal { addr: va(0x2000), len: 0x1000, flags: 0 }, CallResult::Done));
        spec
    };
    let unmap = MemoryCall::Range(RangeCall::Munmap { addr: va(0x1000), len: 0x2000 });
    assert!(sealed().call(by(), PARENT, unmap, CallResult::Done).is_err());
    let mut spec = sealed();
    spec.call(by(), PARENT, unmap, CallResult::Failed(Errno::EPERM)).expect("a seal");
    let protect = MemoryCall::Range(RangeCall::Mprotect { addr: va(0x1000), len: 0x2000, rights: Rights::READ });
    spec.call(by(), PARENT, protect, CallResult::Failed(Errno::EPERM)).expect("a seal");
    // The pages before the sealed one have changed.
    assert_eq!(spec.expect(PARENT, va(0x1000), Access::Write), [AccessResult::Signal(FaultSignal::NotAllowed)]);
    assert_eq!(spec.expect(PARENT, va(0x2000), Access::Write), [AccessResult::Made]);
}

/// Linux unmaps the destination of a move before it checks the length of the source.
#[test]
fn a_sealed_destination_is_reported_before_a_length_that_wraps() {
    for (sealed, answers) in [(true, [false, true]), (false, [true, false])] {
        for (result, right) in [Errno::EINVAL, Errno::EPERM].into_iter().zip(answers) {
            let mut spec = spec();
            mapped(&mut spec, 0x1000, 0x4000, MappingFlags::default());
            mapped(&mut spec, 0x8000, 0x4000, MappingFlags::default());
            if sealed {
                assert!(accepts(
                    &mut spec,
                    ExclusiveCall::Seal { addr: va(0x1000), len: 0x1000, flags: 0 },
                    CallResult::Done
                ));
            }
            let wraps = remap(0x8000, u64::MAX - 0x1fff, 0x2000, 3, 0x1000);
            assert_eq!(
                accepts(&mut spec, wraps, CallResult::Failed(result)),
                right,
                "{result} where it is sealed: {sealed}"
            );
        }
    }
}

/// An advice that may have failed for lack of memory leaves it open whether a child has the page.
#[test]
fn a_sealed_page_that_a_child_may_lack_is_refused_as_sealed_or_as_a_hole() {
    for (unsure, result, right) in [
        (true, Errno::EPERM, true),
        (true, Errno::ENOMEM, true),
        (true, Errno::EACCES, false),
        (false, Errno::EPERM, true),
        (false, Errno::ENOMEM, false),
    ] {
        let mut spec = spec();
        mapped(&mut spec, 0x1000, 0x1000, MappingFlags::default());
        assert!(accepts(&mut spec, ExclusiveCall::Seal { addr: va(0x1000), len: 0x1000, flags: 0 }, CallResult::Done));
        if unsure {
            spec.set_memory_may_fail(true);
            assert!(accepts(&mut spec, advise(0x1000, 0x1000, 10), CallResult::Failed(Errno::EAGAIN)));
            spec.set_memory_may_fail(false);
        }
        let child = SpaceId::new(9);
        spec.call(by(), PARENT, MemoryCall::Fork, CallResult::Child(child)).expect("a child");
        let protect = RangeCall::Mprotect { addr: va(0x1000), len: 0x1000, rights: Rights::READ };
        let judged = spec.call(by(), child, MemoryCall::Range(protect), CallResult::Failed(result));
        assert_eq!(judged.is_ok(), right, "{result}, unsure: {unsure}");
    }
}

#[test]
fn dontfork_and_wipeonfork_limit_what_a_child_inherits() {
    let mut spec = spec();
    for (at, advice) in [(0x1000, 10), (0x2000, 18), (0x3000, 0)] {
        mapped(&mut spec, at, 0x1000, MappingFlags::default());
        assert!(accepts(&mut spec, advise(at, 0x1000, advice), CallResult::Done));
    }
    let child = SpaceId::new(9);
    spec.call(by(), PARENT, MemoryCall::Fork, CallResult::Child(child)).expect("a child");
    let shows = |at| spec.expect(child, va(at), Access::Read);
    assert_eq!(shows(0x1000), [AccessResult::Signal(FaultSignal::NotMapped)]);
    assert_eq!((shows(0x2000), shows(0x3000)), (vec![AccessResult::Value(0)], vec![AccessResult::Value(0x3000)]));
}

#[test]
fn a_stack_grows_when_an_access_hits_below_it() {
    let mut spec = spec();
    mapped(&mut spec, 0x80_0000, 0x1000, MappingFlags { grows_down: true, ..MappingFlags::default() });
    let fault = spec.fault_begins(PARENT, va(0x7f_e000), Access::Write);
    assert!(spec.fault_ends(by(), fault, Err(FaultSignal::NotMapped)).is_err());
    let mut spec = super::spec();
    mapped(&mut spec, 0x80_0000, 0x1000, MappingFlags { grows_down: true, ..MappingFlags::default() });
    let fault = spec.fault_begins(PARENT, va(0x7f_e000), Access::Write);
    spec.fault_ends(by(), fault, Ok(())).expect("the stack grows");
    assert_eq!(
        (shows(&spec, 0x7f_e000), shows(&spec, 0x7f_f000)),
        (vec![AccessResult::Value(0)], vec![AccessResult::Value(0)])
    );
    assert_eq!(shows(&spec, 0x7f_d000), [AccessResult::Signal(FaultSignal::NotMapped)]);
}

#[test]
fn a_page_with_a_private_copy_is_resident() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x1000, MappingFlags::default());
    assert!(spec.mincore_page(by(), PARENT, va(0x1000), false).is_err());
    spec.mincore_page(by(), PARENT, va(0x1000), true).expect("a resident page");
}
