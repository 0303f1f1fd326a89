//! Calls that have their process for themselves: right answers are taken, and wrong ones are
//! reported.

use super::{PARENT, spec};
use pagewright_model::Did;
use pagewright_model::spec::{Alone, Answer, Call, Got, Object, Place, Signal, Spec, Traits};
use pagewright_types::{Access, CpuId, Errno, Rights, SpaceId, VirtAddr};

const fn va(raw: u64) -> VirtAddr {
    VirtAddr::new(raw)
}

fn did() -> Did {
    Did { cpu: CpuId::new(0), step: 1 }
}

/// Private anonymous memory at `at`, with a value in its first cell.
fn mapped(spec: &mut Spec, at: u64, len: u64, traits: Traits) {
    let (place, rights, object) = (Place::Fixed(va(at)), Rights::RW, Object::Anon);
    let call = Call::Mmap { place, len, rights, shared: false, object, traits };
    spec.call(did(), PARENT, call, Answer::Mapped(va(at))).expect("a mapping");
    spec.store(did(), PARENT, va(at), at).expect("a store");
}

/// Whether a call may answer so; then it has.
fn may(spec: &mut Spec, call: Alone, answer: Answer) -> bool {
    spec.call(did(), PARENT, Call::Alone(call), answer).is_ok()
}

fn shows(spec: &Spec, at: u64) -> Vec<Got> {
    spec.expect(PARENT, va(at), Access::Read)
}

const fn remap(addr: u64, old_len: u64, new_len: u64, flags: u32, new_addr: u64) -> Alone {
    Alone::Remap { addr: va(addr), old_len, new_len, flags, new_addr: va(new_addr) }
}

const fn advise(addr: u64, len: u64, advice: u32) -> Alone {
    Alone::Advise { addr: va(addr), len, advice }
}

#[test]
fn contents_move_with_mremap_and_leave_nothing_or_an_empty_mapping() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x2000, Traits::default());
    assert!(!may(&mut spec, remap(0x1000, 0x2000, 0x2000, 3, 0x8000), Answer::Mapped(va(0x9000))));
    assert!(may(&mut spec, remap(0x1000, 0x2000, 0x2000, 3, 0x8000), Answer::Mapped(va(0x8000))));
    assert_eq!(shows(&spec, 0x8000), [Got::Value(0x1000)]);
    assert_eq!(shows(&spec, 0x1000), [Got::Signal(Signal::NotMapped)]);
    assert!(may(&mut spec, remap(0x8000, 0x2000, 0x2000, 7, 0x4000), Answer::Mapped(va(0x4000))));
    assert_eq!((shows(&spec, 0x4000), shows(&spec, 0x8000)), (vec![Got::Value(0x1000)], vec![Got::Value(0)]));
}

#[test]
fn what_was_mapped_at_once_is_one_mapping_and_what_differs_is_not() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x2000, Traits::default());
    assert!(!may(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), Answer::Failed(Errno::EFAULT)));
    assert!(may(&mut spec, advise(0x2000, 0x1000, 10), Answer::Done));
    assert!(may(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), Answer::Failed(Errno::EFAULT)));
    assert!(may(&mut spec, advise(0x2000, 0x1000, 11), Answer::Done));
    // Whether the two have become one again, nobody promises.
    assert!(may(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), Answer::Failed(Errno::EFAULT)));
    assert!(may(&mut spec, remap(0x1000, 0x2000, 0x4000, 1, 0), Answer::Mapped(va(0x1000))));
}

#[test]
fn locked_memory_refuses_advice_and_counts() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x3000, Traits::default());
    let limit = |bytes| Alone::Limit { resource: 8, bytes };
    let lock = |len| Alone::Lock { addr: va(0x1000), len, flags: 0 };
    assert!(may(&mut spec, limit(0x1000), Answer::Done));
    assert!(!may(&mut spec, lock(0x2000), Answer::Done));
    assert!(may(&mut spec, lock(0x2000), Answer::Failed(Errno::ENOMEM)));
    assert!(may(&mut spec, lock(0x1000), Answer::Done));
    assert!(!may(&mut spec, advise(0x1000, 0x1000, 4), Answer::Done));
    assert!(may(&mut spec, advise(0x1000, 0x1000, 4), Answer::Failed(Errno::EINVAL)));
    assert_eq!(shows(&spec, 0x1000), [Got::Value(0x1000)]);
    assert!(may(&mut spec, Alone::UnlockAll, Answer::Done));
    assert!(may(&mut spec, advise(0x1000, 0x1000, 4), Answer::Done));
    assert_eq!(shows(&spec, 0x1000), [Got::Value(0)]);
}

#[test]
fn what_is_given_up_may_go_at_any_moment_until_it_is_stored_to() {
    let mut spec = spec();
    let at = va(0x1000);
    mapped(&mut spec, 0x1000, 0x1000, Traits::default());
    assert!(may(&mut spec, advise(0x1000, 0x1000, 8), Answer::Done));
    // That it was there still says nothing about the next time.
    for value in [0x1000, 0x1000, 0] {
        spec.load(did(), PARENT, at, value).expect("still there, or not");
    }
    assert!(spec.load(did(), PARENT, at, 0x1000).is_err(), "it does not come back");
    spec.store(did(), PARENT, at, 7).expect("a store");
    assert_eq!(shows(&spec, 0x1000), [Got::Value(7)]);

    assert!(may(&mut spec, advise(0x1000, 0x1000, 8), Answer::Done));
    spec.store(did(), PARENT, va(0x1008), 8).expect("a store");
    let mut first = shows(&spec, 0x1000);
    first.sort_by_key(|got| *got == Got::Value(7));
    assert_eq!(first, [Got::Value(0), Got::Value(7)], "it may have gone before the store");
    spec.load(did(), PARENT, at, 7).expect("it had not");
    assert!(spec.load(did(), PARENT, at, 0).is_err(), "what is stored to after that stays");
}

#[test]
fn guards_refuse_accesses_until_they_are_removed() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x2000, Traits::default());
    assert!(may(&mut spec, advise(0x1000, 0x1000, 102), Answer::Done));
    assert_eq!(shows(&spec, 0x1000), [Got::Signal(Signal::NotMapped)]);
    assert!(spec.load(did(), PARENT, va(0x1000), 0).is_err());
    assert!(may(&mut spec, advise(0x1000, 0x2000, 103), Answer::Done));
    assert_eq!(shows(&spec, 0x1000), [Got::Value(0)]);
}

#[test]
fn sealed_memory_stays() {
    let sealed = || {
        let mut spec = spec();
        mapped(&mut spec, 0x1000, 0x2000, Traits::default());
        assert!(may(&mut spec, Alone::Seal { addr: va(0x2000), len: 0x1000, flags: 0 }, Answer::Done));
        spec
    };
    let unmap = Call::Munmap { addr: va(0x1000), len: 0x2000 };
    assert!(sealed().call(did(), PARENT, unmap, Answer::Done).is_err());
    let mut spec = sealed();
    spec.call(did(), PARENT, unmap, Answer::Failed(Errno::EPERM)).expect("a seal");
    let protect = Call::Mprotect { addr: va(0x1000), len: 0x2000, rights: Rights::READ };
    spec.call(did(), PARENT, protect, Answer::Failed(Errno::EPERM)).expect("a seal");
    // What lies before the seal has been changed.
    assert_eq!(spec.expect(PARENT, va(0x1000), Access::Write), [Got::Signal(Signal::NotAllowed)]);
    assert_eq!(spec.expect(PARENT, va(0x2000), Access::Write), [Got::Made]);
}

/// The destination of a move is unmapped before it is seen that the source can't be.
#[test]
fn a_sealed_destination_is_told_before_a_length_that_wraps() {
    for (sealed, answers) in [(true, [false, true]), (false, [true, false])] {
        for (answer, right) in [Errno::EINVAL, Errno::EPERM].into_iter().zip(answers) {
            let mut spec = spec();
            mapped(&mut spec, 0x1000, 0x4000, Traits::default());
            mapped(&mut spec, 0x8000, 0x4000, Traits::default());
            if sealed {
                assert!(may(&mut spec, Alone::Seal { addr: va(0x1000), len: 0x1000, flags: 0 }, Answer::Done));
            }
            let wraps = remap(0x8000, u64::MAX - 0x1fff, 0x2000, 3, 0x1000);
            assert_eq!(may(&mut spec, wraps, Answer::Failed(answer)), right, "{answer} where it is sealed: {sealed}");
        }
    }
}

#[test]
fn a_child_lacks_what_it_is_not_to_have() {
    let mut spec = spec();
    for (at, advice) in [(0x1000, 10), (0x2000, 18), (0x3000, 0)] {
        mapped(&mut spec, at, 0x1000, Traits::default());
        assert!(may(&mut spec, advise(at, 0x1000, advice), Answer::Done));
    }
    let child = SpaceId::new(9);
    spec.call(did(), PARENT, Call::Fork, Answer::Child(child)).expect("a child");
    let shows = |at| spec.expect(child, va(at), Access::Read);
    assert_eq!(shows(0x1000), [Got::Signal(Signal::NotMapped)]);
    assert_eq!((shows(0x2000), shows(0x3000)), (vec![Got::Value(0)], vec![Got::Value(0x3000)]));
}

#[test]
fn a_stack_grows_when_it_is_touched_below() {
    let mut spec = spec();
    mapped(&mut spec, 0x80_0000, 0x1000, Traits { grows: true, ..Traits::default() });
    let fault = spec.fault_begins(PARENT, va(0x7f_e000), Access::Write);
    assert!(spec.fault_ends(did(), fault, Err(Signal::NotMapped)).is_err());
    let mut spec = super::spec();
    mapped(&mut spec, 0x80_0000, 0x1000, Traits { grows: true, ..Traits::default() });
    let fault = spec.fault_begins(PARENT, va(0x7f_e000), Access::Write);
    spec.fault_ends(did(), fault, Ok(())).expect("it grows");
    assert_eq!((shows(&spec, 0x7f_e000), shows(&spec, 0x7f_f000)), (vec![Got::Value(0)], vec![Got::Value(0)]));
    assert_eq!(shows(&spec, 0x7f_d000), [Got::Signal(Signal::NotMapped)]);
}

#[test]
fn a_page_with_contents_is_resident() {
    let mut spec = spec();
    mapped(&mut spec, 0x1000, 0x1000, Traits::default());
    assert!(spec.resident(did(), PARENT, va(0x1000), false).is_err());
    spec.resident(did(), PARENT, va(0x1000), true).expect("it is");
}
