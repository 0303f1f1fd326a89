//! `pagewright info`: says what a capture holds.

use super::{CommandError, OutFile, examples};
use crate::files::CommandFiles;
use crate::made_by::MadeBy;
use crate::show;
use pagewright_capture::contents::TraceContents;
use pagewright_capture::trace::{TraceHeader, TraceReader};
use std::io::Write;
use std::path::PathBuf;

/// Options of `info`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("info", ""))]
pub(crate) struct Args {
    /// Capture written by `pagewright record` or `pagewright boot --record`.
    trace: PathBuf,
    /// Print every process and every file.
    #[arg(long)]
    all: bool,
    /// Also write everything to a file as JSON (docs/json.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The JSON document of `info`.
#[derive(serde::Serialize)]
struct Document<'a> {
    header: &'a TraceHeader,
    file_bytes: u64,
    contents: &'a TraceContents,
}

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        CommandFiles::default().reads("the capture", &self.trace).writes("--json", self.json.as_deref())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let json = args.json.as_deref().map(OutFile::create).transpose()?;
    let mut reader = TraceReader::open(&args.trace)?;
    let header = reader.header().clone();
    let contents = TraceContents::read(&mut reader)?;
    let file_bytes = std::fs::metadata(&args.trace).map_or(0, |meta| meta.len());
    if let Some(json) = json {
        json.write_json(&MadeBy::now(), &Document { header: &header, file_bytes, contents: &contents })?;
    }
    let mut out = std::io::stdout().lock();
    show::contents(&mut out, &header, file_bytes, &contents, args.all)?;
    out.flush()?;
    Ok(())
}
