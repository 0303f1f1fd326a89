//! Which process ends when no memory is left (`mm/oom_kill.c`).
//!
//! A kernel whose fault finds no memory asks for the badness of every process that may be killed
//! ([`Mm::oom_badness`]), lets [`select_bad_process`] choose, and ends that one.
//!
//! **INV-MM-OOM** The process chosen to end when no memory is left has the highest badness: its
//! pages, page tables and swap slots, moved by `oom_score_adj`. Of equal ones it is the newest.
//!
//! Neighbours: `table` counts the bytes of page tables, `counters` resident pages and swap slots.
//! All three include what other spaces share, so sharing page tables changes no badness.
//!
//! Not guaranteed: that the choice frees memory. No badness says how much of a resident set the
//! process has for itself, as in Linux.

use crate::mm::Mm;
use crate::space::Space;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::PAGE_SIZE;

/// The `oom_score_adj` of a process that is never killed.
pub const OOM_SCORE_ADJ_MIN: i32 = -1000;

impl<P: Platform> Mm<P> {
    /// Returns how much memory a process uses, moved by its `oom_score_adj` (`oom_badness`).
    ///
    /// In pages: resident ones, page tables and swap slots. The adjustment is a share of all memory
    /// and swap, in thousandths. `None` if the process is never killed. Takes no locks, and the
    /// same time for every space.
    pub fn oom_badness(&self, space: &Space<P>, oom_score_adj: i32) -> Option<i64> {
        if oom_score_adj == OOM_SCORE_ADJ_MIN {
            return None;
        }
        let rss = space.rss();
        let pages = rss.pages() + rss.swapped() + space.table().bytes() / PAGE_SIZE;
        let all = self.frames().managed() + self.swap_slots().0;
        let thousandth = (all / 1000) as i64;
        let adjustment = plant!(OomScoreIgnored; 0, i64::from(oom_score_adj));
        Some(pages as i64 + adjustment * thousandth)
    }
}

/// Returns the candidate with the highest badness, of equal ones the last (`oom_evaluate_task`).
///
/// The candidates come in the order in which their processes began.
pub fn select_bad_process<T>(oldest_first: impl IntoIterator<Item = (i64, T)>) -> Option<T> {
    let newer = |chosen: (i64, T), next: (i64, T)| {
        let replaces = plant!(OomOldestChosen; next.0 > chosen.0, next.0 >= chosen.0);
        if replaces { next } else { chosen }
    };
    oldest_first.into_iter().reduce(newer).map(|(_, candidate)| candidate)
}
