//! `cargo xtask tidy`: the house rules that a compiler does not check, as a check.
//!
//! One rule per file: [`length`], [`opening`], [`leftovers`], [`invariants`], [`counters`],
//! [`linux_calls`], [`names`], [`prose`]; what is excused, and why, is in [`exceptions`].
//!
//! Not guaranteed: that a comment is true or a name good.

mod counters;
mod exceptions;
mod invariants;
mod leftovers;
mod length;
mod linux_calls;
mod names;
mod opening;
mod prose;

use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::{self, File};
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// What is done with documents that are made from code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generated {
    /// They are compared with what is there.
    Compare,
    /// They are written.
    Write,
}

impl Generated {
    /// Compares the document at `page`, from the root of the repository, with what it should be, or
    /// writes it.
    fn document(self, workspace: &Workspace, page: &'static str, text: &str) -> Result<Option<Finding>, Error> {
        let path = workspace.workspace_root.join(page);
        match self {
            Self::Write => fs::write(&path, text).map_err(Error::file(&path)).map(|()| None),
            Self::Compare => {
                let there = fs::read_to_string(&path).map_err(Error::file(&path))?;
                Ok((there != text).then(|| Finding { path: page.into(), line: 0, breach: Breach::OutOfDate }))
            }
        }
    }
}

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where, from the root of the repository.
    pub(crate) path: PathBuf,
    /// On which line, from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// What.
    pub(crate) breach: Breach,
}

/// What a rule says was broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A file too long, tests aside.
    LongFile {
        /// Its lines.
        lines: usize,
        /// Lines allowed.
        limit: usize,
    },
    /// A function too long.
    LongFunction {
        /// Its name.
        name: String,
        /// Its lines.
        lines: usize,
        /// Lines allowed.
        limit: usize,
    },
    /// A line of a comment or a document that is too wide.
    WideLine {
        /// Its columns.
        columns: usize,
        /// Columns allowed.
        limit: usize,
    },
    /// An exception that excuses nothing any more.
    StaleException {
        /// The reason it gave.
        reason: &'static str,
    },
    /// A doc comment whose first line is not one sentence.
    FirstLine,
    /// A wording that makes a reader stumble.
    Wording {
        /// What was written.
        wording: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// A public type whose name another public type has.
    SharedName {
        /// The name.
        name: String,
    },
    /// A public type whose name says nothing without its module.
    BareName {
        /// The name.
        name: String,
    },
    /// A module that does not open with `//!`.
    NoOpening,
    /// A word that marks unfinished work.
    Leftover {
        /// The word.
        word: &'static str,
    },
    /// An invariant cited but not listed.
    UnknownInvariant {
        /// Its id.
        id: String,
    },
    /// An invariant listed twice.
    RepeatedInvariant {
        /// Its id.
        id: String,
    },
    /// An invariant that no code outside tests cites.
    NotInCode {
        /// Its id.
        id: String,
    },
    /// An invariant that no test cites.
    NotInTests {
        /// Its id.
        id: String,
    },
    /// An invariant whose entry names a test that does not cite it.
    NotTestedThere {
        /// Its id.
        id: String,
        /// What the entry names.
        test: String,
    },
    /// A document that differs from what the code generates.
    OutOfDate,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongFile { lines, limit } => write!(f, "{lines} lines without tests; at most {limit}"),
            Self::LongFunction { name, lines, limit } => write!(f, "fn {name} has {lines} lines; at most {limit}"),
            Self::WideLine { columns, limit } => write!(f, "a line of {columns} columns; at most {limit}"),
            Self::SharedName { name } => write!(f, "another public type is called {name}, too"),
            Self::BareName { name } => write!(f, "{name} says nothing without its module: name what it is of"),
            Self::FirstLine => f.write_str("the first line of a doc comment is not one sentence with a full stop"),
            Self::Wording { wording, instead } => write!(f, "\"{wording}\": {instead}"),
            Self::StaleException { reason } => write!(f, "excused ({reason}) without need: drop the row"),
            Self::NoOpening => f.write_str("does not open with //! and its purpose"),
            Self::Leftover { word } => write!(f, "{word}: finish it or drop it"),
            Self::UnknownInvariant { id } => write!(f, "{id} is not in docs/invariants.md"),
            Self::RepeatedInvariant { id } => write!(f, "{id} is there twice"),
            Self::NotInCode { id } => write!(f, "{id} is cited by no code"),
            Self::NotInTests { id } => write!(f, "{id} is cited by no test"),
            Self::NotTestedThere { id, test } => write!(f, "no test in {test} cites {id}"),
            Self::OutOfDate => f.write_str("differs from the table in the code; run cargo xtask tidy --write"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.line {
            0 => write!(f, "{path}: {}", self.breach),
            line => write!(f, "{path}:{line}: {}", self.breach),
        }
    }
}

impl Finding {
    fn of_file(file: &File, breach: Breach) -> Self {
        Self { path: file.path.clone(), line: 0, breach }
    }

    fn at(file: &File, offset: usize, breach: Breach) -> Self {
        Self { path: file.path.clone(), line: file.line_of(offset), breach }
    }
}

/// Checks every rule, prints each finding and fails when there is one.
pub(crate) fn run(generated: Generated) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let files = source::files(&workspace)?;
    let mut findings = length::check(&files, exceptions::LONG);
    findings.extend(files.iter().filter_map(opening::check));
    findings.extend(files.iter().flat_map(leftovers::check));
    let mut reading = names::check(&files);
    reading.extend(prose::check(&workspace, &files)?);
    findings.extend(exceptions::ratchet(reading, exceptions::PENDING));
    findings.extend(invariants::run(&workspace, &files)?);
    findings.extend(counters::run(&workspace, generated)?);
    findings.extend(linux_calls::run(&workspace, generated)?);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files", files.len());
        Ok(())
    } else {
        Err(Error::Findings { check: "tidy", count: findings.len() })
    }
}
