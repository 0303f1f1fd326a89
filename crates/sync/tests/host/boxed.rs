//! Arrays whose allocation fails, and everything that is made of them.

use crate::refusing_heap::refusing;
use pagewright_sync::host::HostLocks;
use pagewright_sync::{AllocError, Arc, Counters, FrameSet, Gauges, Mailbox, PerCpu, try_boxed, try_boxed_each};
use pagewright_types::{FrameRange, Pfn};
use std::iter;

/// Refuses each allocation of `make` in turn, and returns their number.
fn each_allocation_fails<T>(make: impl Fn() -> Result<T, AllocError>) -> u64 {
    // What is allocated once in a program is allocated here.
    drop(make());
    for others in 0.. {
        match refusing(others, &make) {
            (made, None) => {
                assert!(made.is_ok(), "nothing was refused");
                return others;
            }
            (made, Some(bytes)) => assert_eq!(made.err(), Some(AllocError { bytes }), "after {others} others"),
        }
    }
    unreachable!("a call makes few allocations")
}

#[test]
fn an_array_has_the_first_values_or_names_its_size() {
    assert_eq!(try_boxed(3, 7_u16..).as_deref(), Ok(&[7, 8, 9][..]));
    assert_eq!(refusing(0, || try_boxed(3, 7_u16..)), (Err(AllocError { bytes: 6 }), Some(6)));
    let endless = try_boxed(usize::MAX, iter::repeat(0_u64));
    assert_eq!(endless, Err(AllocError { bytes: usize::MAX }));
}

#[test]
fn the_first_value_that_fails_ends_an_array() {
    #[derive(Debug, PartialEq)]
    enum Failed {
        Heap(AllocError),
        Value(u32),
    }
    impl From<AllocError> for Failed {
        fn from(error: AllocError) -> Self {
            Self::Heap(error)
        }
    }
    let below = |limit| move |value| if value < limit { Ok(value) } else { Err(Failed::Value(value)) };
    let array = |limit| try_boxed_each(4, (0_u32..).map(below(limit)));
    assert_eq!(array(4).as_deref(), Ok(&[0, 1, 2, 3][..]));
    assert_eq!(array(2), Err(Failed::Value(2)));
    assert_eq!(refusing(0, || array(2)).0, Err(Failed::Heap(AllocError { bytes: 16 })));
}

#[test]
#[should_panic(expected = "fewer values")]
fn an_array_is_full() {
    drop(try_boxed(3, [1, 2]));
}

#[test]
fn whatever_can_not_be_allocated_is_an_error() {
    let range = FrameRange::new(Pfn::new(100), Pfn::new(1000));
    assert_eq!(each_allocation_fails(|| PerCpu::try_new(3, |cpu| cpu)), 1);
    assert_eq!(each_allocation_fails(|| FrameSet::try_new(&[range])), 1);
    assert_eq!(each_allocation_fails(|| Arc::try_new([0; 100])), 1);
    assert_eq!(each_allocation_fails(|| Counters::try_new(3)), 1);
    assert_eq!(each_allocation_fails(|| Gauges::try_new(3)), 1);
    assert_eq!(each_allocation_fails(|| Mailbox::<4, HostLocks>::try_new(3)), 2);
}
