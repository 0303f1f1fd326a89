//! What each lock tells the machine: a point before it is acquired, then each use of its line.

use pagewright_sync::{Backend, LineRef, LineUse, RwLock, SpinLock, WordLock, rank};
use pagewright_types::Pfn;
use std::cell::RefCell;
use std::sync::atomic::AtomicU32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Point,
    Line(LineUse),
}

std::thread_local! {
    static TOLD: RefCell<Vec<Told>> = const { RefCell::new(Vec::new()) };
}

struct Listening;

impl Backend for Listening {
    type Line = ();

    fn pause() {}

    fn point() {
        TOLD.with_borrow_mut(|told| told.push(Told::Point));
    }

    fn line(line: LineRef<'_, ()>, name: &'static str, used: LineUse) {
        let expected = match line {
            LineRef::Lock(()) => ["SpaceRank", "LedgerRank"].contains(&name),
            LineRef::Record(pfn) => (pfn, name) == (RECORD, "LedgerRank"),
            LineRef::Word(_) => false,
        };
        assert!(expected, "{line:?} {name}");
        TOLD.with_borrow_mut(|told| told.push(Told::Line(used)));
    }

    pagewright_sync::locks_of_threads!();
}

const RECORD: Pfn = Pfn::new(9);

/// What acquiring a lock tells, and what its release tells.
fn told<G>(acquire: impl FnOnce() -> G) -> [Vec<Told>; 2] {
    let guard = acquire();
    let acquired = TOLD.take();
    drop(guard);
    [acquired, TOLD.take()]
}

const ALONE: [&[Told]; 2] = [&[Told::Point, Told::Line(LineUse::Acquire)], &[Told::Line(LineUse::Release)]];
const SHARED: [&[Told]; 2] =
    [&[Told::Point, Told::Line(LineUse::AcquireShared)], &[Told::Line(LineUse::ReleaseShared)]];

#[test]
fn each_lock_tells_how_its_line_is_used() {
    let spin = SpinLock::<_, rank::LedgerRank, Listening>::new(0);
    assert_eq!(told(|| spin.lock()), ALONE);
    let shared = RwLock::<_, rank::SpaceRank, Listening>::new(0);
    assert_eq!(told(|| shared.write()), ALONE);
    assert_eq!(told(|| shared.read()), SHARED);
    assert_eq!(told(|| shared.try_read().expect("it is free")), SHARED);
    let word = AtomicU32::new(0);
    assert_eq!(told(|| WordLock::lock::<rank::LedgerRank, Listening>(&word, RECORD)), ALONE);
    assert_eq!(told(|| WordLock::try_lock::<rank::LedgerRank, Listening>(&word, RECORD).expect("it is free")), ALONE);
}

#[test]
fn a_lock_that_another_cpu_holds_tells_of_no_use() {
    let (shared, word) = (RwLock::<_, rank::SpaceRank, Listening>::new(0), AtomicU32::new(1));
    let _held = shared.write();
    TOLD.take();
    pagewright_sync::host::on_cpu(pagewright_types::CpuId::new(1), || {
        assert!(shared.try_read().is_none());
        assert!(WordLock::try_lock::<rank::LedgerRank, Listening>(&word, RECORD).is_none());
    });
    assert_eq!(TOLD.take(), [Told::Point; 2]);
}
