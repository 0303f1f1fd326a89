//! `/proc/PID/maps` of both sides in one form.
//!
//! Linux keeps neighbours apart that ours are one: those whose pages have been made apart, because
//! its reverse map is by mapping (`anon_vma`); those that it cut for a call that then failed; and
//! those that differ in flags which mean nothing here (`VM_NOHUGEPAGE`, from `MAP_STACK`). The
//! other way round is a mistake, as long as nothing was forked or moved and no stack was mapped. So
//! the two agree when they show the same bytes, and until then each border of ours is one of
//! Linux's.

use super::lack::{CODE, END};
use pagewright_arch::{Isa, X86_64};
use std::fmt;

/// One mapping, as a line shows it.
///
/// Devices and inodes are left out: they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    start: u64,
    end: u64,
    rights: String,
    offset: u64,
    name: String,
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x} {} {:08x} {}", self.start, self.end, self.rights, self.offset, self.name)
    }
}

impl Mapping {
    /// Whether `next` shows what this one would if it were longer.
    pub(super) fn goes_on_in(&self, next: &Self) -> bool {
        // Without a file, all are shown at offset 0.
        let without_file = self.name.is_empty() || self.name.starts_with('[');
        let offset = if without_file { 0 } else { self.offset + (self.end - self.start) };
        (self.end, &self.rights, offset, &self.name) == (next.start, &next.rights, next.offset, &next.name)
    }

    /// Whether it has no file and is nobody else's.
    pub(super) fn is_private_memory(&self) -> bool {
        self.rights.ends_with('p') && !self.name.starts_with('/')
    }

    /// Whether it has a file, and copies of its pages.
    pub(super) fn is_private_file(&self) -> bool {
        self.rights.ends_with('p') && self.name.starts_with('/')
    }

    /// Whether it shows the file itself.
    pub(super) fn is_shared(&self) -> bool {
        self.rights.ends_with('s')
    }

    /// Whether it has this page.
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// It goes on to where `next` ends.
    pub(super) fn extend(&mut self, next: &Self) {
        self.end = next.end;
    }
}

/// The mappings that a text shows, but those that belong to nobody's program.
///
/// Places that were chosen freely are as `same_base` has them.
pub(super) fn parse(text: &str, same_base: impl Fn(u64) -> u64) -> Vec<Mapping> {
    text.lines().filter_map(|line| parse_line(line, &same_base)).collect()
}

/// The mapping of one line, unless it belongs to nobody's program.
pub(super) fn parse_line(line: &str, same_base: impl Fn(u64) -> u64) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    if (CODE..END).contains(&start) || start >= X86_64::USER_END.raw() {
        return None;
    }
    let (rights, offset) = (words.next()?.to_owned(), number(words.next()?)?);
    let name = words.skip(2).collect::<Vec<_>>().join(" ");
    Some(Mapping { start: same_base(start), end: same_base(end), rights, offset, name })
}

/// Neighbours that look like one as one.
fn joined(mappings: &[Mapping]) -> Vec<Mapping> {
    let mut joined: Vec<Mapping> = Vec::with_capacity(mappings.len());
    for mapping in mappings {
        match joined.last_mut() {
            Some(last) if last.goes_on_in(mapping) => last.extend(mapping),
            Some(_) | None => joined.push(mapping.clone()),
        }
    }
    joined
}

/// Whether the two show the same, and ours are cut only where Linux's are, unless `loosely`.
pub(super) fn agree(linux: &[Mapping], ours: &[Mapping], loosely: bool) -> bool {
    let is_cut = |at: u64| linux.iter().any(|mapping| mapping.start == at);
    joined(linux) == joined(ours) && (loosely || ours.iter().all(|mapping| is_cut(mapping.start)))
}

/// Whether the two are cut at the same places from `start` to `end`, both included.
pub(super) fn are_cut_alike(linux: &[Mapping], ours: &[Mapping], (start, end): (u64, u64)) -> bool {
    let cuts = |mappings: &[Mapping]| {
        let starts = mappings.iter().map(|mapping| mapping.start);
        starts.filter(|at| (start..=end).contains(at)).collect::<Vec<_>>()
    };
    cuts(linux) == cuts(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "c0000000-c0003000 rw-p 00001000 00:00 1 /file (deleted)\n";
    const CUT: &str = "c0000000-c0001000 rw-p 00001000 00:01 7    /file (deleted)\nc0001000-c0003000 rw-p 00002000 00:01 7 /file (deleted)\n";
    const OTHER: &str = "c0000000-c0001000 rw-p 00001000 00:01 7    /file (deleted)\nc0001000-c0003000 rw-p 00001000 00:01 7 /file (deleted)\n";

    fn parsed(text: &str) -> Vec<Mapping> {
        parse(text, |address| address)
    }

    #[test]
    fn linux_may_be_cut_where_ours_is_not_and_not_the_other_way_round() {
        assert!(agree(&parsed(CUT), &parsed(WHOLE), false));
        assert!(!agree(&parsed(WHOLE), &parsed(CUT), false));
        assert!(agree(&parsed(WHOLE), &parsed(CUT), true));
        assert!(!agree(&parsed(OTHER), &parsed(WHOLE), true), "another part of the file");
        assert!(!are_cut_alike(&parsed(CUT), &parsed(WHOLE), (0xc000_0000, 0xc000_1000)));
        assert!(are_cut_alike(&parsed(CUT), &parsed(WHOLE), (0xc000_2000, 0xc000_3000)));
    }

    #[test]
    fn anonymous_memory_goes_on_whatever_its_offset() {
        let cut = "c0000000-c0001000 rw-p 00000000 00:00 0 \nc0001000-c0002000 rw-p 00000000 00:00 0 \n";
        let whole = "c0000000-c0002000 rw-p 00000000 00:00 0 \n";
        assert!(agree(&parsed(cut), &parsed(whole), false));
    }
}
