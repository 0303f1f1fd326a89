//! Compares what another CPU reads in a huge page that was cleared past the cache.
//!
//! Weakly ordered stores become visible late unless a fence follows them (INV-CLEAR-FENCE). One CPU
//! faults huge pages in, of frames that a program has filled. Another reads each word as soon as
//! the fault has returned.
//!
//! Not guaranteed: that a missing fence is seen. The fault itself has locked instructions, which
//! drain the stores of most CPUs.

use super::super::parent::failed;
use super::super::{EvaluateError, Scale};
use super::bench::{Bench, POISON};
use pagewright_tlb::frames::ClearPolicy;
use pagewright_types::{Access, Order, Pfn};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

/// Frames of the machine.
const FRAMES: u32 = 32 * Order::PMD.frames();
/// Huge pages of a mapping, and mappings.
const PAGES: u64 = 16;
const ROUNDS: u32 = 8;

/// Words that another CPU compared with zero, and those that were not.
pub(crate) struct JudgedClears {
    pub(crate) words: u64,
    pub(crate) wrong: u64,
    /// Whether the host has another CPU; without one, the same CPU reads.
    pub(crate) by_another: bool,
}

/// Faults huge pages in on one CPU and reads them on another.
pub(crate) fn judge() -> Result<JudgedClears, EvaluateError> {
    let bench = Bench::with_frames(FRAMES, Scale::Quick)?;
    bench.enable_huge("always")?;
    bench.set_policy(ClearPolicy::Uncached);
    thread::scope(|scope| {
        let (mapped, mappings) = mpsc::channel::<Pfn>();
        let (done, read) = mpsc::channel();
        let (bench, by_another) = (&bench, bench.cpus() > 1);
        scope.spawn(move || {
            bench.become_cpu(usize::from(by_another));
            for head in mappings {
                let words = bench.memory().block(head, Order::PMD);
                let wrong = words.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count();
                if done.send([words.len(), wrong].map(|count| count as u64)).is_err() {
                    return;
                }
            }
        });
        let mut judged = JudgedClears { words: 0, wrong: 0, by_another };
        for _ in 0..ROUNDS {
            fault_in(bench, &mapped, &read, &mut judged)?;
        }
        Ok(judged)
    })
}

/// Maps huge pages, has each read by the other CPU, fills them as a program would, and unmaps them.
fn fault_in(
    bench: &Bench,
    mapped: &mpsc::Sender<Pfn>,
    read: &mpsc::Receiver<[u64; 2]>,
    judged: &mut JudgedClears,
) -> Result<(), EvaluateError> {
    let (mm, huge) = (bench.mm(), Order::PMD.bytes());
    let space = mm.new_space().map_err(failed)?;
    let base = bench.map(&space, PAGES * huge)?;
    for page in 0..PAGES {
        let va = base.add(page * huge);
        mm.fault(&space, va, Access::Write).map_err(failed)?;
        let head = bench.huge_page(&space, va)?;
        mapped.send(head).map_err(failed)?;
        let [words, wrong] = read.recv().map_err(failed)?;
        (judged.words, judged.wrong) = (judged.words + words, judged.wrong + wrong);
        bench.memory().fill(head, Order::PMD, POISON);
    }
    mm.end_space(&space);
    Ok(())
}
