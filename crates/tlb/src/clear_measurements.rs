//! The measurements that choose the stores for clearing, in steps.
//!
//! Key type: [`ClearMeasurements`]. Without them the selector uses the best streaming stores that
//! need no calibration, and assumes a last-level cache of 64 MiB;
//! [`Counter::PwClearMeasurements`] is 0 then.
//!
//! **INV-CLEAR-MEASURED** A machine whose CPUs are never idle measures which stores clear memory
//! fastest, one step a second; a step is the longest delay of a program. Otherwise a machine that
//! is busy from boot on would keep the assumptions.
//!
//! Protocol: the embedder calls [`ClearMeasurements::step`] while a CPU is idle, until it returns
//! `false`, and [`ClearMeasurements::tick`] on busy CPUs at each timer tick; one CPU at a time,
//! because both take `&mut`. A step allocates blocks, measures and frees them: the calibration
//! takes some 2 ms, and each of at most ten further steps rewrites a set of 4 to 256 MiB three
//! times. All of them together take some 100 ms.
//!
//! If no CPU is idle for a second, a tick makes one step, as a delayed work item of Linux would. So
//! CPUs that are never idle measure as well, for at most eleven seconds, and a step is the longest
//! delay of a program (INV-CLEAR-MEASURED).
//!
//! Neighbours: `frame::clear` measures; `kernel` and `host` call it.
//!
//! Not guaranteed: a right result under load, or under an emulator, whose stores all cost the same.

use crate::engine::Tlb;
use core::time::Duration;
use pagewright_frame::{BlockList, CacheProbe, CacheProbeProgress, ClearCalibration, Frames};
use pagewright_sync::Platform;
use pagewright_types::{Counter, Order};

/// The time after which a busy CPU makes the next step, if no CPU was idle.
const BUSY_DELAY: Duration = Duration::from_secs(1);

/// The measurements of one machine, and their results so far.
#[derive(Debug, Default)]
pub struct ClearMeasurements {
    is_calibrated: bool,
    calibration: Option<ClearCalibration>,
    probe: CacheProbe,
    cache: Option<CacheProbeProgress>,
    /// When the last step ended or the first tick came, by the clock of the embedder.
    latest: Option<Duration>,
}

impl ClearMeasurements {
    /// Nothing is measured yet.
    pub const fn new() -> Self {
        Self { is_calibrated: false, calibration: None, probe: CacheProbe::new(), cache: None, latest: None }
    }

    /// The result of the calibration.
    ///
    /// `None` before it, and if there was nothing to compare or too little memory.
    pub fn calibration(&self) -> Option<ClearCalibration> {
        self.calibration
    }

    /// The result of the probe of the cache; `None` before its end.
    pub fn cache(&self) -> Option<CacheProbeProgress> {
        self.cache
    }

    /// The duration of the probe so far.
    pub fn probe_time(&self) -> Duration {
        self.probe.elapsed()
    }

    /// Makes one measurement, and returns whether another one is left; `now` reads a clock.
    ///
    /// Without streaming stores to choose there is nothing to measure. Too little free memory ends
    /// the measurements; nothing is reclaimed for them.
    ///
    /// # Locks
    /// Takes those of the allocator; the caller holds none.
    pub fn step<P: Platform>(&mut self, tlb: &Tlb<P>, mut now: impl FnMut() -> Duration) -> bool {
        if !self.is_step_left(tlb) {
            return false;
        }
        let is_step_left = self.measure(tlb, &mut now);
        self.latest = Some(now());
        is_step_left
    }

    /// Makes one measurement on a busy CPU, if the last one was a second ago; else does nothing.
    ///
    /// The first second begins with the first call. The rest is as with [`Self::step`].
    ///
    /// # Locks
    /// Takes those of the allocator; the caller holds none.
    pub fn tick<P: Platform>(&mut self, tlb: &Tlb<P>, mut now: impl FnMut() -> Duration) {
        let at = now();
        if at.saturating_sub(*self.latest.get_or_insert(at)) >= BUSY_DELAY {
            self.step(tlb, now);
        }
    }

    /// Whether there are streaming stores to choose from, and the choice is not made yet.
    fn is_step_left<P: Platform>(&self, tlb: &Tlb<P>) -> bool {
        let selector = tlb.frames().clear_selector();
        selector.caps().candidates().next().is_some() && self.cache.is_none()
    }

    fn measure<P: Platform>(&mut self, tlb: &Tlb<P>, now: impl FnMut() -> Duration) -> bool {
        let frames = tlb.frames();
        tlb.count(Counter::PwClearMeasurements, 1);
        if !self.is_calibrated {
            self.is_calibrated = true;
            self.calibration = frames.calibrate_clearing(take(tlb, Frames::<P>::CALIBRATION_BLOCKS), now);
            return true;
        }
        match self.probe.step(frames, take(tlb, self.probe.wanted()), now) {
            CacheProbeProgress::More => true,
            done @ (CacheProbeProgress::Found(_) | CacheProbeProgress::AtLeast(_)) => {
                self.cache = Some(done);
                false
            }
        }
    }
}

/// Allocates blocks, or as many as are free.
fn take<P: Platform>(tlb: &Tlb<P>, (blocks, order): (usize, Order)) -> BlockList {
    let mut list = BlockList::new();
    while list.len() < blocks
        && let Ok(block) = tlb.alloc(tlb.request(order))
    {
        list.push(tlb.frames(), block);
    }
    list
}
