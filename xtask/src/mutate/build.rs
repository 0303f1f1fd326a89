//! Builds the mutants of a sample, and finds those that do not compile.
//!
//! The compiler's errors name bytes of the rewritten files. The mutants there are left out, and
//! the build is tried again, until it has no error.

use super::mutant::Mutant;
use super::scratch::Scratch;
use crate::built::{self, Message, TestProgram};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

/// Why a mutant is not in the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rejection {
    /// It does not compile.
    NotViable,
    /// An error that no mutant contains came after it.
    BesideAnError,
}

/// The mutants that were rejected, by their index.
pub(crate) type Rejected = BTreeMap<usize, Rejection>;

/// Chooses the first `count` of `mutants` that compile and builds the tests with them.
///
/// Returns the chosen indices and the test programs of `of_packages`. `rejected` has those of an
/// earlier run, and gets those of this one; `note` is called after each change.
///
/// # Errors
/// [`Error::Build`], if the build fails without a mutant to blame.
pub(super) fn build(
    scratch: &mut Scratch,
    mutants: &[Mutant],
    count: usize,
    of_packages: &[String],
    rejected: &mut Rejected,
    note: impl Fn(&Rejected) -> Result<(), Error>,
) -> Result<(Vec<usize>, Vec<TestProgram>), Error> {
    let packages: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.mutation.package.as_str()).collect();
    let mut check = vec!["check", "--lib", "--keep-going"];
    check.extend(packages.into_iter().flat_map(|package| ["--package", package]));
    let mut tests = vec!["test", "--no-run", "--lib", "--bins", "--tests"];
    tests.extend(of_packages.iter().flat_map(|package| ["--package", package.as_str()]));
    let mut is_checked = false;
    // A third more than needed at first, because about a quarter does not compile.
    let mut drawn = (count + count / 3).min(mutants.len());
    loop {
        let compile = |drawn: usize| (0..drawn).filter(|index| !rejected.contains_key(index)).collect::<Vec<_>>();
        while compile(drawn).len() < count && drawn < mutants.len() {
            drawn += 1;
        }
        let mut chosen = compile(drawn);
        scratch.write(&chosen.iter().map(|index| (*index, &mutants[*index])).collect::<Vec<_>>())?;
        // The quick check finds most errors, the build the rest.
        let (messages, good) = messages(scratch, if is_checked { &tests } else { &check })?;
        if good && is_checked {
            chosen.truncate(count);
            return Ok((chosen, built::test_programs(messages)));
        }
        if good {
            is_checked = true;
            continue;
        }
        let found = errors(scratch, messages);
        let before = rejected.len();
        for (index, rejection) in found.rejected {
            rejected.entry(index).or_insert(rejection);
        }
        println!("mutate: {} mutants do not compile", rejected.len());
        note(rejected)?;
        if rejected.len() == before {
            return Err(Error::Build(found.unexplained));
        }
    }
}

fn messages(scratch: &Scratch, words: &[&str]) -> Result<(Vec<Message>, bool), Error> {
    let mut command = scratch.cargo(words);
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|source| Error::Spawn { program: "cargo".to_owned(), source })?;
    let messages = built::messages(&output.stdout)?;
    let has_error =
        messages.iter().any(|message| matches!(message, Message::Compiler { message } if message.level == "error"));
    if !output.status.success() && !has_error {
        return Err(Error::Build(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok((messages, output.status.success()))
}

struct Errors {
    rejected: Vec<(usize, Rejection)>,
    /// The errors without a mutant to blame.
    unexplained: String,
}

fn errors(scratch: &Scratch, messages: Vec<Message>) -> Errors {
    let (mut rejected, mut near, mut unexplained) = (Vec::new(), Vec::new(), String::new());
    for message in messages {
        let Message::Compiler { message } = message else { continue };
        if message.level != "error" {
            continue;
        }
        let mut spans = message.spans;
        spans.sort_by_key(|span| !span.is_primary);
        let places =
            spans.iter().filter_map(|span| Some((scratch.rewritten(&span.file_name)?, span.byte_start..span.byte_end)));
        let blamed = places.clone().map(|(file, bytes)| file.mutants_at(&bytes)).find(|found| !found.is_empty());
        if let Some(blamed) = blamed {
            rejected.extend(blamed.into_iter().map(|index| (index, Rejection::NotViable)));
        } else if let Some((file, bytes)) = places.clone().next() {
            near.extend(file.mutants_before(bytes.start).into_iter().map(|index| (index, Rejection::BesideAnError)));
        }
        unexplained.push_str(message.rendered.as_deref().unwrap_or_default());
    }
    // Such an error may be a consequence of the others.
    if rejected.is_empty() {
        rejected = near;
    }
    Errors { rejected, unexplained }
}
