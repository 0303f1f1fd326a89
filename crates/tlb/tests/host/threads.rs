//! CPUs on threads of their own: shootdowns that cross.

use super::space::{FRAMES, Space, is_free, page};
use crate::support::{Delivery, Host, engine};
use pagewright_arch::on_both;
use pagewright_arch::{Caps, Isa};
use pagewright_types::{Access, Counter, IsaKind, Pfn};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, TryLockError};

on_both! { concurrent_shootdowns_lose_no_flush }

const CPUS: u16 = 4;
const SPACES: usize = 3;
const PAGES: u16 = 5;
const ROUNDS: u32 = 10_000;
/// The shootdowns that the CPUs make at least.
const SHOOTDOWNS: u64 = 100;
/// The rounds after which a CPU gives up if there are fewer.
///
/// A busy host may let a thread make all its usual rounds while each other waits for its answer.
const MOST_ROUNDS: u32 = 100 * ROUNDS;

struct Shared<I: Isa> {
    host: Host<I>,
    spaces: Vec<Space<I>>,
    /// The frame of each page of each space; a thread that changes it holds the lock.
    mapped: Vec<Mutex<[Option<Pfn>; PAGES as usize]>>,
    /// Which page of which space a frame belongs to.
    owner: Vec<AtomicU64>,
    start: Barrier,
    finished: AtomicUsize,
}

impl<I: Isa> Shared<I> {
    fn stamp(space: usize, index: u16) -> u64 {
        (space as u64) << 16 | u64::from(index) | 1 << 32
    }

    /// Maps a page of a space or unmaps it, unless another thread does.
    fn change(&self, number: usize, index: u16) {
        let space = &self.spaces[number];
        let mut mapped = match self.mapped[number].try_lock() {
            Ok(mapped) => mapped,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(_)) => panic!("another thread failed"),
        };
        match mapped[usize::from(index)].take() {
            Some(pfn) => {
                space.unmap(index, pfn).settle();
            }
            None => {
                let tlb = &space.tlb;
                let block = tlb.alloc(tlb.request(pagewright_types::Order::ZERO)).expect("memory is left");
                let pfn = tlb.frames().new_folio(block).into_raw();
                self.owner[pfn.index()].store(Self::stamp(number, index), Ordering::SeqCst);
                space.map(index, pfn);
                mapped[usize::from(index)] = Some(pfn);
            }
        }
    }

    /// Uses a page of the space that runs, through whatever the TLB has.
    fn touch(&self, number: usize, index: u16) {
        self.host.access_and(page(index), Access::Read, |leaf| {
            // INV-TLB-ORDER, INV-TLB-SWITCH; with few tags, INV-TLB-ROLLOVER, too.
            assert!(!is_free(&self.spaces[number].tlb, leaf.pfn), "{:?} is free and reached", leaf.pfn);
            let owner = self.owner[leaf.pfn.index()].load(Ordering::SeqCst);
            assert_eq!(owner, Self::stamp(number, index), "{:?} was given to another page and is reached", leaf.pfn);
        });
    }

    fn run_cpu(&self, cpu: u16) {
        self.host.start_cpu(cpu);
        self.start.wait();
        let tlb = self.spaces[0].tlb.clone();
        let mut random = Pcg64::seed_from_u64(cpu.into());
        let mut below = |bound: u64| random.next_u64() % bound;
        let mut running = None;
        let shootdowns = || tlb.frames().counters().sum(Counter::NrTlbRemoteFlush);
        for round in 0..MOST_ROUNDS {
            if round >= ROUNDS && shootdowns() > SHOOTDOWNS {
                break;
            }
            match below(10) {
                0 | 1 => {
                    let number = below(SPACES as u64) as usize;
                    self.spaces[number].run();
                    running = Some(number);
                }
                2 => {
                    tlb.enter_lazy();
                    running = None;
                }
                3..=5 => self.change(below(SPACES as u64) as usize, below(u64::from(PAGES)) as u16),
                _ => {
                    if let Some(number) = running {
                        self.touch(number, below(u64::from(PAGES)) as u16);
                    }
                }
            }
            self.host.poll();
            if below(16) == 0 {
                // Two host cores may stand for the four.
                std::thread::yield_now();
            }
        }
        tlb.leave_space();
        // Acknowledges the requests of CPUs that still wait.
        self.finished.fetch_add(1, Ordering::SeqCst);
        while self.finished.load(Ordering::SeqCst) < usize::from(CPUS) {
            self.host.poll();
            std::thread::yield_now();
        }
    }
}

fn concurrent_shootdowns_lose_no_flush<I: Isa>() {
    let usual = Caps::baseline(I::KIND);
    let few = Caps { tags: if I::KIND == IsaKind::Aarch64 { u32::from(CPUS) + 2 } else { usual.tags }, ..usual };
    let host = Host::<I>::new(usize::from(CPUS), FRAMES, few, Delivery::Polled);
    let tlb = engine(&host, FRAMES);
    let free = tlb.frames().available();
    let shared = Arc::new(Shared {
        host,
        spaces: (0..SPACES).map(|_| Space::new(&tlb)).collect(),
        mapped: (0..SPACES).map(|_| Mutex::default()).collect(),
        owner: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
        start: Barrier::new(usize::from(CPUS)),
        finished: AtomicUsize::new(0),
    });
    let threads: Vec<_> = (0..CPUS)
        .map(|cpu| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.run_cpu(cpu))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread failed");
    }
    for (number, mapped) in shared.mapped.iter().enumerate() {
        for (index, pfn) in mapped.lock().expect("no thread failed").iter().enumerate() {
            if let Some(pfn) = pfn {
                shared.spaces[number].unmap(index as u16, *pfn).settle();
            }
        }
    }
    let tables = 4 * SPACES as u64;
    assert_eq!(tlb.frames().available(), free - tables, "every frame came back");
    assert!(tlb.frames().counters().sum(Counter::NrTlbRemoteFlush) > SHOOTDOWNS, "shootdowns happened");
}
