//! The figures of the series' mail, and what they imply for one page and one flush.
//!
//! Key type: [`PublishedMachine`]. Nothing here is ours: the table is arithmetic on published
//! figures, with what our model has in its place in a column of its own.
//!
//! Not guaranteed: that 95 % of `ptep_clear_flush` is the final DSB on the Kunpeng 920 too; the
//! mail says so of the Snapdragon 888.

use super::super::{Grid, Table};
use super::grid::{KUNPENG, PHONE, PageOutCells, SPARED};

/// Pages that the program pages out: 10 000 rounds of 1 MiB.
const PAGES: f64 = 10_000.0 * 256.0;
/// The part of `ptep_clear_flush` that is the final DSB.
pub(super) const DSB_SHARE: f64 = 0.95;

/// The published figures of one machine of the series.
pub(super) struct PublishedMachine {
    pub(super) profile: &'static str,
    pub(super) name: &'static str,
    /// Number of CPUs in the mail; if it gives none, the most that the grid has.
    pub(super) cpus: u16,
    /// Seconds elapsed before and after.
    pub(super) elapsed: [f64; 2],
    /// Seconds of system time before and after.
    pub(super) system: [f64; 2],
    /// Share of the time before that was spent in `ptep_clear_flush`.
    pub(super) share: f64,
}

pub(super) const PUBLISHED: [PublishedMachine; 2] = [
    PublishedMachine {
        profile: PHONE,
        name: "Snapdragon 888, 8 cores",
        cpus: 8,
        elapsed: [14.69, 13.80],
        system: [14.34, 13.45],
        share: 0.0536,
    },
    PublishedMachine {
        profile: KUNPENG,
        name: "Kunpeng 920, number of CPUs not given",
        cpus: 128,
        elapsed: [13.460, 11.771],
        system: [12.039, 11.458],
        share: 0.1699,
    },
];

/// The part of `before` that `after` saves.
fn saved([before, after]: [f64; 2]) -> f64 {
    1.0 - after / before
}

impl PublishedMachine {
    /// Nanoseconds of elapsed time that a page took before.
    fn page_ns(&self) -> f64 {
        self.elapsed[0] * 1e9 / PAGES
    }

    /// Nanoseconds that the final DSB of a flush took before.
    pub(super) fn dsb_ns(&self) -> f64 {
        self.page_ns() * self.dsb_share()
    }

    /// Share of the time before that was spent in the final DSB.
    pub(super) fn dsb_share(&self) -> f64 {
        self.share * DSB_SHARE
    }

    /// The part of the elapsed time that one DSB for each batch would save.
    pub(super) fn expected(&self) -> f64 {
        self.dsb_share() * SPARED
    }

    pub(super) fn elapsed_saved(&self) -> f64 {
        saved(self.elapsed)
    }

    /// Nanoseconds a page that the system time fell by.
    fn system_saved_ns(&self) -> f64 {
        (self.system[0] - self.system[1]) * 1e9 / PAGES
    }
}

/// What the mail's figures imply.
pub(super) fn table(cells: &PageOutCells) -> Table {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let whole = |nanos: f64| format!("{nanos:.0}");
    let modelled = |machine: &PublishedMachine| {
        let cell = cells.of_the_series(machine.profile, machine.cpus)?;
        Some(format!("{:.0} at {} CPUs", cell.wait_ns(), machine.cpus))
    };
    Grid::of("What the mail's figures imply", &PUBLISHED)
        .text("published for", |machine| machine.name)
        .text("ns per page before", |machine| whole(machine.page_ns()))
        .text("ns in ptep_clear_flush", |machine| whole(machine.page_ns() * machine.share))
        .text("of it the DSB (95 %)", |machine| whole(machine.dsb_ns()))
        .text("one DSB per 32 would save", |machine| percent(machine.expected()))
        .text("elapsed time saved", |machine| percent(machine.elapsed_saved()))
        .text("part of what it would", |machine| percent(machine.elapsed_saved() / machine.expected()))
        .text("ns per page it would save", |machine| whole(machine.dsb_ns() * SPARED))
        .text("ns of system time saved", |machine| whole(machine.system_saved_ns()))
        .text("our wait for a flush, modelled ns", |machine| modelled(machine))
        .table()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mail_implies_292_and_849_ns_for_a_dsb_and_more_than_kunpeng_saved() {
        let [phone, kunpeng] = &PUBLISHED;
        assert_eq!([phone, kunpeng].map(|machine| machine.dsb_ns().round()), [292.0, 849.0]);
        let promille = |part: f64| (part * 1000.0).round();
        assert_eq!([promille(kunpeng.expected()), promille(kunpeng.elapsed_saved())], [156.0, 125.0]);
        assert_eq!([promille(phone.expected()), promille(phone.elapsed_saved())], [49.0, 61.0]);
        assert_eq!([phone, kunpeng].map(|machine| machine.system_saved_ns().round()), [348.0, 227.0]);
    }
}
