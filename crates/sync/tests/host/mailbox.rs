//! Letters that cross, between CPUs of which one leaves and comes back.
//!
//! INV-MAIL-READ, INV-MAIL-LOST, INV-MAIL-ABSENT.

use crate::backend::{Host, on_cpus};
use pagewright_sync::{Backend, Mailbox};
use pagewright_types::{CpuId, CpuMask};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const LETTERS: u64 = 3_000;
/// The CPUs that there are, in three groups; the last of them leaves now and then.
const CPUS: [u16; 4] = [0, 5, 17, 70];

struct Machine {
    mailbox: Mailbox<2, Host>,
    interrupted: [AtomicBool; 4],
    /// How many letters of each CPU each has read.
    read: [[AtomicU64; 4]; 4],
    finished: AtomicUsize,
}

impl Machine {
    fn serve(&self, place: usize) {
        if self.interrupted[place].swap(false, Ordering::SeqCst) {
            self.mailbox.serve(CpuId::new(CPUS[place]), |[number, rest]| {
                let (sender, number) = ((number >> 32) as usize, number & 0xffff_ffff);
                assert_eq!(rest, !number, "half a letter");
                let before = self.read[place][sender].swap(number, Ordering::SeqCst);
                assert!(before < number, "letter {before} of {sender} was followed by {number}");
                assert!(place == 3 || before + 1 == number, "CPU {place} has missed a letter of {sender}");
            });
        } else {
            Host::pause();
        }
    }

    fn ask(&self, place: usize, number: u64) {
        let me = CpuId::new(CPUS[place]);
        let mut targets: CpuMask = CPUS.into_iter().map(CpuId::new).collect();
        targets.remove(me);
        let present = self.mailbox.send(me, [(place as u64) << 32 | number, !number], &targets);
        let reached = (0..4).filter(|other| present.contains(CpuId::new(CPUS[*other])));
        reached.for_each(|other| self.interrupted[other].store(true, Ordering::SeqCst));
        while !self.mailbox.is_acknowledged(me, &targets) {
            self.serve(place);
        }
        for other in (0..3).filter(|other| *other != place) {
            assert_eq!(self.read[other][place].load(Ordering::SeqCst), number, "CPU {other} has not answered");
        }
    }
}

#[test]
fn letters_that_cross_are_read_whole_and_each_once() {
    let machine = Machine {
        mailbox: Mailbox::try_new(71).expect("memory"),
        interrupted: Default::default(),
        read: Default::default(),
        finished: AtomicUsize::new(0),
    };
    on_cpus(4, |place| {
        let place = place.index();
        for number in 1..=LETTERS {
            machine.ask(place, number);
            if place == 3 && number % 3 == 0 {
                machine.mailbox.leave(CpuId::new(CPUS[place]));
                (0..number % 7).for_each(|_| machine.serve(place));
                machine.mailbox.enter(CpuId::new(CPUS[place]));
            }
        }
        machine.finished.fetch_add(1, Ordering::SeqCst);
        while machine.finished.load(Ordering::SeqCst) < 4 {
            machine.serve(place);
        }
    });
    let read = |place: usize| machine.read[place].iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>();
    assert!((0..3).all(|place| read(place) == 3 * LETTERS));
    assert!(read(3) > 0, "it was never there");
}

#[test]
fn who_is_absent_is_not_asked() {
    let mailbox = Mailbox::<1, Host>::try_new(40).expect("memory");
    let (me, present, absent) = (CpuId::new(0), CpuId::new(20), CpuId::new(21));
    let both: CpuMask = [present, absent].into_iter().collect();
    mailbox.leave(absent);
    assert_eq!(mailbox.send(me, [7], &both), CpuMask::of(present));
    assert!(!mailbox.is_acknowledged(me, &both));
    mailbox.serve(absent, |_| panic!("it was taken back"));
    let mut read = 0;
    mailbox.serve(present, |[word]| read = word);
    assert_eq!(read, 7);
    assert!(mailbox.is_acknowledged(me, &both));
    mailbox.enter(absent);
    assert_eq!(mailbox.send(me, [8], &both), both);
    // And one that leaves unasked-for answers what it was asked.
    mailbox.leave(absent);
    mailbox.serve(present, |[word]| read = word);
    assert!(mailbox.is_acknowledged(me, &both) && read == 8);
    mailbox.serve(present, |_| panic!("it is over"));
}
