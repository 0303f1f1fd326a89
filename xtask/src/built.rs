//! What cargo has built, as its messages in JSON tell.

use serde::Deserialize;
use std::path::PathBuf;

/// A message of cargo, with the fields that matter here.
#[derive(Debug, Deserialize)]
#[serde(tag = "reason")]
pub(crate) enum Message {
    /// A warning or an error of the compiler.
    #[serde(rename = "compiler-message")]
    Compiler {
        /// The warning or error.
        message: Diagnostic,
    },
    /// Something that was built, or was already there.
    #[serde(rename = "compiler-artifact")]
    Built(Artifact),
    /// Any other message.
    #[serde(other)]
    Other,
}

/// A warning or an error of the compiler.
#[derive(Debug, Deserialize)]
pub(crate) struct Diagnostic {
    /// `error`, `warning` or less.
    pub(crate) level: String,
    /// The source that it speaks of.
    pub(crate) spans: Vec<ErrorSpan>,
    /// Its text, as a terminal shows it.
    pub(crate) rendered: Option<String>,
}

/// A part of a source file.
#[derive(Debug, Deserialize)]
pub(crate) struct ErrorSpan {
    /// The file.
    pub(crate) file_name: String,
    /// The first byte.
    pub(crate) byte_start: usize,
    /// The byte after the last.
    pub(crate) byte_end: usize,
    /// Whether it has the cause itself.
    pub(crate) is_primary: bool,
}

/// Something that cargo has built.
#[derive(Debug, Deserialize)]
pub(crate) struct Artifact {
    manifest_path: PathBuf,
    target: ArtifactTarget,
    profile: ArtifactProfile,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct ArtifactTarget {
    name: String,
}

#[derive(Debug, Deserialize)]
struct ArtifactProfile {
    test: bool,
}

/// A program with the test harness.
#[derive(Debug)]
pub(crate) struct TestProgram {
    /// The name of its target.
    pub(crate) target: String,
    /// The program.
    pub(crate) path: PathBuf,
    /// The folder of its package, where cargo runs it.
    pub(crate) folder: PathBuf,
}

impl TestProgram {
    fn of(artifact: Artifact) -> Option<Self> {
        let Artifact { manifest_path, target, profile, executable } = artifact;
        let folder = manifest_path.parent()?.to_owned();
        executable.filter(|_| profile.test).map(|path| Self { target: target.name, path, folder })
    }
}

/// Parses the standard output of cargo with `--message-format=json`.
///
/// # Errors
/// That of the first line that looks like JSON and is no message.
pub(crate) fn messages(stdout: &[u8]) -> Result<Vec<Message>, serde_json::Error> {
    stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")).map(serde_json::from_slice).collect()
}

/// The test programs among what was built.
pub(crate) fn test_programs(messages: Vec<Message>) -> Vec<TestProgram> {
    let tests = messages.into_iter().filter_map(|message| match message {
        Message::Built(artifact) => TestProgram::of(artifact),
        Message::Compiler { .. } | Message::Other => None,
    });
    tests.collect()
}
