//! INV-ARC-COUNT under every memory order.

use crate::tracked::Tracked;
use loom::thread;
use pagewright_sync::Arc;

/// Writes when it is dropped.
///
/// Loom fails the run unless every access through another handle happened before.
struct WritesOnDrop(Tracked);

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        self.0.add_one();
    }
}

#[test]
fn every_access_happens_before_the_drop_of_the_value() {
    loom::model(|| {
        let mine = Arc::try_new(WritesOnDrop(Tracked::new(0))).expect("memory");
        let theirs = mine.clone();
        let thread = thread::spawn(move || {
            assert_eq!(theirs.0.get(), 0);
            drop(theirs);
        });
        assert_eq!(mine.0.get(), 0);
        drop(mine);
        thread.join().expect("the other thread");
    });
}
