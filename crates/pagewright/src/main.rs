//! `pagewright`: what a mechanism of memory management does to a real program.
//!
//! Commands are in `command/`, one file each; `options` turns what was typed into a machine and
//! settings; `show/` writes tables. Figures go to standard output, progress and complaints to
//! standard error. Exit status: 0; 1 when a check found something; 2 for bad input with one line
//! that names it; 130 when it was interrupted, which leaves nothing temporary behind. `boot` ends
//! with its program's.
#![forbid(unsafe_code)]

mod command;
mod options;
mod progress;
mod show;

use clap::Parser;
use pagewright_capture::undo;
use std::process::ExitCode;

/// Run page-table code – Pagewright's own memory manager, or Linux's calls at random – on a
/// simulated machine, and read what it costs and whether it is right; without a command, replay six
/// captures.
#[derive(Parser)]
#[command(name = "pagewright", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<command::Command>,
}

/// What a shell says of a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    // Refused where such a signal is ignored (`nohup`, a script's background job): it stays ignored
    // then.
    let _ = ctrlc::try_set_handler(|| undo::end(INTERRUPTED));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.exit_code() == 0 => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        // clap explains at length; the first paragraph names what is wrong.
        Err(error) => {
            let text = error.to_string();
            let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            return complain(paragraph.join(" ").trim_start_matches("error: "));
        }
    };
    match command::run(cli.command) {
        Ok(status) => status,
        Err(error) => complain(&error.to_string()),
    }
}

fn complain(what: &str) -> ExitCode {
    eprintln!("pagewright: {what}");
    ExitCode::from(2)
}
