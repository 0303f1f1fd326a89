//! `/proc/PID/maps` of both sides, in one form.
//!
//! Linux keeps some neighbouring VMAs separate that ours merges: those with different `anon_vma`s,
//! which its reverse map needs, and those that it split for a call that then failed. The reverse is
//! a bug, as long as nothing was forked or moved and no stack was mapped. So two maps agree if the
//! merged mappings are the same, and each VMA border of ours is also one of Linux.

use super::initial_state::{CODE, END};
use pagewright_arch::{Isa, X86_64};
use std::fmt;

/// A line of `/proc/PID/maps` without device and inode, which differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownMapping {
    start: u64,
    end: u64,
    rights: String,
    offset: u64,
    name: String,
}

impl fmt::Display for ShownMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x} {} {:08x} {}", self.start, self.end, self.rights, self.offset, self.name)
    }
}

impl ShownMapping {
    /// Whether `next` begins at the end of this mapping and continues it.
    pub(super) fn is_continued_by(&self, next: &Self) -> bool {
        // Mappings without a file have offset 0.
        let without_file = self.name.is_empty() || self.name.starts_with('[');
        let offset = if without_file { 0 } else { self.offset + (self.end - self.start) };
        (self.end, &self.rights, offset, &self.name) == (next.start, &next.rights, next.offset, &next.name)
    }

    /// Whether it is private and has no file.
    pub(super) fn is_private_memory(&self) -> bool {
        self.rights.ends_with('p') && !self.name.starts_with('/')
    }

    /// Whether it is private and maps a file.
    pub(super) fn is_private_file(&self) -> bool {
        self.rights.ends_with('p') && self.name.starts_with('/')
    }

    /// Whether it is shared.
    pub(super) fn is_shared(&self) -> bool {
        self.rights.ends_with('s')
    }

    /// Whether it contains an address.
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Extends it to the end of `next`.
    pub(super) fn extend(&mut self, next: &Self) {
        self.end = next.end;
    }
}

/// The mappings of a text, except those that are not of the program.
///
/// `same_base` translates the addresses that a call chose.
pub(super) fn parse(text: &str, same_base: impl Fn(u64) -> u64) -> Vec<ShownMapping> {
    text.lines().filter_map(|line| parse_line(line, &same_base)).collect()
}

/// The mapping of a line; `None` for the tracee's code and data and the kernel's own mappings.
pub(super) fn parse_line(line: &str, same_base: impl Fn(u64) -> u64) -> Option<ShownMapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    if (CODE..END).contains(&start) || start >= X86_64::USER_END.raw() {
        return None;
    }
    let (rights, offset) = (words.next()?.to_owned(), number(words.next()?)?);
    let name = words.skip(2).collect::<Vec<_>>().join(" ");
    Some(ShownMapping { start: same_base(start), end: same_base(end), rights, offset, name })
}

/// Merges neighbours of which one continues the other.
fn merged(mappings: &[ShownMapping]) -> Vec<ShownMapping> {
    let mut merged: Vec<ShownMapping> = Vec::with_capacity(mappings.len());
    for mapping in mappings {
        match merged.last_mut() {
            Some(last) if last.is_continued_by(mapping) => last.extend(mapping),
            Some(_) | None => merged.push(mapping.clone()),
        }
    }
    merged
}

/// Whether the merged mappings are the same, and each VMA border of ours is one of Linux.
///
/// With `any_borders` the borders do not matter.
pub(super) fn agree(linux: &[ShownMapping], ours: &[ShownMapping], any_borders: bool) -> bool {
    let is_border = |at: u64| linux.iter().any(|mapping| mapping.start == at);
    merged(linux) == merged(ours) && (any_borders || ours.iter().all(|mapping| is_border(mapping.start)))
}

/// Whether the VMA borders from `start` to `end`, both included, are the same.
pub(super) fn have_same_borders(linux: &[ShownMapping], ours: &[ShownMapping], (start, end): (u64, u64)) -> bool {
    let borders = |mappings: &[ShownMapping]| {
        let starts = mappings.iter().map(|mapping| mapping.start);
        starts.filter(|at| (start..=end).contains(at)).collect::<Vec<_>>()
    };
    borders(linux) == borders(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "c0000000-c0003000 rw-p 00001000 00:00 1 /file (deleted)\n";
    const SPLIT: &str = "c0000000-c0001000 rw-p 00001000 00:01 7    /file (deleted)\nc0001000-c0003000 rw-p 00002000 00:01 7 /file (deleted)\n";
    const OTHER: &str = "c0000000-c0001000 rw-p 00001000 00:01 7    /file (deleted)\nc0001000-c0003000 rw-p 00001000 00:01 7 /file (deleted)\n";

    fn parsed(text: &str) -> Vec<ShownMapping> {
        parse(text, |address| address)
    }

    #[test]
    fn linux_may_have_more_borders_and_ours_may_not() {
        assert!(agree(&parsed(SPLIT), &parsed(WHOLE), false));
        assert!(!agree(&parsed(WHOLE), &parsed(SPLIT), false));
        assert!(agree(&parsed(WHOLE), &parsed(SPLIT), true));
        assert!(!agree(&parsed(OTHER), &parsed(WHOLE), true), "other pages of the file");
        assert!(!have_same_borders(&parsed(SPLIT), &parsed(WHOLE), (0xc000_0000, 0xc000_1000)));
        assert!(have_same_borders(&parsed(SPLIT), &parsed(WHOLE), (0xc000_2000, 0xc000_3000)));
    }

    #[test]
    fn anonymous_neighbours_continue_each_other_at_offset_zero() {
        let split = "c0000000-c0001000 rw-p 00000000 00:00 0 \nc0001000-c0002000 rw-p 00000000 00:00 0 \n";
        let whole = "c0000000-c0002000 rw-p 00000000 00:00 0 \n";
        assert!(agree(&parsed(split), &parsed(whole), false));
    }
}
