//! `cross-section`: look-ups of neutron cross sections, as in the macroscopic kernel of XSBench.
//!
//! A look-up has an energy and a material. It searches the *unionised grid* of all energies of all
//! nuclides by halves, reads the row of the *index* there, and with each nuclide's index the two
//! points of that nuclide's cross sections around the energy. XSBench's large problem has 355
//! nuclides with 11,303 points each; its index takes 5.7 GB.
//!
//! Everything is divided by [`FACTOR`]: the points of a nuclide, the memory of the machine, the
//! size and the periods of Linux's scans, and the hot threshold. The tables are five times the fast
//! node. The index is filled first, and the cross sections, which are used most, last. So they
//! begin in slow memory. (XSBench fills the cross sections first.)
//!
//! Left out: the arithmetic, and the small tables of materials.

use super::{PAGE, Program, ROOT, Script, WorkloadMachine};
use crate::trace::{AccessStream, Tid};
use pagewright_mm::MmSetting;

/// The divisor of the sizes and times of XSBench and of Linux.
const FACTOR: u64 = 64;

const NUCLIDES: u64 = 355;
/// Energies of a nuclide.
const POINTS: u64 = 11_303 / FACTOR;
/// Energies of the unionised grid.
const ENERGIES: u64 = NUCLIDES * POINTS;
/// A point of a nuclide: an energy and five cross sections, of 8 bytes each.
const POINT_BYTES: u64 = 48;
/// A row of the index: a number of 4 bytes for each nuclide.
const ROW_BYTES: u64 = NUCLIDES * 4;

/// The tables, in the order in which they are filled.
const INDEX: u64 = super::HEAP;
const GRID: u64 = INDEX + (ENERGIES * ROW_BYTES).next_multiple_of(PAGE);
const SECTIONS: u64 = GRID + (ENERGIES * 8).next_multiple_of(PAGE);
const END: u64 = SECTIONS + (ENERGIES * POINT_BYTES).next_multiple_of(PAGE);

/// All pages of the tables.
const PAGES: u64 = (END - INDEX) / PAGE;

const THREADS: u32 = 4;
/// Look-ups of each thread in a row.
const IN_A_ROW: u64 = 64;

/// The nuclides of each material, and how often in 1,000 look-ups it is met.
const MATERIALS: [(u64, u64); 12] = [
    (321, 140),
    (5, 52),
    (4, 275),
    (4, 134),
    (27, 154),
    (21, 64),
    (21, 66),
    (21, 55),
    (21, 8),
    (21, 15),
    (9, 25),
    (9, 12),
];

pub(super) const CROSS_SECTION: Program = Program {
    name: "cross-section",
    rounds: 10_000,
    machine: Some(WorkloadMachine {
        fast_bytes: (PAGES / 5) * PAGE,
        slow_bytes: (PAGES * 3 / 2) * PAGE,
        settings: &[
            (MmSetting::DemotionEnabled, 1),
            (MmSetting::NumaScanSizeMb, 256 / FACTOR),
            (MmSetting::NumaScanDelayMs, 1000 / FACTOR),
            (MmSetting::NumaScanPeriodMinMs, 1000 / FACTOR),
            (MmSetting::NumaScanPeriodMaxMs, 60_000 / FACTOR),
            (MmSetting::NumaHotThresholdMs, 1000 / FACTOR),
        ],
    }),
    set_up: |script| {
        script.fill_heap(PAGES);
        script.start_threads(THREADS);
    },
    round: |script| {
        for thread in 1..=THREADS {
            script.switch(ROOT, Tid(thread));
            for _ in 0..IN_A_ROW {
                look_up(script);
            }
        }
    },
};

/// One look-up: the loads of a random energy in a random material.
fn look_up(script: &mut Script) {
    let (energy, nuclides) = (script.below(ENERGIES), material(script.below(1000)));
    script.run(0x400, AccessStream::Fetch, 64, 0);
    search(script, energy);
    // The numbers of the material's nuclides lie in one row, which may cross a page.
    let row = INDEX + energy * ROW_BYTES;
    let (first, last) = (row / PAGE, (row + nuclides * 4 - 1) / PAGE);
    let on_first = if first == last { nuclides } else { (last * PAGE - row) / 4 };
    script.run(first, AccessStream::Data, on_first as u32, 0);
    if on_first < nuclides {
        script.run(last, AccessStream::Data, (nuclides - on_first) as u32, 0);
    }
    let point = (energy / NUCLIDES).min(POINTS - 2);
    for nuclide in 0..nuclides {
        let at = SECTIONS + (nuclide * POINTS + point) * POINT_BYTES;
        script.run(at / PAGE, AccessStream::Data, 2 * (POINT_BYTES / 8) as u32, 0);
    }
}

/// The number of nuclides of the material that one of 1,000 look-ups meets.
fn material(mut of_thousand: u64) -> u64 {
    for (nuclides, share) in MATERIALS {
        if of_thousand < share {
            return nuclides;
        }
        of_thousand -= share;
    }
    MATERIALS[0].0
}

/// Searches the unionised grid for an energy by halves; loads of one page in a row are one run.
fn search(script: &mut Script, energy: u64) {
    let (mut low, mut high) = (0, ENERGIES - 1);
    let (mut page, mut loads) = (0, 0);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let on = (GRID + middle * 8) / PAGE;
        if on != page && loads > 0 {
            script.run(page, AccessStream::Data, loads, 0);
            loads = 0;
        }
        (page, loads) = (on, loads + 1);
        if middle > energy { high = middle } else { low = middle }
    }
    script.run(page, AccessStream::Data, loads, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_look_up_has_a_material() {
        assert_eq!(MATERIALS.iter().map(|(_, share)| share).sum::<u64>(), 1000);
        assert_eq!((material(0), material(139), material(140), material(999)), (321, 321, 5, 9));
        assert!(MATERIALS.iter().all(|(nuclides, _)| *nuclides <= NUCLIDES));
    }

    /// The tables are those of XSBench's large problem, divided.
    #[test]
    fn the_tables_are_five_times_the_fast_node() {
        let index_gb = (ENERGIES * FACTOR * ROW_BYTES) as f64 / 1e9;
        assert!((5.5..5.8).contains(&index_gb), "the index has {index_gb} GB");
        let machine = CROSS_SECTION.machine.as_ref().expect("a machine of its own");
        assert!(((END - INDEX) as f64 / machine.fast_bytes as f64 - 5.0).abs() < 0.01);
    }
}
