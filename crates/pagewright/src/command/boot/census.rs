//! O4 for a machine that was booted: its claims and the words of its page tables, as the kernel told them at power-off, judged by the oracle.
//!
//! The lines are described in `kernel/linux/src/finish/claims.rs`. The oracle walks the words itself.
//!
//! Not guaranteed: a finding where the kernel was wrong in the same way about a count and about the words that it told.

use pagewright_arch::IsaKind;
use pagewright_model::{Census, SoftwareBits, Tally};
use pagewright_types::snapshot::{
    FolioRecord, HeldRecord, Holder, Live, LiveRecord, PageKind, PageRecord, PinnedRecord, Record, SpaceRecord,
    TableRecord,
};
use pagewright_types::{Level, Order, Pfn, PhysAddr, SpaceId};
use std::collections::BTreeMap;

/// What was judged, if all is well.
pub(super) struct Judged {
    pub(super) claims: usize,
    pub(super) words: usize,
    pub(super) tally: Tally,
}

/// Compares the claims in a report with the words in it.
///
/// # Errors
/// What is wrong, a line each: counts that the tables contradict, or lines that can't be read.
pub(super) fn judge(isa: IsaKind, report: &str) -> Result<Judged, Vec<String>> {
    let isa = match isa {
        IsaKind::X86_64 => pagewright_model::Isa::X86_64,
        IsaKind::Aarch64 => pagewright_model::Isa::Aarch64,
    };
    let mut census = Census::new(SoftwareBits::pagewright(isa));
    let (mut words, mut claims, mut wrong) = (BTreeMap::new(), 0, Vec::new());
    for line in report.lines() {
        if let Some(claim) = line.strip_prefix("claim ") {
            match record(claim) {
                Some(record) => census.add(record),
                None => wrong.push(format!("no claim: {line}")),
            }
            claims += 1;
        } else if let Some(table) = line.strip_prefix("words ")
            && read_words(table, &mut words).is_none()
        {
            wrong.push(format!("no words: {line}"));
        }
    }
    if claims == 0 {
        wrong.push("nothing was claimed".to_owned());
    }
    let mut tally = Tally::default();
    let read = |at: PhysAddr| words.get(&at.raw()).copied().unwrap_or(0);
    wrong.extend(census.compare(isa, &read, &mut tally).iter().map(ToString::to_string));
    if wrong.is_empty() { Ok(Judged { claims, words: words.len(), tally }) } else { Err(wrong) }
}

/// The words of one table, by their addresses.
fn read_words(line: &str, words: &mut BTreeMap<u64, u64>) -> Option<()> {
    let mut parts = line.split(' ');
    let table = Pfn::new(u32::from_str_radix(parts.next()?, 16).ok()?);
    for part in parts {
        let (index, word) = part.split_once(':')?;
        let at = table.base().add(u64::from_str_radix(index, 16).ok()? * 8);
        words.insert(at.raw(), u64::from_str_radix(word, 16).ok()?);
    }
    Some(())
}

fn record(line: &str) -> Option<Record> {
    let mut parts = line.split(' ');
    let what = parts.next()?;
    // The word that is no number stands at a place of its own.
    let name = match what {
        "live" => parts.next(),
        _ => None,
    };
    let rest: Vec<&str> = parts.collect();
    let number = |index: usize| u64::from_str_radix(rest.get(index)?, 16).ok();
    let pfn = || Some(Pfn::new(u32::try_from(number(0)?).ok()?));
    Some(match what {
        "folio" => Record::Folio(FolioRecord {
            pfn: pfn()?,
            order: Order::try_new(number(1)? as u8)?,
            kind: page_kind(rest.get(2)?)?,
            refs: number(3)?,
            entire_mapcount: number(4)?,
            mapcount: number(5)?,
            pages_mapped: number(6)?,
        }),
        "page" => Record::Page(PageRecord { pfn: pfn()?, mapcount: number(1)?, tail_refs: number(2)? }),
        "held" => Record::Held(HeldRecord { pfn: pfn()?, by: Holder::Cache, refs: number(1)? }),
        "pinned" => Record::Pinned(PinnedRecord { pfn: pfn()?, pins: number(1)?, bias: number(2)? }),
        "space" => Record::Space(SpaceRecord {
            id: SpaceId::new(number(0)? as u32),
            root: Pfn::new(number(1)? as u32),
            rss: [number(2)?, number(3)?, number(4)?],
            pss: number(5)?,
            table_bytes: number(6)?,
        }),
        "table" => Record::Table(TableRecord { pfn: pfn()?, level: Level::new(number(1)? as u8), shares: number(2)? }),
        "live" => {
            let known = [Live::TablePages, Live::AnonPages, Live::MappedPages, Live::Pins];
            let what = known.into_iter().find(|live| Some(live.name()) == name)?;
            Record::Live(LiveRecord { what, count: number(0)? })
        }
        _ => return None,
    })
}

/// The kind of a folio's pages, if it is any's.
fn page_kind(name: &str) -> Option<Option<PageKind>> {
    Some(match name {
        "none" => None,
        "anon" => Some(PageKind::Anon),
        "file" => Some(PageKind::File),
        "shmem" => Some(PageKind::Shmem),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A space with four tables and one anonymous page at address 0, which has one reference.
    const SOUND: &str = "claim folio 5 0 anon 1 0 1 1\nclaim page 5 1 0\nclaim space 1 1 1 0 0 1000000 4000\n\
                         claim table 1 3 1\nclaim table 2 2 1\nclaim table 3 1 1\nclaim table 4 0 1\n\
                         claim live nr_page_table_pages 4\nclaim live nr_anon_pages 1\nclaim live nr_mapped 0\n\
                         words 1 0:2027\nwords 2 0:3027\nwords 3 0:4027\nwords 4 0:8000000000005067\nexit 0\n";

    #[test]
    fn claims_that_the_tables_bear_out_are_counted() {
        let judged = judge(IsaKind::X86_64, SOUND).unwrap_or_else(|wrong| panic!("{wrong:?}"));
        assert_eq!((judged.claims, judged.words), (10, 4));
        assert_eq!(judged.tally.of(pagewright_model::Antecedent::FolioRefs), 1);
    }

    #[test]
    fn a_count_that_is_off_is_told() {
        for (right, wrong) in [("anon 1 0 1 1", "anon 2 0 1 1"), ("4000\n", "3000\n"), (" 0:4027", "")] {
            let report = SOUND.replacen(right, wrong, 1);
            assert!(judge(IsaKind::X86_64, &report).is_err(), "{right} -> {wrong}");
        }
        assert!(judge(IsaKind::X86_64, "exit 0\n").is_err(), "silence is no proof");
        assert!(judge(IsaKind::X86_64, "claim folio x\n").is_err());
    }
}
