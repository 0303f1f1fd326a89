//! The figures of the tour: waits per page on the largest machine of the series.

use super::super::headline::{Headline, HeadlineFigure};
use super::super::{Context, EvaluateError, Unit};
use super::grid::{Cell, KUNPENG, PHONE};
use super::published::PUBLISHED;
use crate::show::grouped;

/// Pages out the program of the series on its two machines.
pub(in super::super) fn headline(context: &Context<'_>) -> Result<Headline, EvaluateError> {
    context.show_step("paging out on arm64, a wait per page and a wait per batch");
    let phone = Cell::of_the_series(PHONE, 8)?;
    let server = Cell::of_the_series(KUNPENG, 128)?;
    let waits = |cell: &Cell| [cell.before.waits(), cell.after.waits()];
    let [before, after] = waits(&server);
    let pages = grouped(server.after.paged_out.pages);
    let tlbis = [&server.before, &server.after].map(|cost| grouped(cost.count("pw_tlbis")));
    let saved = |cell: &Cell| Unit::Percent.text(&cell.saving(&cell.after));
    let counted = format!("{before:.3} → {after:.3} waits for other CPUs per page, {pages} pages paged out");
    let row = |name: &str, cell: &Cell, published: f64| {
        let [before, after] = waits(cell).map(|waits| format!("{waits:.3}"));
        let (saved, published) = (saved(cell), format!("{:.1} %", published * 100.0));
        format!("{name:<24} {before:>6} {after:>7}   {saved:>21} {published:>10}")
    };
    let [of_phone, of_server] = &PUBLISHED;
    Ok(Headline {
        published: "13.46 → 11.77 s for a program that pages out, -12.5 % (Kunpeng 920)",
        ours: vec![HeadlineFigure::counted(counted)],
        details: vec![
            format!("{:<24} {:>14}   {:>21} {:>10}", "", "waits per page", "time saved, modelled", "published"),
            row("Snapdragon 888, 8 CPUs", &phone, of_phone.elapsed_saved()),
            row("Kunpeng 920, 128 CPUs", &server, of_server.elapsed_saved()),
            format!("TLBIs sent, counted: {} → {}; a batch saves the DSBs that wait for them.", tlbis[0], tlbis[1]),
            "[low–high]: with the assumed costs of DSB and TLBI at the ends of their bands.".to_owned(),
        ],
    })
}
