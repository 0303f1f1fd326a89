//! A mutant: one small mistake in one place of the source.
//!
//! Its [`Edit`]s say which bytes of the file change. [`super::rewrite`] makes them conditional, so
//! one build has many mutants.

use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::Hasher;
use std::ops::Range;

/// The longest source text that a mutant shows.
const SHOWN: usize = 70;

/// The place of a mutant in the source, and its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mutation {
    /// The name by which a later run finds the mutant, independent of line numbers.
    pub(crate) id: String,
    /// The package.
    pub(crate) package: String,
    /// The file, from the root of the repository.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The type and function.
    pub(crate) function: String,
    /// The operator that made it.
    pub(crate) operator: Operator,
    /// The source that changes, on one line.
    pub(crate) original: String,
    /// What stands there instead.
    pub(crate) replacement: String,
    /// The number of this one among equal changes of the function, from 1.
    pub(crate) ordinal: usize,
}

#[cfg(test)]
impl Mutation {
    /// `a` → `b` in `f` of `a.rs`, the first such change there.
    pub(crate) fn example() -> Self {
        let text = str::to_owned;
        Self {
            id: text("1"),
            package: text("p"),
            file: text("a.rs"),
            line: 1,
            function: text("f"),
            operator: Operator::Logic,
            original: text("a"),
            replacement: text("b"),
            ordinal: 1,
        }
    }
}

/// A mistake that the source could contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Where it is, and what it replaces.
    pub(crate) mutation: Mutation,
    /// The changes.
    pub(crate) edits: Vec<Edit>,
    /// Whether the code may run at compile time, where no switch can be read.
    pub(crate) is_const: bool,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, file, line, function, original, replacement, .. } = self;
        write!(f, "{id} {file}:{line} {function}: `{original}` → `{replacement}`")
    }
}

/// The rule by which a mutant is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Operator {
    /// A comparison is another one.
    Comparison,
    /// `&&` is `||`, or the reverse.
    Logic,
    /// An arithmetic or bitwise operator is another one.
    Arithmetic,
    /// A `!` is missing.
    Negation,
    /// A condition is always true or never.
    Condition,
    /// A number is one too large or too small.
    Number,
    /// A statement is missing.
    Statement,
    /// A function returns at once, with a plain value.
    Body,
    /// Two arms of a match have each other's result.
    Arms,
    /// `break` is `continue`, or the reverse.
    Jump,
    /// A method is its opposite, such as `min` and `max`.
    Method,
}

/// A change of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The bytes that change; empty for [`EditForm::Entry`].
    pub(crate) range: Range<usize>,
    /// The form.
    pub(crate) form: EditForm,
    /// The new text; empty for [`EditForm::Removal`].
    pub(crate) text: String,
}

/// How a change becomes conditional; outer forms first, for changes of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EditForm {
    /// The text is inserted at the start of a function.
    Entry,
    /// The statement is skipped.
    Removal,
    /// The body of a match arm is replaced.
    Arm,
    /// The expression is replaced.
    Expression,
}

/// `text` on one line, shortened.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= SHOWN {
        return line;
    }
    line.chars().take(SHOWN).chain(['…']).collect()
}

/// A hash of `parts` that is the same in every run.
pub(crate) fn stable_hash(parts: &[&str]) -> u64 {
    let mut hasher = FxHasher::default();
    for part in parts {
        hasher.write(part.as_bytes());
        hasher.write_u8(u8::MAX);
    }
    hasher.finish()
}

/// Names each mutant of a file: equal texts of one function are numbered.
pub(crate) fn assign_ids(mutants: &mut [Mutant]) {
    for index in 0..mutants.len() {
        let (before, rest) = mutants.split_at_mut(index);
        let mutant = &mut rest[0].mutation;
        let same = |Mutant { mutation: other, .. }: &&Mutant| {
            (&other.function, &other.original, &other.replacement, other.operator)
                == (&mutant.function, &mutant.original, &mutant.replacement, mutant.operator)
        };
        let equal = before.iter().filter(same).count();
        mutant.ordinal = equal + 1;
        let ordinal = equal.to_string();
        let operator = format!("{:?}", mutant.operator);
        let parts = [&mutant.file, &mutant.function, &operator, &mutant.original, &mutant.replacement, &ordinal];
        mutant.id = format!("{:010x}", stable_hash(&parts.map(String::as_str)) >> 24);
    }
}
