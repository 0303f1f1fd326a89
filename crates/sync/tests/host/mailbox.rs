//! Concurrent requests between CPUs, one of which goes offline and online again.
//!
//! INV-MAIL-READ, INV-MAIL-LOST, INV-MAIL-ABSENT.

use crate::backend::on_cpus;
use pagewright_sync::host::HostLocks;
use pagewright_sync::{Backend, Mailbox};
use pagewright_types::{CpuId, CpuMask};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const REQUESTS: u64 = if cfg!(miri) { 8 } else { 3_000 };
/// The CPUs, of three groups; the last one goes offline now and then.
const CPUS: [u16; 4] = [0, 5, 17, 70];

struct Machine {
    mailbox: Mailbox<2, HostLocks>,
    interrupted: [AtomicBool; 4],
    /// The last request that each CPU has read of each sender.
    read: [[AtomicU64; 4]; 4],
    finished: AtomicUsize,
}

impl Machine {
    fn serve(&self, place: usize) {
        if self.interrupted[place].swap(false, Ordering::SeqCst) {
            self.mailbox.serve(CpuId::new(CPUS[place]), |[number, rest]| {
                let (sender, number) = ((number >> 32) as usize, number & 0xffff_ffff);
                assert_eq!(rest, !number, "the request is torn");
                let before = self.read[place][sender].swap(number, Ordering::SeqCst);
                assert!(before < number, "request {number} of {sender} follows {before}");
                assert!(place == 3 || before + 1 == number, "CPU {place} missed a request of {sender}");
            });
        } else {
            HostLocks::pause();
        }
    }

    fn request(&self, place: usize, number: u64) {
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
            assert_eq!(self.read[other][place].load(Ordering::SeqCst), number, "CPU {other} did not read the request");
        }
    }
}

#[test]
fn concurrent_requests_are_read_whole_and_once() {
    let machine = Machine {
        mailbox: Mailbox::try_new(71).expect("memory"),
        interrupted: Default::default(),
        read: Default::default(),
        finished: AtomicUsize::new(0),
    };
    on_cpus(4, |place| {
        let place = place.index();
        for number in 1..=REQUESTS {
            machine.request(place, number);
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
    assert!((0..3).all(|place| read(place) == 3 * REQUESTS));
    assert!(read(3) > 0, "it was always offline");
}

#[test]
fn offline_cpus_get_no_request() {
    let mailbox = Mailbox::<1, HostLocks>::try_new(40).expect("memory");
    let (me, online, offline) = (CpuId::new(0), CpuId::new(20), CpuId::new(21));
    let both: CpuMask = [online, offline].into_iter().collect();
    mailbox.leave(offline);
    assert_eq!(mailbox.send(me, [7], &both), CpuMask::of(online));
    assert!(!mailbox.is_acknowledged(me, &both));
    mailbox.serve(offline, |_| panic!("the sender withdrew it"));
    let mut read = 0;
    mailbox.serve(online, |[word]| read = word);
    assert_eq!(read, 7);
    assert!(mailbox.is_acknowledged(me, &both));
    mailbox.enter(offline);
    assert_eq!(mailbox.send(me, [8], &both), both);
    // A CPU that goes offline acknowledges the requests that it has not served.
    mailbox.leave(offline);
    mailbox.serve(online, |[word]| read = word);
    assert!(mailbox.is_acknowledged(me, &both) && read == 8);
    mailbox.serve(online, |_| panic!("the request has ended"));
}
