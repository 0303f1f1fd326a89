//! Measures, on the host, which stores clear memory fastest ([`measure_clearing`]).
//!
//! Not guaranteed: a right result while other programs use the memory.

use crate::clock::ThreadClock;
use crate::machine::HostMachine;
use pagewright_tlb::{ClearMeasurements, Tlb};

/// Makes all measurements of clearing at once, by the CPU time of the calling thread.
///
/// The thread is a CPU of the machine ([`run_as`](crate::run_as)).
pub fn measure_clearing(tlb: &Tlb<HostMachine>) -> ClearMeasurements {
    let clock = ThreadClock::start_cpu_time();
    let mut measurements = ClearMeasurements::new();
    while measurements.step(tlb, || clock.elapsed()) {}
    measurements
}
