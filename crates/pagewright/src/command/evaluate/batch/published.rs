//! The figures of the series' mail, and what they imply for one page and one flush.
//!
//! Key type: [`PublishedMachine`]. Nothing here is ours: the table is arithmetic on published
//! figures, with what our model has in its place in a column of its own.
//!
//! Not guaranteed: that 95 % of `ptep_clear_flush` is the final DSB on the Kunpeng 920 too; the
//! mail says so of the Snapdragon 888.

use super::super::Table;
use super::grid::{Grid, KUNPENG, PHONE, SPARED};

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

    pub(super) fn system_saved(&self) -> f64 {
        saved(self.system)
    }

    /// Nanoseconds a page that the system time fell by.
    fn system_saved_ns(&self) -> f64 {
        (self.system[0] - self.system[1]) * 1e9 / PAGES
    }

    fn row(&self, grid: &Grid) -> Vec<String> {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let cell = grid.of_the_series(self.profile, self.cpus);
        let modelled = cell.map_or_else(String::new, |cell| format!("{:.0} at {} CPUs", cell.wait_ns(), self.cpus));
        vec![
            self.name.to_owned(),
            format!("{:.0}", self.page_ns()),
            format!("{:.0}", self.page_ns() * self.share),
            format!("{:.0}", self.dsb_ns()),
            percent(self.expected()),
            percent(self.elapsed_saved()),
            percent(self.elapsed_saved() / self.expected()),
            format!("{:.0}", self.dsb_ns() * SPARED),
            format!("{:.0}", self.system_saved_ns()),
            modelled,
        ]
    }
}

/// What the mail's figures imply.
pub(super) fn table(grid: &Grid) -> Table {
    let head = [
        "published for",
        "ns per page before",
        "ns in ptep_clear_flush",
        "of it the DSB (95 %)",
        "one DSB per 32 would save",
        "elapsed time saved",
        "part of what it would",
        "ns per page it would save",
        "ns of system time saved",
        "our wait for a flush, modelled ns",
    ];
    Table {
        title: "What the mail's figures imply".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: PUBLISHED.iter().map(|machine| machine.row(grid)).collect(),
    }
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
