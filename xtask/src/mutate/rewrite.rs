//! Rewrites a file so that one build contains many mutants, each behind a switch.
//!
//! An expression becomes `(if is(7) { changed } else { original })`, a statement
//! `if !is(7) { original }`, and a function that returns early begins with `if is(7) { return; }`.
//! Changes nest: the original of an outer change contains the switches of the inner ones, and its
//! changed text contains none, because at most one mutant is active.

use super::mutant::{Edit, EditForm, Mutant};
use std::ops::Range;

/// The function that tells whether a mutant is active.
const SWITCH: &str = "::pagewright_plant::mutant::is";

/// A rewritten file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// The text.
    pub(crate) text: String,
    /// Where mutants are in the text.
    regions: Vec<Region>,
}

/// Bytes of a rewritten file that belong to a mutant.
#[derive(Debug, PartialEq, Eq)]
struct Region {
    range: Range<usize>,
    /// Whether the bytes are the mutant's changed text, and not the switch around it.
    is_changed_text: bool,
    /// The number of the mutant.
    number: usize,
}

impl Rewritten {
    /// The mutants to which a compiler error at these bytes belongs.
    ///
    /// It is the one whose changed text contains the bytes, or else those of the innermost switch.
    pub(crate) fn mutants_at(&self, bytes: &Range<usize>) -> Vec<usize> {
        let around = |region: &&Region| region.range.start <= bytes.start && bytes.end <= region.range.end;
        let narrowest =
            self.regions.iter().filter(around).min_by_key(|region| (!region.is_changed_text, region.range.len()));
        let Some(narrowest) = narrowest else { return Vec::new() };
        let same =
            |region: &&Region| region.range == narrowest.range && region.is_changed_text == narrowest.is_changed_text;
        self.regions.iter().filter(same).map(|region| region.number).collect()
    }

    /// The mutants whose switch is the last one that begins before these bytes, or else the first.
    ///
    /// An error that no mutant contains, such as the use of a moved value, comes after its cause.
    pub(crate) fn mutants_before(&self, start: usize) -> Vec<usize> {
        let switches = || self.regions.iter().filter(|region| !region.is_changed_text).map(|region| region.range.start);
        let Some(nearest) = switches().filter(|at| *at <= start).max().or_else(|| switches().min()) else {
            return Vec::new();
        };
        let same = |region: &&Region| !region.is_changed_text && region.range.start == nearest;
        self.regions.iter().filter(same).map(|region| region.number).collect()
    }
}

/// One place with the changes of all its mutants.
struct Site<'a> {
    range: Range<usize>,
    form: EditForm,
    changes: Vec<(usize, &'a str)>,
}

/// Rewrites `source` with the mutants of its file, each with its number.
pub(crate) fn rewrite<'a>(source: &str, mutants: impl Iterator<Item = (usize, &'a Mutant)>) -> Rewritten {
    let mut edits: Vec<(usize, &Edit)> =
        mutants.flat_map(|(number, mutant)| mutant.edits.iter().map(move |edit| (number, edit))).collect();
    // Outer sites before the ones inside them; an insertion before what begins at the same byte.
    edits.sort_by_key(|(number, edit)| {
        let length = edit.range.len();
        (edit.range.start, length != 0, usize::MAX - length, edit.form, *number)
    });
    let mut sites: Vec<Site<'_>> = Vec::new();
    for (number, edit) in edits {
        match sites.last_mut() {
            Some(site) if site.range == edit.range && site.form == edit.form => site.changes.push((number, &edit.text)),
            _ => sites.push(Site { range: edit.range.clone(), form: edit.form, changes: vec![(number, &edit.text)] }),
        }
    }
    let mut writer = Writer { source, rewritten: Rewritten { text: String::new(), regions: Vec::new() } };
    writer.write(0..source.len(), &sites);
    writer.rewritten
}

struct Writer<'a> {
    source: &'a str,
    rewritten: Rewritten,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.rewritten.text.push_str(text);
    }

    /// Writes the bytes of `range` with `sites`, all of which are in it.
    fn write(&mut self, range: Range<usize>, sites: &[Site<'_>]) {
        let (mut at, mut rest) = (range.start, sites);
        while let Some((site, after)) = rest.split_first() {
            // A change of the same bytes in another form is inside this one, too.
            let inside = after.iter().take_while(|other| other.range.start < site.range.end).count();
            let (inner, following) = after.split_at(inside);
            self.push(&self.source[at..site.range.start]);
            self.site(site, inner);
            (at, rest) = (site.range.end, following);
        }
        self.push(&self.source[at..range.end]);
    }

    fn site(&mut self, site: &Site<'_>, inner: &[Site<'_>]) {
        let start = self.rewritten.text.len();
        match site.form {
            EditForm::Entry => self.changed(site, "if", " "),
            EditForm::Removal => {
                let none_active: Vec<String> =
                    site.changes.iter().map(|(number, _)| format!("!{SWITCH}({number})")).collect();
                self.push(&format!("if {} {{ ", none_active.join(" && ")));
                self.write(site.range.clone(), inner);
                self.push(" }");
            }
            EditForm::Arm | EditForm::Expression => {
                // An arm with a block needs no comma after it, so it stays a block.
                let (open, close) = if site.form == EditForm::Arm { ("{ if", " } }") } else { ("(if", " })") };
                self.changed(site, open, " else ");
                self.push("{ ");
                self.write(site.range.clone(), inner);
                self.push(close);
            }
        }
        let range = start..self.rewritten.text.len();
        for (number, _) in &site.changes {
            self.rewritten.regions.push(Region { range: range.clone(), is_changed_text: false, number: *number });
        }
    }

    /// Writes a block for each change, with `open` before the first and `between` after each.
    fn changed(&mut self, site: &Site<'_>, open: &str, between: &str) {
        for (index, (number, text)) in site.changes.iter().enumerate() {
            self.push(if index == 0 { open } else { "if" });
            self.push(&format!(" {SWITCH}({number}) {{ "));
            let start = self.rewritten.text.len();
            self.push(text);
            let range = start..self.rewritten.text.len();
            self.rewritten.regions.push(Region { range, is_changed_text: true, number: *number });
            self.push(" }");
            self.push(between);
        }
    }
}
