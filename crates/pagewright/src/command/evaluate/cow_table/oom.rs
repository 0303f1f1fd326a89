//! Which of many forks the OOM killer chooses, and what its end frees.
//!
//! Key type: [`OomChoice`]. The score is Linux's (`oom_badness`): resident pages, swap slots and
//! page tables. All of them include what is shared, so sharing page tables changes no score.
//!
//! Not guaranteed: that the choice frees memory. Linux's does not either: no score says how much of
//! a resident set a process has for itself.

use super::super::plot::size;
use super::super::{EvaluateError, Run, Table};
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
    ///
    /// # Errors
    /// [`EvaluateError::Memory`], [`EvaluateError::Machine`].
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

pub(super) fn table(all: &[OomChoice]) -> Table {
    let rows = all.iter().map(|choice| {
        let mut row = vec![choice.mode.name().to_owned()];
        row.extend(choice.scores.map(|score| score.to_string()));
        row.push(choice.chosen_name());
        row.extend(choice.freed.map(|frames| format!("{}", (frames * PAGE_SIZE) >> 10)));
        row.push(format!("{:.1}", choice.micros));
        row
    });
    let head = [
        "fork",
        "score of the parent",
        "of a child",
        "of the child that stored",
        "chosen",
        "kB that its end frees",
        "kB of the child that stored",
        "µs of all scores",
    ];
    let title = all.first().map_or_else(String::new, |choice| {
        format!(
            "The OOM killer's choice among a parent of {} and its {} children, of which one has stored to {}",
            size(choice.bytes),
            choice.forks,
            size(choice.stored)
        )
    });
    Table { title, head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
}

pub(super) fn runs(all: &[OomChoice]) -> impl Iterator<Item = Run> {
    all.iter().map(|choice| {
        let label = format!("OOM choice, {}", choice.mode.name());
        let input = format!("{} forks of {}", choice.forks, size(choice.bytes));
        let [parent, child, stored] = choice.scores;
        Run::of(label, input).with_counters([
            ("parent_pages", parent as u64),
            ("child_pages", child as u64),
            ("stored_pages", stored as u64),
            ("chosen", choice.chosen as u64),
            ("freed_pages", choice.freed[0]),
            ("stored_freed_pages", choice.freed[1]),
        ])
    })
}
