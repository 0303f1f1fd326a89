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
    /// The manifest of its package.
    pub(crate) manifest_path: PathBuf,
    /// Its target.
    pub(crate) target: ArtifactTarget,
    /// Its profile.
    pub(crate) profile: ArtifactProfile,
    /// The program, if it is one.
    pub(crate) executable: Option<PathBuf>,
}

/// The target of an artifact.
#[derive(Debug, Deserialize)]
pub(crate) struct ArtifactTarget {
    /// Its name.
    pub(crate) name: String,
}

/// The profile of an artifact.
#[derive(Debug, Deserialize)]
pub(crate) struct ArtifactProfile {
    /// Whether it was built with the test harness.
    pub(crate) test: bool,
}

/// Parses the standard output of cargo with `--message-format=json`.
///
/// # Errors
/// That of the first line that looks like JSON and is no message.
pub(crate) fn messages(stdout: &[u8]) -> Result<Vec<Message>, serde_json::Error> {
    stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")).map(serde_json::from_slice).collect()
}

/// The test programs among what was built.
pub(crate) fn test_programs(messages: Vec<Message>) -> Vec<Artifact> {
    let tests = messages.into_iter().filter_map(|message| match message {
        Message::Built(artifact) if artifact.profile.test && artifact.executable.is_some() => Some(artifact),
        Message::Built(_) | Message::Compiler { .. } | Message::Other => None,
    });
    tests.collect()
}
