//! The measurements that choose the stores for clearing, by clocks that follow a script.

use crate::clear::{FRAMES, Fixture};
use crate::support::{Host, one_node, take};
use pagewright_frame::{
    BlockList, CacheProbe, CacheProbeProgress, ClearCalibration, ClearCaps, ClearExtent, FrameAllocator, Frames,
    Residency,
};
use pagewright_types::Order;
use std::cell::Cell;
use std::time::Duration;

/// A clock that advances by `by` nanoseconds at each reading.
fn ticking(by: &Cell<u64>) -> impl FnMut() -> Duration + '_ {
    let mut now = 0;
    move || {
        now += by.get();
        Duration::from_nanos(now)
    }
}

fn blocks(frames: &FrameAllocator<Host>, (count, order): (usize, Order)) -> BlockList {
    let mut list = BlockList::new();
    (0..count).for_each(|_| list.push(frames, take(frames, order.raw())));
    list
}

/// Calibrates by a clock for which an ordinary clear of a pair takes `slow` ns, any other `fast`.
///
/// Six clears warm up, then each pair has a slow and a fast one. The readings of the clock identify
/// them.
fn calibrate(fixture: &Fixture, slow: u64, fast: u64) -> ClearCalibration {
    let (mut now, mut calls) = (0, 0);
    let clock = || {
        calls += 1;
        let ordinary = calls > 12 && calls % 4 == 2;
        now += if ordinary { slow } else { fast };
        Duration::from_nanos(now)
    };
    let six = blocks(&fixture.frames, Frames::<Host>::CALIBRATION_BLOCKS);
    fixture.frames.calibrate_clearing(six, clock).expect("six blocks")
}

#[test]
fn a_calibration_vetoes_streaming_stores_that_are_not_faster() {
    let fixture = Fixture::new(1);
    let candidates = ClearCaps::detect().candidates().count() as u64;
    if candidates == 0 {
        return;
    }
    // Every clear takes one tick, with any backend, so that each candidate is tried.
    let tick = Cell::new(1000);
    let six = blocks(&fixture.frames, Frames::<Host>::CALIBRATION_BLOCKS);
    let found = fixture.frames.calibrate_clearing(six, ticking(&tick)).expect("six blocks");
    assert_eq!((found.ratio_permille, found.streaming), (1000, None));
    assert_eq!(found.elapsed, Duration::from_nanos(candidates * 6 * 1000), "three pairs for each candidate");
    assert_eq!(
        fixture.frames.clear_selector().select(Residency::Cold, Order::PMD, ClearExtent::of_frames(1 << 18)),
        ClearCaps::detect().ordinary()
    );
    let found = calibrate(&fixture, 2300, 1000);
    let best = ClearCaps::detect().candidates().next();
    assert_eq!((found.ratio_permille, found.streaming), (2300, best), "the first backend that pays off");
    assert_eq!(found.elapsed, Duration::from_nanos(3 * 3300), "no other backend is tried");
    assert_eq!(fixture.frames.clear_selector().streaming(), best);
    assert!(fixture.frames.calibrate_clearing(BlockList::new(), ticking(&tick)).is_none(), "no blocks to measure");
    assert_eq!(fixture.frames.available(), u64::from(FRAMES), "the calibration leaks blocks");
}

#[test]
fn streaming_stores_pay_off_from_a_tenth_on() {
    let fixture = Fixture::new(1);
    let best = ClearCaps::detect().candidates().next();
    if best.is_none() {
        return;
    }
    for (slow, fast, ratio, streaming) in
        [(1099, 1000, 1099, None), (1100, 1000, 1100, best), (3, 1, 3000, best), (1, 0, 1000, None)]
    {
        let found = calibrate(&fixture, slow, fast);
        assert_eq!((found.ratio_permille, found.streaming), (ratio, streaming), "{slow} and {fast} ns");
    }
}

/// One step with a clock that advances by `tick` nanoseconds at each of its six readings.
fn step(fixture: &Fixture, probe: &mut CacheProbe, tick: u64) -> CacheProbeProgress {
    let set = blocks(&fixture.frames, probe.wanted());
    let progress = probe.step(&fixture.frames, set, ticking(&Cell::new(tick)));
    assert_eq!(fixture.frames.available(), u64::from(FRAMES), "a step keeps no block");
    progress
}

fn of_blocks(blocks: u64) -> ClearExtent {
    ClearExtent::of_frames(blocks * u64::from(Order::PMD.frames()))
}

#[test]
fn the_cache_probe_finds_the_first_set_that_is_slow_for_its_size() {
    let fixture = Fixture::new(1);
    let mut probe = CacheProbe::new();
    // A block takes as long in the sets of 2, 4 and 8, and three times as long in the set of 16.
    let mut ticks = 0;
    for wanted in [2, 4, 8] {
        assert_eq!(probe.wanted(), (wanted, Order::PMD));
        assert_eq!(step(&fixture, &mut probe, wanted as u64 * 1000), CacheProbeProgress::More);
        assert_eq!(fixture.take_cleared(Order::PMD), wanted, "each block of a set is rewritten");
        ticks += 5 * wanted as u64;
        assert_eq!(probe.elapsed(), Duration::from_micros(ticks), "from the first reading to the last");
    }
    assert_eq!(step(&fixture, &mut probe, 16 * 3000), CacheProbeProgress::Found(of_blocks(16)));
    assert_eq!(fixture.frames.clear_selector().cache(), of_blocks(16), "the selector does not use the size found");
    let few = blocks(&fixture.frames, (8, Order::PMD));
    let short = probe.step(&fixture.frames, few, || Duration::ZERO);
    assert_eq!(short, CacheProbeProgress::AtLeast(of_blocks(16)), "too few blocks for a larger set");
    assert_eq!(fixture.frames.available(), u64::from(FRAMES));
    let none = CacheProbe::new().step(&fixture.frames, BlockList::new(), || Duration::ZERO);
    assert_eq!(none, CacheProbeProgress::AtLeast(of_blocks(0)), "too few blocks for the smallest set");
}

#[test]
fn the_ratio_of_a_calibration_is_that_of_the_middle_pair() {
    let fixture = Fixture::new(1);
    let Some(best) = ClearCaps::detect().candidates().next() else { return };
    // Six clears warm up; then an ordinary and a streaming clear of each pair.
    let times = [1; 6].into_iter().chain([3, 1, 1, 1, 2, 1]);
    let mut readings = times.flat_map(|time| [0, time]);
    let mut now = 0;
    let clock = || {
        now += readings.next().expect("one candidate is tried");
        Duration::from_nanos(now)
    };
    let six = blocks(&fixture.frames, Frames::<Host>::CALIBRATION_BLOCKS);
    let found = fixture.frames.calibrate_clearing(six, clock).expect("six blocks");
    assert_eq!((found.ratio_permille, found.streaming), (2000, Some(best)), "of 3000, 1000 and 2000");
}

/// The stores of this CPU are not its machine's.
#[test]
fn a_machine_without_a_linear_map_has_nothing_to_measure() {
    let frames = one_node(&Host::new(1), 0, FRAMES);
    let six = blocks(&frames, Frames::<Host>::CALIBRATION_BLOCKS);
    assert!(frames.calibrate_clearing(six, || panic!("nothing is timed")).is_none());
    assert_eq!(frames.available(), u64::from(FRAMES));
}

/// A clock that notes the blocks which were cleared before each of its readings.
fn noting<'a>(fixture: &'a Fixture, cleared: &'a mut Vec<usize>) -> impl FnMut() -> Duration + 'a {
    move || {
        cleared.push(fixture.take_cleared(Order::PMD));
        Duration::ZERO
    }
}

#[test]
fn a_set_is_rewritten_once_before_it_is_timed_and_twice_while_it_is() {
    let (fixture, mut probe, mut cleared) = (Fixture::new(1), CacheProbe::new(), Vec::new());
    let set = blocks(&fixture.frames, probe.wanted());
    probe.step(&fixture.frames, set, noting(&fixture, &mut cleared));
    assert_eq!(cleared, [0, 2, 2, 0, 2, 0]);
}

#[test]
fn a_calibration_clears_a_block_each_time_that_it_reads_the_clock_twice() {
    let (fixture, mut cleared) = (Fixture::new(1), Vec::new());
    let six = blocks(&fixture.frames, Frames::<Host>::CALIBRATION_BLOCKS);
    fixture.frames.calibrate_clearing(six, noting(&fixture, &mut cleared));
    assert_eq!(cleared, [0, 1].repeat(12 * ClearCaps::detect().candidates().count()));
}

#[test]
fn a_set_fits_if_it_has_three_fifths_of_the_speed_of_the_smallest() {
    for (smallest, next, progress) in [
        (6000, 20_000, CacheProbeProgress::More),
        (5999, 20_000, CacheProbeProgress::Found(of_blocks(4))),
        // A set that takes no time by the clock counts as one nanosecond.
        (0, 3, CacheProbeProgress::More),
        (0, 4, CacheProbeProgress::Found(of_blocks(4))),
    ] {
        let fixture = Fixture::new(1);
        let mut probe = CacheProbe::new();
        assert_eq!(step(&fixture, &mut probe, smallest), CacheProbeProgress::More);
        assert_eq!(step(&fixture, &mut probe, next), progress, "2 blocks take {smallest} ns and 4 take {next}");
    }
}

/// The next step is predicted to take as long for each block as the last one did.
#[test]
fn the_cache_probe_ends_before_a_step_that_would_exceed_its_time() {
    for (smallest, progress) in
        [(2_000_000, CacheProbeProgress::More), (2_000_001, CacheProbeProgress::AtLeast(of_blocks(4)))]
    {
        let fixture = Fixture::new(1);
        let mut probe = CacheProbe::new();
        assert_eq!(step(&fixture, &mut probe, smallest), CacheProbeProgress::More);
        // The steps take five ticks each, and one of 8 blocks would take 60 ms after one of 4.
        assert_eq!(step(&fixture, &mut probe, 6_000_000), progress, "10 + 30 + 60 ms are permitted");
    }
}
