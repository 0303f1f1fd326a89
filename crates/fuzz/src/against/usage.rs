//! `/proc/PID/smaps` and the memory lines of `/proc/PID/status` of both sides in one form.
//!
//! Key type: [`Usage`]. Neighbours: `maps`, of whose [`Mapping`]s these are the figures.
//!
//! Where Linux keeps mappings apart that are one here, figures are added up first. Shares (`Pss`)
//! are rounded for each mapping, so that a sum of some may be as many kB less.
//!
//! Not compared: pages of files under private mappings, because a fault brings in as much around it
//! as its mapping has, which is more here where Linux keeps mappings apart; `LazyFree`, which Linux
//! counts when it gets to it; lines that the memory manager does not have; pages of the processes'
//! own two mappings; `VmPTE`, `VmHWM` and what contains them.

use super::maps::{self, Mapping};
use std::fmt;

/// Figures of a mapping that are compared, in kB.
///
/// The first [`SHARES`] are shares.
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
/// Compared of private memory without a file only: of a page of a file Linux remembers that
/// somebody used it who has it no longer.
const REFERENCED: usize = 9;
/// Those that say nothing of resident pages.
const SIZE: usize = 3;
/// Says nothing of pages of files.
const ANONYMOUS: usize = 10;
/// Lines of `status` that are compared.
const TOTALS: [&str; 8] = ["VmPeak", "VmSize", "VmLck", "VmPin", "VmData", "VmStk", "VmExe", "VmLib"];
/// Flags of mappings that are not compared: of huge pages; where the kernel has no soft-dirty bits;
/// and that there may be guards, which newer kernels remember until the mapping goes.
const IGNORED: [&str; 3] = ["nh", "sd", "gu"];

/// One mapping and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Figures {
    mapping: Mapping,
    flags: String,
    kilobytes: [u64; FIGURES.len()],
    /// How many mappings these are the sums of.
    of: u64,
}

/// What is compared beside mappings and sizes.
#[derive(Clone, Copy)]
pub(super) struct Looked {
    /// Resident pages.
    pub(super) resident: bool,
    /// Pages of files and shared memory among them.
    pub(super) files: bool,
    /// Which of them were used.
    pub(super) used: bool,
    /// Whether they are charged.
    pub(super) charged: bool,
}

/// What a process takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    mappings: Vec<Figures>,
    totals: Vec<(&'static str, u64)>,
}

/// The number of kB in a line, if it is of this name.
fn kilobytes(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
}

impl Usage {
    /// From both texts.
    ///
    /// Places that were chosen freely are as `same_base` has them.
    pub(super) fn parse(smaps: &str, status: &str, same_base: impl Fn(u64) -> u64) -> Self {
        let mut mappings: Vec<Figures> = Vec::new();
        let mut ours = false;
        for line in smaps.lines() {
            let is_header = line.split_once(' ').is_some_and(|(word, _)| word.contains('-'));
            if is_header {
                let mapping = maps::parse_line(line, &same_base);
                ours = mapping.is_some();
                let new = |mapping| Figures { mapping, flags: String::new(), kilobytes: [0; FIGURES.len()], of: 1 };
                mappings.extend(mapping.map(new));
            } else if let Some(last) = mappings.last_mut().filter(|_| ours) {
                last.take(line);
            }
        }
        let total = |name| status.lines().find_map(|line| kilobytes(line, name)).map(|figure| (name, figure));
        Self { mappings, totals: TOTALS.into_iter().filter_map(total).collect() }
    }

    /// Whether the two show the same, as far as it is to be looked at.
    pub(super) fn agrees(&self, other: &Self, looked: Looked) -> bool {
        let (one, other_joined) = (joined(&self.mappings, looked), joined(&other.mappings, looked));
        self.totals == other.totals
            && one.len() == other_joined.len()
            && one.iter().zip(&other_joined).all(|(one, other)| one.agrees(other, looked))
    }
}

impl Figures {
    fn take(&mut self, line: &str) {
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

    /// Counts all pages as clean:
    /// [`KnownDifference::DirtyAtOnce`](pagewright_syscall::KnownDifference::DirtyAtOnce).
    fn forget_dirt(&mut self) {
        let [_, share, _, _, _, shared_clean, shared_dirty, private_clean, private_dirty, ..] = &mut self.kilobytes;
        *share = 0;
        *shared_clean += std::mem::take(shared_dirty);
        *private_clean += std::mem::take(private_dirty);
    }

    fn agrees(&self, other: &Self, looked: Looked) -> bool {
        let slack = self.of.max(other.of) - 1;
        let unknown = self.mapping.is_private_file() || !looked.files && self.mapping.is_shared();
        let equal = |index: usize| {
            let (one, other) = (self.kilobytes[index], other.kilobytes[index]);
            one == other
                || index != SIZE && index != ANONYMOUS && unknown
                || index < SHARES && one.abs_diff(other) <= slack
                || index == REFERENCED && !(looked.used && self.mapping.is_private_memory())
                || !looked.resident && index != SIZE
        };
        self.mapping == other.mapping && self.flags == other.flags && (0..FIGURES.len()).all(equal)
    }
}

/// Neighbours that look like one as one.
fn joined(mappings: &[Figures], looked: Looked) -> Vec<Figures> {
    let mut joined: Vec<Figures> = Vec::with_capacity(mappings.len());
    for next in mappings {
        let mut next = next.clone();
        // What is had for a call may be copied, clean, because Linux has not got to counting it
        // yet.
        if next.mapping.is_shared() || !looked.used {
            next.forget_dirt();
        }
        if !looked.charged {
            next.flags = next.flags.replace(" ac", "");
        }
        match joined.last_mut() {
            Some(last) if last.mapping.goes_on_in(&next.mapping) && last.flags == next.flags => {
                last.mapping.extend(&next.mapping);
                last.of += 1;
                last.kilobytes.iter_mut().zip(next.kilobytes).for_each(|(sum, more)| *sum += more);
            }
            Some(_) | None => joined.push(next),
        }
    }
    joined
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kB:")?;
        self.totals.iter().try_for_each(|(name, figure)| write!(f, " {name} {figure}"))?;
        for figures in &self.mappings {
            write!(f, "\n      {} [{}]", figures.mapping, figures.flags)?;
            let shown = FIGURES.iter().zip(figures.kilobytes).filter(|(_, figure)| *figure > 0);
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

    fn usage(text: &str) -> Usage {
        Usage::parse(text, "VmSize:\t    8 kB\n", |address| address)
    }

    #[test]
    fn figures_of_neighbours_are_added_up_and_shares_are_rounded() {
        let one = smaps("c0000000-c0002000", 8, 5, "rd wr nh");
        let halves = |second| smaps("c0000000-c0001000", 4, 2, "rd wr") + &smaps("c0001000-c0002000", 4, 2, second);
        let two = usage(&halves("rd wr").replace("Size: 8", "Size: 4"));
        let (all, few) = (
            Looked { resident: true, files: true, used: true, charged: true },
            Looked { resident: false, files: true, used: false, charged: true },
        );
        assert!(usage(&one).agrees(&two, all) && two.agrees(&usage(&one), all));
        assert!(!usage(&one).agrees(&usage(&halves("rd wr ac").replace("Size: 8", "Size: 4")), all));
        let less = usage(&one.replace("Rss: 8", "Rss: 4"));
        assert!(!less.agrees(&two, all) && less.agrees(&two, few));
        assert!(!usage(&one).agrees(&Usage::parse(&one, "VmSize:\t   12 kB\n", |address| address), few));
    }
}
