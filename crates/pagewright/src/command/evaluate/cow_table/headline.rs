//! The figures of the tour: forks of a large parent, and those of a shell script.

use super::super::headline::{Headline, HeadlineFigure};
use super::super::{Context, EvaluateError, run_parallel};
use super::SERIES_PARENT;
use super::fork_time::ForkCounts;
use super::memory;
use super::parent::{ForkMode, failed};
use crate::command::captures;
use crate::show::{change, grouped};
use pagewright_arch::X86_64;
use pagewright_capture::ImageCounts;
use pagewright_capture::replay::{ReplayConfig, ReplayReport, replay};
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;

/// Replays a shell script, whose processes are small, with a word of `cow_page_tables`.
fn replay_shell(mode: ForkMode) -> Result<ReplayReport, EvaluateError> {
    let isa = IsaKind::X86_64;
    let mut machine = captures::open("shell").map_err(failed)?;
    let profile = Profile::named(Profile::default_for(isa)).map_err(failed)?;
    let mut config = ReplayConfig::new(MachineConfig::new(profile));
    let value = MmSetting::CowPageTables.parse(mode.word()).ok_or_else(|| failed(mode.word()))?;
    config.settings.push((MmSetting::CowPageTables, value));
    replay(isa, &mut machine, &config).map_err(failed)
}

/// Counts the forks of both.
pub(in super::super) fn headline(context: &Context<'_>) -> Result<Headline, EvaluateError> {
    context.show_step("forks of a parent of 1 GiB, and of a shell script");
    let tables = memory::measure::<X86_64>(SERIES_PARENT)?;
    let large = ForkCounts::of_parent(SERIES_PARENT)?;
    let small = run_parallel([ForkMode::Classic, ForkMode::Shared, ForkMode::Auto], replay_shell)?;
    // After the child's stores to its TID, its stack and its data.
    let own: Vec<u64> = tables.iter().filter_map(|of| of.moments.last()).map(|moment| moment.private >> 10).collect();
    let [copied, shared] = [&large[0], &large[1]];
    let accesses = [copied, shared].map(|counts| grouped(counts.entry_accesses));
    Ok(Headline {
        published: "2096 → 44 kB page tables of a child of 1 GB after three stores",
        ours: vec![HeadlineFigure::counted(format!(
            "{} → {} kB of them; {} → {} accesses of a fork to entries",
            grouped(own[0]),
            grouped(own[1]),
            accesses[0],
            accesses[1]
        ))],
        details: details(&large, &own, &small),
    })
}

/// The rows of both, with the reason why small processes gain nothing.
fn details(large: &[ForkCounts; 2], own: &[u64], small: &[ReplayReport]) -> Vec<String> {
    let cells = |figures: &[u64], width: usize| {
        figures.iter().map(|figure| format!("{:>width$}", grouped(*figure))).collect::<String>()
    };
    let row = |name: &str, large: &[u64], small: &[u64]| {
        format!("{name:<28}{:>20}    {:>27}", cells(large, 10), cells(small, 9)).trim_end().to_owned()
    };
    let counts = |name: &str| small.iter().map(|report| report.counters.get(name).unwrap_or(0)).collect::<Vec<_>>();
    let sums = |of: fn(&ReplayReport) -> u64| small.iter().map(of).collect::<Vec<_>>();
    let rss = sums(|report| ImageCounts::footprint(&report.images));
    let peak = sums(|report| report.nodes.iter().map(|node| node.peak_used_bytes >> 10).sum());
    let elapsed = sums(|report| report.modelled.elapsed_ns);
    let (broken, flushes) = (counts("pw_table_broken"), counts("pw_full_flushes"));
    let script = format!("a shell script, {} forks", counts("pw_fork")[0]);
    let of_shared = |figures: &[u64]| change(figures[0], figures[1]);
    vec![
        format!("{:<28}{:>20}    {script:>27}", "counted", "a parent of 1 GiB"),
        format!("{:<28}{:>10}{:>10}    {:>9}{:>9}{:>9}", "", "copied", "shared", "copied", "shared", "auto"),
        row("entries copied by forks", &large.each_ref().map(|of| of.entries_copied), &counts("pw_fork_entries")),
        row("kB of the child's own tables", own, &[]),
        row("kB in use at the peak", &[], &peak),
        format!(
            "Small tables are copied after the fork anyway: {} of them, {} more flushes, and",
            broken[1],
            flushes[1].saturating_sub(flushes[0])
        ),
        format!("modelled time is {}; auto copies them at once. The sum of peak RSS", of_shared(&elapsed)),
        format!("is {}, as a child's RSS counts all pages that its shared tables map.", of_shared(&rss)),
    ]
}
