//! Letters: INV-MAIL-READ, INV-MAIL-LOST, INV-MAIL-ABSENT.
//!
//! An interrupt shows what was stored before it, as loom's notifications do.

use crate::backend::Loom;
use crate::tracked::Tracked;
use loom::sync::{Arc, Notify};
use loom::thread;
use pagewright_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pagewright_sync::{Backend, Mailbox};
use pagewright_types::{CpuId, CpuMask};

const CPUS: usize = 3;
const TARGET: CpuId = CpuId::new(2);

struct Machine {
    mailbox: Mailbox<1, Loom>,
    interrupt: Notify,
    /// Each sender's, which he writes before a letter.
    told: [Tracked; 2],
    /// Written by the target whenever it reads a letter.
    read: Tracked,
}

impl Machine {
    fn new() -> Arc<Self> {
        let mailbox = Mailbox::try_new(CPUS).expect("memory");
        let told = [Tracked::new(0), Tracked::new(0)];
        Arc::new(Self { mailbox, interrupt: Notify::new(), told, read: Tracked::new(0) })
    }

    /// Sends a letter, without whoever is to be interrupted being so.
    fn send(&self, sender: usize) -> CpuMask {
        let told = &self.told[sender];
        told.add_one();
        let words = [(sender as u64) << 32 | u64::from(told.get())];
        self.mailbox.send(CpuId::new(sender as u16), words, &CpuMask::of(TARGET))
    }

    /// Sends a letter and waits for the answer.
    fn ask(&self, sender: usize) {
        if !self.send(sender).is_empty() {
            self.interrupt.notify();
        }
        while !self.mailbox.is_acknowledged(CpuId::new(sender as u16), &CpuMask::of(TARGET)) {
            Loom::pause();
        }
    }

    /// The handler.
    ///
    /// Returns how many letters were read.
    fn serve(&self) -> u32 {
        let mut read = 0;
        self.mailbox.serve(TARGET, |[word]| {
            assert_eq!(self.told[(word >> 32) as usize].get(), word as u32, "of two letters half each");
            self.read.add_one();
            read += 1;
        });
        read
    }

    /// Serves interrupts until so many letters were read.
    fn serve_letters(&self, letters: u32) {
        let mut read = 0;
        while read < letters {
            self.interrupt.wait();
            read += self.serve();
        }
    }
}

/// Explores `sender` and what the target, the caller's thread, does beside.
///
/// Who waits looks at all words of a mask each time, which takes more steps than loom allows by
/// itself; two preemptions a run keep it to seconds.
fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut bounded = loom::model::Builder::new();
    (bounded.preemption_bound, bounded.max_branches) = (Some(2), 20_000);
    bounded.check(body);
}

fn beside(sender: fn(&Machine), target: fn(&Machine)) {
    explore(move || {
        let machine = Machine::new();
        let other = Arc::clone(&machine);
        let thread = thread::spawn(move || sender(&other));
        target(&machine);
        thread.join().expect("the sender");
    });
}

fn asks_twice(machine: &Machine) {
    for letter in 1..=2 {
        machine.ask(0);
        assert_eq!(machine.read.get(), letter, "what the reader did, the sender sees");
    }
}

#[test]
fn a_letter_is_read_whole_and_written_anew_only_after_the_answer() {
    beside(asks_twice, |machine| machine.serve_letters(2));
}

#[test]
fn of_two_letters_that_cross_none_is_lost() {
    explore(|| {
        let machine = Machine::new();
        let threads = [0, 1].map(|sender| {
            let machine = Arc::clone(&machine);
            thread::spawn(move || {
                assert!(machine.send(sender).contains(TARGET));
                machine.interrupt.notify();
            })
        });
        machine.serve_letters(2);
        threads.map(|thread| thread.join().expect("a sender"));
        assert_eq!(machine.read.get(), 2, "each once");
    });
}

/// The sender ends, though nobody serves interrupts; one that is on its way finds nothing to read.
#[test]
fn nobody_waits_for_who_leaves() {
    let asks_twice = |machine: &Machine| (0..2).for_each(|_| machine.ask(0));
    beside(asks_twice, |machine| {
        machine.mailbox.leave(TARGET);
        assert_eq!(machine.serve(), 0);
    });
}

/// A sender who has seen it absent takes his letter back and writes another, which must not be read
/// half, nor be answered in place of the first.
#[test]
fn who_comes_back_reads_nothing_that_is_taken_back() {
    explore(|| {
        let machine = Machine::new();
        machine.mailbox.leave(TARGET);
        let over = Arc::new(AtomicBool::new(false));
        let sender = {
            let (machine, over) = (Arc::clone(&machine), Arc::clone(&over));
            thread::spawn(move || {
                (0..2).for_each(|_| machine.ask(0));
                over.store(true, Ordering::Relaxed);
                machine.interrupt.notify();
            })
        };
        machine.mailbox.enter(TARGET);
        // As if somebody else had interrupted it, too.
        machine.serve();
        while !over.load(Ordering::Relaxed) {
            machine.interrupt.wait();
            machine.serve();
        }
        sender.join().expect("the sender");
    });
}

/// The test of the tests: a reader who does not acquire.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_who_does_not_acquire_is_caught() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), Tracked::new(0)));
        let other = Arc::clone(&shared);
        let sender = thread::spawn(move || {
            other.1.add_one();
            other.0.store(1, Ordering::Release);
        });
        if shared.0.load(Ordering::Relaxed) == 1 {
            assert_eq!(shared.1.get(), 1);
        }
        sender.join().expect("the sender");
    });
}
