//! `cargo xtask tidy`: checks the rules of this repository that a compiler does not check.
//!
//! One rule per module: [`length`], [`opening`], [`leftovers`], [`entry_stores`], [`invariants`],
//! [`counters`], [`decisions`], [`huge_pages`], [`links`], [`linux_calls`], [`lock_order`],
//! [`names`], [`packages`], [`plants`], [`prose`], [`scheduling_points`], [`test_files`].
//! [`readme`] writes the README of a package. No rule has exceptions.
//!
//! Not guaranteed: that a comment is true, or a name good.

mod counters;
mod decisions;
mod entry_stores;
mod huge_pages;
mod invariants;
mod leftovers;
mod length;
mod links;
mod linux_calls;
mod lock_order;
mod names;
mod opening;
mod packages;
mod plants;
mod prose;
mod readme;
mod scheduling_points;
mod test_files;

use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::{self, File};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What to do with documents that are generated from code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generated {
    /// Compare them with the files.
    Compare,
    /// Write them.
    Write,
}

impl Generated {
    /// Compares the document at `page` with `text`, or writes it; the path is from the root.
    fn document(self, workspace: &Workspace, page: impl AsRef<Path>, text: &str) -> Result<Option<Finding>, Error> {
        let page = page.as_ref();
        let path = workspace.workspace_root.join(page);
        match self {
            Self::Write => fs::write(&path, text).map_err(Error::file(&path)).map(|()| None),
            Self::Compare => {
                // A document that does not exist is out of date.
                let there = fs::read_to_string(&path).unwrap_or_default();
                Ok((there != text).then(|| Finding { path: page.into(), line: 0, breach: Breach::OutOfDate }))
            }
        }
    }
}

/// A breach of a rule, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, from the root of the repository.
    pub(crate) path: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// The breach.
    pub(crate) breach: Breach,
}

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A file that is too long without its tests.
    LongFile {
        /// Its lines.
        lines: usize,
        /// Lines allowed.
        limit: usize,
    },
    /// A function that is too long.
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
    /// A doc comment whose first line is not one sentence.
    FirstLine,
    /// A refused wording.
    Wording {
        /// The wording.
        wording: String,
        /// The advice.
        instead: &'static str,
    },
    /// A public type that shares its name with another one.
    SharedName {
        /// The name.
        name: String,
    },
    /// A public type whose name means nothing without its module.
    BareName {
        /// The name.
        name: String,
    },
    /// A module that does not begin with `//!`.
    NoOpening,
    /// A file of tests that is part of no test binary.
    NotATest,
    /// A mark of unfinished work.
    Leftover {
        /// The word.
        word: &'static str,
    },
    /// An entry stored outside the crate that accounts for entries.
    EntryStored,
    /// An invariant that is cited and that no doc comment states.
    UnknownInvariant {
        /// Its id.
        id: String,
    },
    /// An invariant that is stated twice.
    RepeatedInvariant {
        /// Its id.
        id: String,
    },
    /// A paragraph of a module's documentation that begins with an id which is not in bold.
    UnmarkedInvariant {
        /// The id.
        id: String,
    },
    /// An invariant that no test cites.
    NotInTests {
        /// Its id.
        id: String,
    },
    /// A planted bug that no code makes.
    BugNotMade {
        /// The bug.
        bug: String,
    },
    /// A planted bug that no test names.
    BugNotInTests {
        /// The bug.
        bug: String,
    },
    /// A planted mistake that hides the correct code of its host.
    LongMistake {
        /// Its lines.
        lines: usize,
        /// Lines allowed.
        limit: usize,
    },
    /// A row of a page of consumers that names no test.
    NoTestNamed,
    /// A test that a page names and no file has.
    NoSuchTest {
        /// Its file and name.
        test: String,
    },
    /// A file that has not the scheduling points which its ledger lists.
    PointsDiffer {
        /// Its scheduling points.
        points: usize,
        /// Those listed.
        listed: usize,
    },
    /// A package without a licence, or with another one.
    NoLicence,
    /// A package that names a repository, while none is published.
    MadeUpRepository,
    /// A package without a field that a registry asks for.
    BadMetadata {
        /// The field of the manifest.
        field: &'static str,
    },
    /// A package whose documentation has no example.
    NoExample,
    /// A file that is included, and that the package would lack.
    OutsidePackage {
        /// The file.
        path: PathBuf,
    },
    /// A link that leads to no file, or to no heading of it.
    DeadLink {
        /// Its target.
        target: String,
    },
    /// A decision that names no file which it concerns.
    NoConcerns,
    /// A drawing of the lock order without a rank, or with one at another place.
    LockOrder {
        /// The rank.
        rank: String,
    },
    /// A document that differs from its tables.
    OutOfDate,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongFile { lines, limit } => write!(f, "{lines} lines without tests; at most {limit}"),
            Self::LongFunction { name, lines, limit } => write!(f, "fn {name} has {lines} lines; at most {limit}"),
            Self::WideLine { columns, limit } => write!(f, "a line of {columns} columns; at most {limit}"),
            Self::SharedName { name } => write!(f, "another public type has the name {name}"),
            Self::BareName { name } => write!(f, "{name} means nothing without its module: add a noun"),
            Self::FirstLine => f.write_str("the first line of a doc comment is not one sentence with a full stop"),
            Self::Wording { wording, instead } => write!(f, "\"{wording}\": {instead}"),
            Self::NoOpening => f.write_str("does not begin with //! and its purpose"),
            Self::NotATest => f.write_str("is in no test binary: name it in tests/main.rs"),
            Self::Leftover { word } => write!(f, "{word}: finish it or delete it"),
            Self::EntryStored => write!(f, "an entry is stored outside `table`, which accounts for entries"),
            Self::UnknownInvariant { id } => write!(f, "no doc comment states **{id}**"),
            Self::RepeatedInvariant { id } => write!(f, "{id} is stated twice"),
            Self::UnmarkedInvariant { id } => {
                write!(f, "begins as a statement of {id}: write **{id}** if it is the one, else name it in a sentence")
            }
            Self::NotInTests { id } => write!(f, "no test cites {id}"),
            Self::BugNotMade { bug } => write!(f, "no code makes the planted bug {bug}"),
            Self::BugNotInTests { bug } => write!(f, "no test names the planted bug {bug}"),
            Self::LongMistake { lines, limit } => {
                write!(f, "a mistake of {lines} lines; at most {limit}: make it a function in planted!")
            }
            Self::NoTestNamed => f.write_str("the row names no test"),
            Self::NoSuchTest { test } => write!(f, "there is no test {test}"),
            Self::PointsDiffer { points, listed } => {
                write!(f, "{points} scheduling points; xtask/src/tidy/scheduling_points.toml lists {listed}")
            }
            Self::NoLicence => f.write_str("is not the licence of the workspace: link it"),
            Self::MadeUpRepository => f.write_str("names a repository, and none is published"),
            Self::BadMetadata { field } => write!(f, "`{field}` is missing, or crates.io refuses it"),
            Self::NoExample => f.write_str("has no section `# Example` with code"),
            Self::OutsidePackage { path } => {
                write!(f, "includes {}, which is outside its package: link it there", path.display())
            }
            Self::DeadLink { target } => write!(f, "the link to {target} leads nowhere"),
            Self::NoConcerns => f.write_str("the decision has no line \"Concerns: \" with a link to a file"),
            Self::LockOrder { rank } => write!(f, "the lock order lacks {rank}, or has it at another place"),
            Self::OutOfDate => f.write_str("differs from its tables in the code: run cargo xtask tidy --write"),
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

/// Checks every rule, prints each finding, and fails if there is one.
pub(crate) fn run(generated: Generated) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let files = source::files(&workspace)?;
    let documents = source::documents(&workspace)?;
    let mut findings: Vec<Finding> = files.iter().flat_map(length::check).collect();
    findings.extend(files.iter().filter_map(opening::check));
    findings.extend(files.iter().flat_map(leftovers::check));
    findings.extend(test_files::check(&workspace, &files));
    findings.extend(files.iter().flat_map(entry_stores::check));
    findings.extend(names::check(&files));
    findings.extend(prose::check(&files, &documents));
    findings.extend(invariants::run(&workspace, &files, &documents, generated)?);
    findings.extend(links::check(&workspace.workspace_root, &documents));
    findings.extend(decisions::check(&documents));
    findings.extend(lock_order::check(&files, &documents));
    findings.extend(huge_pages::run(&workspace, &files)?);
    findings.extend(plants::check(&files));
    findings.extend(scheduling_points::run(&files)?);
    findings.extend(counters::run(&workspace, generated)?);
    findings.extend(linux_calls::run(&workspace, generated)?);
    findings.extend(packages::run(&workspace, &files, generated)?);
    crate::error::report("tidy", &findings, format_args!("{} files", files.len()))
}
