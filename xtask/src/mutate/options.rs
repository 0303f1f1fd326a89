//! The options of `cargo xtask mutate`.

use super::mutant::{Mutant, stable_hash};
use crate::error::Error;
use std::time::Duration;

/// The number of viable mutants in a sample.
const SAMPLE: usize = 300;
/// The time limit of a test without a mutant.
const LONGEST: Duration = Duration::from_secs(300);

/// The options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    sample: usize,
    seed: u64,
    package: Option<String>,
    file: Option<String>,
    /// The mutants to run, instead of a sample.
    pub(crate) ids: Vec<String>,
    /// The packages whose tests run, or none for all that link a mutated one.
    pub(crate) tests: Vec<String>,
    /// Whether to print the mutants and run none.
    pub(crate) list: bool,
    /// Tests that take longer without a mutant are left out.
    pub(crate) longest: Duration,
}

impl Options {
    /// Reads the words after `mutate`.
    ///
    /// # Errors
    /// [`Error::Usage`] with the word that is wrong.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, Error> {
        let mut options = Self {
            sample: SAMPLE,
            seed: 1,
            package: None,
            file: None,
            ids: Vec::new(),
            tests: Vec::new(),
            list: false,
            longest: LONGEST,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().map(|value| (*value).to_owned()).ok_or_else(|| usage(word, "needs a value"));
            match *word {
                "--list" => options.list = true,
                "--sample" => options.sample = number(word, &value()?)?,
                "--seed" => options.seed = number(word, &value()?)?,
                "--package" => options.package = Some(value()?),
                "--file" => options.file = Some(value()?),
                "--id" => options.ids.push(value()?),
                "--tests" => options.tests.push(format!("pagewright-{}", value()?.trim_start_matches("pagewright-"))),
                "--longest" => options.longest = Duration::from_secs(number(word, &value()?)?),
                unknown => return Err(usage(unknown, "is no option")),
            }
        }
        Ok(options)
    }

    /// What distinguishes a run from another one of the same sources.
    pub(crate) fn key(&self) -> String {
        let Self { sample, seed, package, file, ids, tests, list: _, longest } = self;
        format!("{sample} {seed} {package:?} {file:?} {ids:?} {tests:?} {longest:?}")
    }

    /// The mutants to draw from, in the order of the sample.
    pub(crate) fn choose(&self, mut mutants: Vec<Mutant>) -> Vec<Mutant> {
        mutants.retain(|Mutant { mutation: mutant, is_const, .. }| {
            let short = mutant.package.trim_start_matches("pagewright-");
            !is_const
                && self.package.as_ref().is_none_or(|package| *package == mutant.package || package == short)
                && self.file.as_ref().is_none_or(|file| mutant.file.ends_with(file))
                && (self.ids.is_empty() || self.ids.contains(&mutant.id))
        });
        if !self.list {
            let seed = self.seed.to_string();
            mutants
                .sort_by_cached_key(|mutant| (stable_hash(&[&seed, &mutant.mutation.id]), mutant.mutation.id.clone()));
        }
        mutants
    }

    /// The number of viable mutants to run of `available`.
    pub(crate) fn count(&self, available: usize) -> usize {
        if self.ids.is_empty() { self.sample.min(available) } else { available }
    }
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| usage(option, &format!("needs a number, not {value}")))
}

fn usage(word: &str, why: &str) -> Error {
    Error::Usage(format!("mutate: {word} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options = Options::parse(&["--sample", "60", "--seed", "7", "--package", "tlb"]).expect("options");
        assert_eq!((options.sample, options.seed, options.package.as_deref()), (60, 7, Some("tlb")));
        for (words, named) in [
            (&["--sample"][..], "--sample needs a value"),
            (&["--seed", "x"], "--seed needs a number, not x"),
            (&["--all"], "--all is no option"),
        ] {
            let error = Options::parse(words).expect_err("wrong options").to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
