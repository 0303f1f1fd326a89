//! The allocator, folios and release lists on several host threads.

use crate::support::{self, Host, NODE0, one_node, run_on, shape};
use pagewright_frame::{FolioRefs, FrameAllocator, FrameRequest, ReleaseList};
use pagewright_types::{DebtKey, Order, Pfn};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

const CPUS: u16 = 4;
const FRAMES: u32 = 1 << 14;

/// Random numbers below a bound, for each thread.
///
/// A failure repeats as far as the host's scheduling allows.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut generator = Pcg64::seed_from_u64(seed);
    move |bound| generator.next_u64() % bound
}

/// For each frame, whether a block that contains it is allocated.
struct Claims(Vec<AtomicU8>);

impl Claims {
    fn claim(&self, pfn: Pfn, order: Order) {
        for frame in &self.0[pfn.index()..][..order.frames() as usize] {
            assert_eq!(frame.swap(1, Ordering::AcqRel), 0, "INV-FRAME-BUDDY: a frame is allocated twice");
        }
    }

    fn release(&self, pfn: Pfn, order: Order) {
        for frame in &self.0[pfn.index()..][..order.frames() as usize] {
            assert_eq!(frame.swap(0, Ordering::AcqRel), 1);
        }
    }
}

fn churn(frames: &FrameAllocator<Host>, claims: &Claims, pool: &Mutex<Vec<(Pfn, Order)>>, cpu: u16) {
    run_on(cpu);
    let mut below = random(u64::from(cpu));
    for _ in 0..60_000 {
        if below(2) == 0 {
            let order = Order::new([0, 0, 0, 0, 1, 2, 3, 5, 7, 9][below(10) as usize]);
            let Ok(unsettled) = frames.alloc(FrameRequest::new(order, NODE0), support::nothing_settled) else {
                continue;
            };
            let pfn = unsettled.settle(|_| {}).into_raw();
            claims.claim(pfn, order);
            pool.lock().expect("no panic").push((pfn, order));
        } else {
            // A block of any thread, so that frames are freed on other CPUs than they were
            // allocated on.
            let taken = {
                let mut pool = pool.lock().expect("no panic");
                let len = pool.len() as u64;
                if len == 0 { None } else { Some(pool.swap_remove(below(len) as usize)) }
            };
            let Some((pfn, order)) = taken else { continue };
            claims.release(pfn, order);
            frames.free_with_debt(support::block_at(frames, pfn), DebtKey::new(below(3)));
        }
    }
}

#[test]
fn no_frame_is_allocated_twice_and_all_coalesce_again() {
    let frames = one_node(&Host::new(usize::from(CPUS)), 0, FRAMES);
    let initial = shape(&frames);
    let claims = Claims((0..FRAMES).map(|_| AtomicU8::new(0)).collect());
    let pool = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (frames, claims, pool) = (&frames, &claims, &pool);
            scope.spawn(move || churn(frames, claims, pool, cpu));
        }
    });
    for (pfn, _) in pool.into_inner().expect("no panic") {
        frames.free(support::block_at(&frames, pfn));
    }
    frames.drain();
    support::settle_everything(&frames);
    assert_eq!(shape(&frames), initial);
    assert_eq!(frames.available(), frames.managed(), "INV-FRAME-COUNT");
    for zone in frames.zones() {
        assert!(zone.parked() <= zone.free(), "INV-FRAME-COUNT");
    }
}

/// Makes folios of changing orders, splits some and frees them.
fn recycle(frames: &FrameAllocator<Host>, freed: &AtomicU32, cpu: u16) {
    run_on(cpu);
    let mut below = random(u64::from(cpu) + 1);
    for _ in 0..20_000 {
        let order = Order::new([0, 1, 3, 4][below(4) as usize]);
        let Ok(unsettled) = frames.alloc(FrameRequest::new(order, NODE0), support::nothing_settled) else { continue };
        let reference = frames.new_folio(unsettled.settle(|_| {}));
        let folio = frames.folio_of(&reference);
        // Fails only if another thread has a speculative reference.
        if order > Order::ZERO
            && below(2) == 0
            && let Ok(frozen) = folio.freeze(1)
        {
            let mut parts = frozen.split(Order::ZERO);
            parts.next().expect("the first part").thaw(1);
            for part in parts {
                let pfn = part.folio().pfn();
                part.thaw(1);
                give_up(frames, freed, support::take_back(frames, pfn));
            }
        }
        // Another thread may take a speculative reference now, and then frees the folio.
        std::thread::yield_now();
        let mut release_list = ReleaseList::new();
        match release_list.put_last(frames, reference) {
            Ok(()) => {
                release_list.free(frames);
                freed.fetch_add(1, Ordering::Relaxed);
            }
            Err(shared) => give_up(frames, freed, shared),
        }
    }
}

fn give_up(frames: &FrameAllocator<Host>, freed: &AtomicU32, refs: impl Into<FolioRefs>) {
    if let Some(block) = frames.put_refs(refs.into()) {
        frames.free(block);
        freed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_speculative_reference_is_to_a_folio_or_fails() {
    const SMALL: u32 = 256;
    let frames = one_node(&Host::new(usize::from(CPUS)), 0, SMALL);
    let initial = shape(&frames);
    let (done, freed, referenced) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..2)
            .map(|cpu| {
                let (frames, freed) = (&frames, &freed);
                scope.spawn(move || recycle(frames, freed, cpu))
            })
            .collect();
        for cpu in 2..CPUS {
            let (frames, freed, done, referenced) = (&frames, &freed, &done, &referenced);
            scope.spawn(move || {
                run_on(cpu);
                let mut below = random(u64::from(cpu) + 100);
                while !done.load(Ordering::Acquire) {
                    let pfn = Pfn::new(below(u64::from(SMALL)) as u32);
                    let Some(reference) = frames.try_get_folio(pfn) else { continue };
                    let folio = frames.folio_of(&reference);
                    // INV-FRAME-SPEC, INV-FRAME-FROZEN: the frame belongs to a folio, and the
                    // reference keeps the order as it is.
                    assert!(folio.refs() > 0);
                    let order = folio.order();
                    std::thread::yield_now();
                    assert_eq!(folio.order(), order);
                    referenced.fetch_add(1, Ordering::Relaxed);
                    give_up(frames, freed, reference);
                }
            });
        }
        for maker in makers {
            maker.join().expect("no panic");
        }
        done.store(true, Ordering::Release);
    });
    frames.drain();
    assert_eq!(shape(&frames), initial, "INV-FRAME-REFS: a folio was not freed exactly once");
    assert!(freed.into_inner() > 0 && referenced.into_inner() > 0, "no folio was freed or referenced");
}
