//! The figures of the series' mail: XSBench on two nodes, before and after.
//!
//! Not guaranteed: that the mail's machine is ours. It has 16 CPUs under KVM, 1 GB of fast memory
//! and tables of 5.7 GB.

/// The message id of the series' cover letter.
pub(super) const SERIES: &str = "20240219060407.25254-1-byungchul@sk.com";

/// Pages migrated before and after.
pub(super) const MIGRATED: [u64; 2] = [26_835_314, 30_825_530];

/// Seconds elapsed before and after.
pub(super) const ELAPSED: [f64; 2] = [2_252.883_892_112, 2_172.283_436_287];

/// A count of the mail.
#[derive(Clone, Copy)]
pub(super) struct PublishedCount {
    pub(super) name: &'static str,
    /// Before and after.
    pub(super) counts: [u64; 2],
}

impl PublishedCount {
    const fn new(name: &'static str, before: u64, after: u64) -> Self {
        Self { name, counts: [before, after] }
    }

    /// The counts per migrated page.
    pub(super) const fn per_page(&self) -> [f64; 2] {
        let [before, after] = self.counts;
        [before as f64 / MIGRATED[0] as f64, after as f64 / MIGRATED[1] as f64]
    }
}

/// Name of the count of shootdowns.
pub(super) const REMOTE: &str = "nr_tlb_remote_flush";

const REMOTE_FLUSHES: PublishedCount = PublishedCount::new(REMOTE, 3_031_412, 198_290);

/// The six events of `perf stat`, then the six counters of `/proc/vmstat`.
pub(super) const COUNTS: [PublishedCount; 12] = [
    PublishedCount::new("itlb.itlb_flush", 85_647_229, 5_240_261),
    PublishedCount::new("tlb_flush.dtlb_thread", 480_981_504, 271_581_774),
    PublishedCount::new("tlb_flush.stlb_any", 323_937_200, 243_149_389),
    PublishedCount::new("dTLB-load-misses", 238_381_632_579, 234_502_983_364),
    PublishedCount::new("dTLB-store-misses", 601_514_255, 395_673_680),
    PublishedCount::new("iTLB-load-misses", 2_974_157_461, 1_620_215_163),
    PublishedCount::new("numa_pages_migrated", 12_790_664, 14_897_064),
    PublishedCount::new("pgmigrate_success", MIGRATED[0], MIGRATED[1]),
    REMOTE_FLUSHES,
    PublishedCount::new("nr_tlb_remote_flush_received", 45_234_862, 2_820_156),
    PublishedCount::new("nr_tlb_local_flush_all", 216_584, 92_048),
    PublishedCount::new("nr_tlb_local_flush_one", 740_940, 741_401),
];

/// Remote flushes per migrated page before and after.
pub(super) const REMOTE_PER_PAGE: [f64; 2] = REMOTE_FLUSHES.per_page();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mail_has_one_remote_flush_for_9_pages_before_and_for_155_after() {
        let [before, after] = REMOTE_PER_PAGE;
        assert_eq!([before, after].map(|each| (each * 1e5).round()), [11_296.0, 643.0]);
        assert_eq!([before, after].map(|each| (1.0 / each).round()), [9.0, 155.0]);
        assert_eq!(((1.0 - ELAPSED[1] / ELAPSED[0]) * 1000.0).round(), 36.0);
    }
}
