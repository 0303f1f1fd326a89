//! Which of many forks the OOM killer chooses, and what its end frees.
//!
//! Key type: [`OomChoice`]. The score is Linux's (`oom_badness`): resident pages, swap slots and
//! page tables. All of them include what is shared, so sharing page tables changes no score.
//!
//! Not guaranteed: that the choice frees memory. Linux's does not either: no score says how much of
//! a resident set a process has for itself.

use super::super::plot::size;
use super::super::{EvaluateError, Figures, Grid};
use super::parent::{ForkMode, Parent, SpanClock, failed, frames_for};
use pagewright_arch::X86_64;
use pagewright_host::TableMachine;
use pagewright_mm::oom::select_bad_process;
use pagewright_types::{FrameRange, Level, PAGE_SIZE, Pfn, VirtAddr};

/// The choice among the forks of one parent.
pub(super) struct OomChoice {
    pub(super) mode: ForkMode,
    bytes: u64,
    forks: usize,
    /// Bytes to which one child has stored.
    stored: u64,
    /// Scores in pages: of the parent, of the first child, and of the child that stored.
    pub(super) scores: [i64; 3],
    /// The place of the chosen one, 0 for the parent.
    pub(super) chosen: usize,
    /// Frames that its end frees, and those that the end of the child that stored frees then.
    pub(super) freed: [u64; 2],
    /// Microseconds of all scores.
    micros: f64,
}

impl OomChoice {
    /// Forks a parent of `bytes` so often; the child in the middle stores to `stored` bytes.
    pub(super) fn measure(mode: ForkMode, bytes: u64, forks: usize, stored: u64) -> Result<Self, EvaluateError> {
        let tables = (bytes / Level::PMD.span()) as u32 + Level::MOST as u32;
        let frames = frames_for(bytes + stored) + forks as u32 * tables;
        let parent = Parent::<TableMachine<X86_64>>::on(
            TableMachine::try_new(frames)?,
            FrameRange::new(Pfn::new(0), Pfn::new(frames)),
        )?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        parent.set(mode)?;
        let children = (0..forks).map(|_| parent.mm.fork(&parent.space).map_err(failed));
        let children = children.collect::<Result<Vec<_>, _>>()?;
        let all: Vec<_> = [parent.space.clone()].into_iter().chain(children.iter().cloned()).collect();
        let storing = forks.div_ceil(2);
        range.iter().take((stored / PAGE_SIZE) as usize).try_for_each(|va| parent.store(&all[storing], va))?;
        let clock = SpanClock::Monotonic.start();
        let scores: Vec<i64> = all.iter().filter_map(|space| parent.mm.oom_badness(space, 0)).collect();
        let micros = clock.elapsed().as_secs_f64() * 1e6;
        let chosen = select_bad_process(scores.iter().copied().zip(0..)).unwrap_or(0);
        // A space that ends is run by no CPU.
        let other = parent.mm.new_space().map_err(failed)?;
        parent.mm.tlb().switch_to(other.table().context());
        let free = || parent.mm.tlb().frames().available();
        let end = |at: usize| {
            let before = free();
            parent.mm.end_space(&all[at]);
            free() - before
        };
        let freed = [end(chosen), if chosen == storing { 0 } else { end(storing) }];
        let scores = [scores[0], scores[1], scores[storing]];
        Ok(Self { mode, bytes, forks, stored, scores, chosen, freed, micros })
    }

    fn chosen_name(&self) -> String {
        match self.chosen {
            0 => "the parent".to_owned(),
            child => format!("child {child}"),
        }
    }
}

pub(super) fn figures(all: &[OomChoice]) -> Figures {
    let input = |choice: &OomChoice| format!("{} forks of {}", choice.forks, size(choice.bytes));
    let title = all.first().map_or_else(String::new, |choice| {
        format!(
            "The OOM killer's choice among a parent of {} and its {} children, of which one has stored to {}",
            size(choice.bytes),
            choice.forks,
            size(choice.stored)
        )
    });
    Grid::of(title, all)
        .text("fork", |choice| choice.mode.name())
        .counted("score of the parent", "parent_pages", |choice| choice.scores[0] as u64)
        .counted("of a child", "child_pages", |choice| choice.scores[1] as u64)
        .counted("of the child that stored", "stored_pages", |choice| choice.scores[2] as u64)
        .text("chosen", |choice| choice.chosen_name())
        .only_json("chosen", |choice| choice.chosen as u64)
        .text("kB that its end frees", |choice| (choice.freed[0] * PAGE_SIZE) >> 10)
        .text("kB of the child that stored", |choice| (choice.freed[1] * PAGE_SIZE) >> 10)
        .only_json("freed_pages", |choice| choice.freed[0])
        .only_json("stored_freed_pages", |choice| choice.freed[1])
        .text("µs of all scores", |choice| format!("{:.1}", choice.micros))
        .figures(|choice| [format!("OOM choice, {}", choice.mode.name()), input(choice)])
}
