//! What was published, and what we promise, beside what was found.

use super::super::{Claim, Kind, OWN_PROMISE, Stats, Verdict};
use super::Found;
use super::grid::{BATCH, Cell, FEW, KUNPENG, PHONE, X86, percent};
use super::pressure::Squeezed;

const SERIES: &str = "20220822082120.8347-5-yangyicong@huawei.com";
const REVIEW: &str = "the same thread";

/// A machine of the series, with what its mail prints.
struct Printed {
    profile: &'static str,
    /// As many as the mail says, or the most that we run.
    cpus: u16,
    /// Of the time before, that in `ptep_clear_flush`.
    share: f64,
    share_text: &'static str,
    /// Of the time before, what was saved.
    saved: f64,
    saved_text: &'static str,
    reason: &'static str,
}

const PRINTED: [Printed; 2] = [
    Printed {
        profile: PHONE,
        cpus: 8,
        share: 0.0536,
        share_text: "5.36 % (Snapdragon 888, 8 cores)",
        saved: 1.0 - 13.80 / 14.69,
        saved_text: "14.69 → 13.80 s, around 5 % (Snapdragon 888, 8 cores)",
        reason: "",
    },
    Printed {
        profile: KUNPENG,
        cpus: 128,
        share: 0.1699,
        share_text: "16.99 % (Kunpeng 920)",
        saved: 1.0 - 11.771 / 13.460,
        saved_text: "13.460 → 11.771 s, around 12.5 % (Kunpeng 920)",
        reason: "the mail does not say how many CPUs there were, and what each adds to a barrier (dsb_wait_each) is assumed",
    },
];

pub(super) fn claims(found: &Found) -> Vec<Claim> {
    let mut claims = published(found);
    claims.extend(promised(found));
    claims
}

fn claim(what: &str, published: &str, source: &str, ours: String, kind: Kind, verdict: Verdict, reason: &str) -> Claim {
    let (what, published, source, reason) =
        (what.to_owned(), published.to_owned(), source.to_owned(), reason.to_owned());
    Claim { what, published, source, ours, kind, verdict, reason }
}

fn promise(what: &str, published: &str, ours: String, kind: Kind, kept: bool) -> Claim {
    let verdict = if kept { Verdict::Reproduced } else { Verdict::Differs };
    claim(what, published, OWN_PROMISE, ours, kind, verdict, "")
}

/// Whether the band has the published figure.
fn within(band: &Stats, published: f64) -> Verdict {
    if (band.p10..=band.p90).contains(&published) { Verdict::Reproduced } else { Verdict::Differs }
}

fn published(found: &Found) -> Vec<Claim> {
    let mut claims = Vec::new();
    for printed in PRINTED {
        let Printed { profile, cpus, share, share_text, saved, saved_text, reason } = printed;
        let Some(cell) = found.grid.of_the_series(profile, cpus) else { continue };
        let fewer = found.grid.of_the_series(profile, 32).filter(|_| !reason.is_empty());
        let ours = |figure: &dyn Fn(&Cell) -> Stats| {
            let fewer = fewer.map_or_else(String::new, |cell| format!("; {} at 32", percent(&figure(cell))));
            format!("{} at {cpus} CPUs{fewer}", percent(&figure(cell)))
        };
        let waiting = |cell: &Cell| cell.share();
        let what = format!("Time in ptep_clear_flush before, and ours spent waiting, {profile}");
        let verdict = within(&cell.share(), share);
        claims.push(claim(&what, share_text, SERIES, ours(&waiting), Kind::Modelled, verdict, reason));
        let saving = |cell: &Cell| cell.saving(&cell.after);
        // The wait is 95 % of ptep_clear_flush, by the same mail.
        let by_share = share * 0.95 * (1.0 - cell.after.waits() / cell.before.waits()) * 100.0;
        let ours = format!("less by {}; by {by_share:.1} % if waiting took before what is printed", ours(&saving));
        let verdict = within(&cell.saving(&cell.after), saved);
        let what = format!("Elapsed time of the program, {profile}");
        claims.push(claim(&what, saved_text, SERIES, ours, Kind::Modelled, verdict, reason));
    }
    claims.extend(few_cpus(found));
    claims
}

/// What the reviewers expected of small systems.
fn few_cpus(found: &Found) -> Option<Claim> {
    let forced = |cpus| {
        let cell = found.grid.of_the_series(PHONE, cpus)?;
        cell.forced.as_ref().map(|side| cell.saving(side))
    };
    let (one, few, eight) = (forced(1)?, forced(FEW)?, found.grid.of_the_series(PHONE, 8)?);
    let ours = format!(
        "saved {} at 1 CPU and {} at {FEW}, {} at 8",
        percent(&one),
        percent(&few),
        percent(&eight.saving(&eight.after))
    );
    let published = "less than 1 % for flushes even with four cores (Cortex-A55), an obvious cost with eight";
    let verdict = if few.median < 0.01 { Verdict::Reproduced } else { Verdict::Differs };
    let reason = "of a barrier's price 200 ns are assumed to be there without any other CPU (dsb_wait), which is most of what it is with eight";
    claim("Putting off at few CPUs, snapdragon888", published, REVIEW, ours, Kind::Modelled, verdict, reason).into()
}

/// Of the cells with anybody to wait for, that in which `figure` is greatest.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, figure: impl Fn(&Cell) -> f64) -> Option<(f64, &'a Cell)> {
    cells.map(|cell| (figure(cell), cell)).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn promised(found: &Found) -> Vec<Claim> {
    let limit = 1.0 / BATCH as f64;
    let several = || found.grid.cells.iter().filter(|cell| cell.place.cpus > 1);
    let mut claims = Vec::new();
    let of = [
        ("Waits for each page, one process", 1, false),
        ("Waits for each page, 100 sharers", 100, false),
        ("Waits for each page, one process, all entries dirty", 1, true),
        ("Waits for each page, 100 sharers, all entries dirty", 100, true),
    ];
    for (what, sharers, stores) in of {
        let cells = || several().filter(|cell| cell.place.sharers == sharers && cell.place.stores == stores);
        let Some((after, at)) = worst(cells(), |cell| cell.after.waits()) else { continue };
        let before = worst(cells(), |cell| cell.before.waits()).map_or(0.0, |(before, _)| before);
        let ours = format!("{before:.3} → {after:.4} at worst ({})", at.place.text());
        claims.push(promise(what, "1.0 → at most 1/32 (0.0313)", ours, Kind::Counted, after <= limit));
    }
    let reached = several().filter_map(|cell| Some((cell.reached()?, cell))).min_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((reached, at)) = reached {
        let ours = format!("{:.1} % at worst ({}), over all of the band", reached * 100.0, at.place.text());
        let what = "Time saved, as part of the share spent waiting before × (1 − 1/32)";
        claims.push(promise(what, "at least 90 %", ours, Kind::Modelled, reached >= 0.9));
    }
    claims.extend(sharers(found));
    claims.extend(pressure(found));
    claims
}

/// N sharers cost N edits and one wait.
fn sharers(found: &Found) -> Option<Claim> {
    let of = |sharers| {
        found.grid.cells.iter().find(|cell| {
            cell.place.profile == X86 && cell.place.cpus == 128 && cell.place.sharers == sharers && !cell.place.stores
        })
    };
    let (ten, hundred) = (of(10)?, of(100)?);
    let ours = format!(
        "{:.1} entries and {:.4} waits with 10 sharers, {:.1} and {:.4} with 100 (icelake, 128 CPUs)",
        ten.after.entries(),
        ten.after.waits(),
        hundred.after.entries(),
        hundred.after.waits()
    );
    let kept = hundred.after.entries() <= 100.0 && hundred.after.waits() <= ten.after.waits() * 1.01;
    let what = "Sharers of a page";
    Some(promise(what, "N sharers cost N edits of entries, and one wait", ours, Kind::Counted, kept))
}

fn pressure(found: &Found) -> Option<Claim> {
    let waits = |squeezed: &Squeezed| squeezed.waits(1);
    let worst = found.pressure.0.iter().max_by(|a, b| waits(a).total_cmp(&waits(b)))?;
    let ours = format!(
        "{:.3} → {:.4} at worst ({} on {}), batches of {:.1} entries; beside {} other waits of the run, for copies, forks and what it unmaps",
        worst.waits(0),
        worst.waits(1),
        worst.name,
        worst.profile,
        worst.entries_a_batch(),
        worst.other_waits(1)
    );
    let kept = worst.waits(1) <= 1.0 / BATCH as f64;
    let what = "Waits of reclaim for each page reclaimed, captures in half their memory";
    Some(promise(what, "1.0 → at most 1/32 (0.0313)", ours, Kind::Counted, kept))
}
