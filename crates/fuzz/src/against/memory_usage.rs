//! `/proc/PID/smaps` and the memory lines of `/proc/PID/status` of both sides, in one form.
//!
//! Where Linux keeps mappings separate that ours merges, their figures are added first.
//! Proportional shares (`Pss`) are rounded for each mapping, so a sum of n shares may differ by n -
//! 1 kB.
//!
//! Not compared:
//! - pages of private file mappings, because fault-around ends at VMA borders, and Linux has more;
//! - `LazyFree`, which Linux counts later;
//! - lines that the memory manager does not have;
//! - the tracee's code and data;
//! - `VmPTE`, `VmHWM` and sums that contain them.

use super::maps::{self, ShownMapping};
use std::fmt;

/// The compared figures of a mapping, in kB.
///
/// The first [`SHARES`] are proportional shares.
const FIGURES: [&str; 11] = [
    "Pss",
    "Pss_Dirty",
    "Locked",
    "Size",
    "Rss",
    "Shared_Clean",
    "Shared_Dirty",
    "Private_Clean",
    "Private_Dirty",
    "Referenced",
    "Anonymous",
];
const SHARES: usize = 3;
/// Index of `Referenced`, which is compared for private anonymous memory only.
///
/// Linux keeps the referenced bit of a file's page when a mapping that used the page goes.
const REFERENCED: usize = 9;
/// Index of `Size`, which does not depend on resident pages.
const SIZE: usize = 3;
/// Index of `Anonymous`, which does not depend on pages of files.
const ANONYMOUS: usize = 10;
/// The compared lines of `status`.
const TOTALS: [&str; 8] = ["VmPeak", "VmSize", "VmLck", "VmPin", "VmData", "VmStk", "VmExe", "VmLib"];
/// The `VmFlags` that are not compared: soft-dirty, may have guards.
const IGNORED: [&str; 2] = ["sd", "gu"];

/// A mapping with its figures, or merged mappings with the sums of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MappingFigures {
    mapping: ShownMapping,
    flags: String,
    kilobytes: [u64; FIGURES.len()],
    /// Number of mappings that were merged.
    merged: u64,
}

/// The figures that are compared, beside mappings and sizes.
#[derive(Clone, Copy)]
pub(super) struct ComparedFigures {
    /// Whether figures of resident pages are compared.
    pub(super) resident: bool,
    /// Whether they are compared for shared mappings too.
    pub(super) files: bool,
    /// Whether `Referenced` and dirty pages are compared.
    pub(super) used: bool,
    /// Whether the flag `ac` (`VM_ACCOUNT`) is compared.
    pub(super) charged: bool,
}

/// The memory usage of a process, as procfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    mappings: Vec<MappingFigures>,
    totals: Vec<(&'static str, u64)>,
}

/// The number of kB in a line of this name.
fn kilobytes(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
}

impl MemoryUsage {
    /// Parses `smaps` and `status`.
    ///
    /// `same_base` translates the addresses that a call chose.
    pub(super) fn parse(smaps: &str, status: &str, same_base: impl Fn(u64) -> u64) -> Self {
        let mut mappings: Vec<MappingFigures> = Vec::new();
        let mut ours = false;
        for line in smaps.lines() {
            let is_header = line.split_once(' ').is_some_and(|(word, _)| word.contains('-'));
            if is_header {
                let mapping = maps::parse_line(line, &same_base);
                ours = mapping.is_some();
                let new = |mapping| MappingFigures {
                    mapping,
                    flags: String::new(),
                    kilobytes: [0; FIGURES.len()],
                    merged: 1,
                };
                mappings.extend(mapping.map(new));
            } else if let Some(last) = mappings.last_mut().filter(|_| ours) {
                last.parse_line(line);
            }
        }
        let total = |name| status.lines().find_map(|line| kilobytes(line, name)).map(|figure| (name, figure));
        Self { mappings, totals: TOTALS.into_iter().filter_map(total).collect() }
    }

    /// Whether both have the same figures, of those that `figures` selects.
    pub(super) fn agrees(&self, other: &Self, figures: ComparedFigures) -> bool {
        let (one, other_merged) = (merged(&self.mappings, figures), merged(&other.mappings, figures));
        self.totals == other.totals
            && one.len() == other_merged.len()
            && one.iter().zip(&other_merged).all(|(one, other)| one.agrees(other, figures))
    }
}

impl MappingFigures {
    fn parse_line(&mut self, line: &str) {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let known = flags.split_whitespace().filter(|flag| !IGNORED.contains(flag));
            self.flags = known.collect::<Vec<_>>().join(" ");
        }
        for (name, figure) in FIGURES.iter().zip(&mut self.kilobytes) {
            if let Some(found) = kilobytes(line, name) {
                *figure = found;
            }
        }
    }

    /// Counts dirty pages as clean.
    ///
    /// See [`KnownDifference::DirtyAtOnce`](pagewright_syscall::KnownDifference::DirtyAtOnce).
    fn count_as_clean(&mut self) {
        let [_, share, _, _, _, shared_clean, shared_dirty, private_clean, private_dirty, ..] = &mut self.kilobytes;
        *share = 0;
        *shared_clean += std::mem::take(shared_dirty);
        *private_clean += std::mem::take(private_dirty);
    }

    fn agrees(&self, other: &Self, figures: ComparedFigures) -> bool {
        let slack = self.merged.max(other.merged) - 1;
        let unknown = self.mapping.is_private_file() || !figures.files && self.mapping.is_shared();
        let equal = |index: usize| {
            let (one, other) = (self.kilobytes[index], other.kilobytes[index]);
            one == other
                || index != SIZE && index != ANONYMOUS && unknown
                || index < SHARES && one.abs_diff(other) <= slack
                || index == REFERENCED && !(figures.used && self.mapping.is_private_memory())
                || !figures.resident && index != SIZE
        };
        self.mapping == other.mapping && self.flags == other.flags && (0..FIGURES.len()).all(equal)
    }
}

/// Merges neighbours of which one continues the other, and adds their figures.
fn merged(mappings: &[MappingFigures], figures: ComparedFigures) -> Vec<MappingFigures> {
    let mut merged: Vec<MappingFigures> = Vec::with_capacity(mappings.len());
    for next in mappings {
        let mut next = next.clone();
        // A page that a call faulted in may be clean on Linux, which counts it as dirty later.
        if next.mapping.is_shared() || !figures.used {
            next.count_as_clean();
        }
        if !figures.charged {
            next.flags = next.flags.replace(" ac", "");
        }
        match merged.last_mut() {
            Some(last) if last.mapping.is_continued_by(&next.mapping) && last.flags == next.flags => {
                last.mapping.extend(&next.mapping);
                last.merged += 1;
                last.kilobytes.iter_mut().zip(next.kilobytes).for_each(|(sum, more)| *sum += more);
            }
            Some(_) | None => merged.push(next),
        }
    }
    merged
}

impl fmt::Display for MemoryUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kB:")?;
        self.totals.iter().try_for_each(|(name, figure)| write!(f, " {name} {figure}"))?;
        for mapping in &self.mappings {
            write!(f, "\n      {} [{}]", mapping.mapping, mapping.flags)?;
            let shown = FIGURES.iter().zip(mapping.kilobytes).filter(|(_, figure)| *figure > 0);
            shown.into_iter().try_for_each(|(name, figure)| write!(f, " {name} {figure}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smaps(range: &str, rss: u64, pss: u64, flags: &str) -> String {
        format!("{range} rw-p 00000000 00:00 0 \nSize: 8 kB\nRss: {rss} kB\nPss: {pss} kB\nVmFlags: {flags} \n")
    }

    fn usage(text: &str) -> MemoryUsage {
        MemoryUsage::parse(text, "VmSize:\t    8 kB\n", |address| address)
    }

    #[test]
    fn merged_mappings_have_the_sums_of_the_figures_up_to_rounding() {
        let one = smaps("c0000000-c0002000", 8, 5, "rd wr sd");
        let halves = |second| smaps("c0000000-c0001000", 4, 2, "rd wr") + &smaps("c0001000-c0002000", 4, 2, second);
        let two = usage(&halves("rd wr").replace("Size: 8", "Size: 4"));
        let (all, few) = (
            ComparedFigures { resident: true, files: true, used: true, charged: true },
            ComparedFigures { resident: false, files: true, used: false, charged: true },
        );
        assert!(usage(&one).agrees(&two, all) && two.agrees(&usage(&one), all));
        assert!(!usage(&one).agrees(&usage(&halves("rd wr ac").replace("Size: 8", "Size: 4")), all));
        let less = usage(&one.replace("Rss: 8", "Rss: 4"));
        assert!(!less.agrees(&two, all) && less.agrees(&two, few));
        assert!(!usage(&one).agrees(&MemoryUsage::parse(&one, "VmSize:\t   12 kB\n", |address| address), few));
    }
}
