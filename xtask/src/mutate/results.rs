//! What a run has found so far, on disk, so that an interrupted run goes on.
//!
//! Each run has a folder, named after the sources, the sample and the seed. A finding is one line
//! of JSON, appended when it is made.

use super::build::{Rejected, Rejection};
use super::mutant::{Mutant, Mutation};
use super::suite::Baseline;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The fate of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// A test failed.
    Killed(String),
    /// A test did not end in time.
    TimedOut(String),
    /// Every test that reaches it passed.
    Survived {
        /// The number of these tests.
        tests: usize,
    },
    /// It is not in the build.
    Rejected(Rejection),
}

impl Fate {
    /// Whether a test has noticed the mutant.
    pub(crate) fn is_killed(&self) -> bool {
        match self {
            Self::Killed(_) | Self::TimedOut(_) => true,
            Self::Survived { .. } | Self::Rejected(_) => false,
        }
    }
}

/// A mutant and its fate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MutantResult {
    /// The mutant.
    #[serde(flatten)]
    pub(crate) mutation: Mutation,
    /// The fate.
    pub(crate) fate: Fate,
    /// The time that its tests took.
    pub(crate) seconds: f64,
}

impl MutantResult {
    /// The result of a mutant.
    pub(crate) fn new(mutant: &Mutant, fate: Fate, seconds: f64) -> Self {
        Self { mutation: mutant.mutation.clone(), fate, seconds }
    }
}

/// The folder of a run.
pub(crate) struct RunFolder {
    /// The path.
    pub(crate) path: PathBuf,
}

impl RunFolder {
    /// Opens or creates the folder.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&path).map_err(Error::file(&path))?;
        Ok(Self { path })
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Vec<T> {
        let text = fs::read_to_string(self.path.join(name)).unwrap_or_default();
        // The last line is incomplete if the run was killed while it wrote.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn append(&self, name: &str, line: &impl Serialize) -> Result<(), Error> {
        let path = self.path.join(name);
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(Error::file(path))
    }

    /// The tests' runs without a mutant.
    pub(crate) fn baselines(&self) -> Vec<Baseline> {
        self.read("baseline.json")
    }

    /// Notes a test's run without a mutant.
    pub(crate) fn add_baseline(&self, baseline: &Baseline) -> Result<(), Error> {
        self.append("baseline.json", baseline)
    }

    /// The results of mutants.
    pub(crate) fn results(&self) -> Vec<MutantResult> {
        self.read("results.json")
    }

    /// Notes the result of a mutant.
    pub(crate) fn add_result(&self, result: &MutantResult) -> Result<(), Error> {
        self.append("results.json", result)
    }

    /// The mutants that are not in the build.
    pub(crate) fn rejected(&self) -> Rejected {
        let last: Option<Vec<(usize, Rejection)>> = self.read("rejected.json").pop();
        last.unwrap_or_default().into_iter().collect()
    }

    /// Replaces the mutants that are not in the build.
    pub(crate) fn set_rejected(&self, rejected: &Rejected) -> Result<(), Error> {
        self.append("rejected.json", &rejected.iter().collect::<Vec<_>>())
    }

    /// The folder as it is shown.
    pub(crate) fn shown(&self) -> &Path {
        &self.path
    }
}
