//! Requests of a mailbox: INV-MAIL-READ, INV-MAIL-LOST, INV-MAIL-ABSENT.
//!
//! An IPI makes earlier stores visible to its handler, and so does a notification of loom.

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
    /// One per sender, which writes it before a request.
    written: [Tracked; 2],
    /// Written by the target when it reads a request.
    read: Tracked,
}

impl Machine {
    fn new() -> Arc<Self> {
        let mailbox = Mailbox::try_new(CPUS).expect("memory");
        let written = [Tracked::new(0), Tracked::new(0)];
        Arc::new(Self { mailbox, interrupt: Notify::new(), written, read: Tracked::new(0) })
    }

    /// Publishes a request, without the IPI.
    fn send(&self, sender: usize) -> CpuMask {
        let written = &self.written[sender];
        written.add_one();
        let words = [(sender as u64) << 32 | u64::from(written.get())];
        self.mailbox.send(CpuId::new(sender as u16), words, &CpuMask::of(TARGET))
    }

    /// Sends a request and waits for its acknowledgement.
    fn request(&self, sender: usize) {
        if !self.send(sender).is_empty() {
            self.interrupt.notify();
        }
        while !self.mailbox.is_acknowledged(CpuId::new(sender as u16), &CpuMask::of(TARGET)) {
            Loom::pause();
        }
    }

    /// The IPI handler; returns the number of requests that it read.
    fn serve(&self) -> u32 {
        let mut read = 0;
        self.mailbox.serve(TARGET, |[word]| {
            assert_eq!(self.written[(word >> 32) as usize].get(), word as u32, "the request is torn");
            self.read.add_one();
            read += 1;
        });
        read
    }

    /// Serves interrupts until it has read so many requests.
    fn serve_requests(&self, requests: u32) {
        let mut read = 0;
        while read < requests {
            self.interrupt.wait();
            read += self.serve();
        }
    }
}

/// Explores `body` with at most two preemptions a run, which takes seconds.
///
/// A waiting sender reads all words of a mask in each round, which needs more branches than loom's
/// default.
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

fn requests_twice(machine: &Machine) {
    for request in 1..=2 {
        machine.request(0);
        assert_eq!(machine.read.get(), request, "the sender sees what the target did");
    }
}

#[test]
fn a_request_is_read_whole_and_reused_only_after_its_acknowledgement() {
    beside(requests_twice, |machine| machine.serve_requests(2));
}

#[test]
fn concurrent_requests_are_not_lost() {
    explore(|| {
        let machine = Machine::new();
        let threads = [0, 1].map(|sender| {
            let machine = Arc::clone(&machine);
            thread::spawn(move || {
                assert!(machine.send(sender).contains(TARGET));
                machine.interrupt.notify();
            })
        });
        machine.serve_requests(2);
        for thread in threads {
            thread.join().expect("a sender");
        }
        assert_eq!(machine.read.get(), 2, "each once");
    });
}

/// The sender finishes although no CPU serves interrupts, and a late interrupt finds no request.
#[test]
fn no_sender_waits_for_a_cpu_that_goes_offline() {
    let requests_twice = |machine: &Machine| (0..2).for_each(|_| machine.request(0));
    beside(requests_twice, |machine| {
        machine.mailbox.leave(TARGET);
        assert_eq!(machine.serve(), 0);
    });
}

/// A sender that saw the target offline withdraws its request and writes the next one.
///
/// The target must neither read a torn request nor acknowledge the second in place of the first.
#[test]
fn a_cpu_that_comes_online_reads_no_withdrawn_request() {
    explore(|| {
        let machine = Machine::new();
        machine.mailbox.leave(TARGET);
        let over = Arc::new(AtomicBool::new(false));
        let sender = {
            let (machine, over) = (Arc::clone(&machine), Arc::clone(&over));
            thread::spawn(move || {
                (0..2).for_each(|_| machine.request(0));
                over.store(true, Ordering::Relaxed);
                machine.interrupt.notify();
            })
        };
        machine.mailbox.enter(TARGET);
        // As after a further, unrelated IPI.
        machine.serve();
        while !over.load(Ordering::Relaxed) {
            machine.interrupt.wait();
            machine.serve();
        }
        sender.join().expect("the sender");
    });
}

/// Checks the tests: loom must catch a reader without acquire ordering.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_without_acquire_ordering_is_caught() {
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
