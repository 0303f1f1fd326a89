//! `pagewright`: measures what a memory-management mechanism does to a real program.
//!
//! Each command is a file in `command/`; `options` turns arguments into a machine and its settings;
//! `files` keeps outputs apart from other files; `show/` prints tables; `page/` writes HTML.
//! Results go to standard output, progress and errors to standard error.
//!
//! | exit status | meaning |
//! | --- | --- |
//! | 0 | success |
//! | 1 | `check`, `replay` or the tour reports a finding, or `boot --check` gets no verdict |
//! | 2 | bad input; one line on standard error names it |
//! | 130 | SIGINT; temporary files are removed and child processes are killed |
//!
//! `boot` and `record` otherwise exit with the status of the program that they run.
//!
//! # Example
//!
//! A capture of a program, and what a setting does to it:
//!
//! ```sh
//! pagewright record -o job.pwt -- perl job.pl
//! pagewright replay job.pwt --compare cow_page_tables=never,always
//! ```
#![forbid(unsafe_code)]

mod command;
mod files;
mod made_by;
mod options;
mod page;
mod progress;
mod setting;
mod show;

use clap::{CommandFactory, FromArgMatches, Parser};
use nix::sys::signal::{SigSet, Signal};
use pagewright_capture::cleanup;
use std::process::ExitCode;

/// Measures what memory-management mechanisms do to real programs, and finds missing TLB flushes.
///
/// Without a command, pagewright catches a missing flush and shows its mechanisms, in a minute.
#[derive(Parser)]
#[command(name = "pagewright", version, max_term_width = 100, after_help = command::examples::of_the_program())]
struct Cli {
    #[command(subcommand)]
    command: Option<command::Command>,
}

/// What the standard library says of a text that is not a number from 0.
const NO_NUMBER: &str = "invalid digit found in string";

/// The exit status that a shell reports for a program ended by SIGINT.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    // This fails if SIGINT, SIGTERM or SIGHUP is already ignored, as under `nohup` or in a
    // background job of a script. That signal then stays ignored; a thread waits for the others.
    if ctrlc::try_set_handler(|| cleanup::exit(INTERRUPTED)).is_err() {
        exit_on_signals();
    }
    let parsed = numbers_may_be_negative(Cli::command()).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if error.exit_code() == 0 => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        // clap prints several paragraphs. The first one names the wrong argument.
        Err(error) => {
            let text = error.to_string();
            let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let line = paragraph.join(" ").replace(NO_NUMBER, "must be a number from 0");
            return print_error(&format!("{}{}", line.trim_start_matches("error: "), similar_words(&error)));
        }
    };
    match command::run(cli.command) {
        Ok(status) => status,
        Err(error) => print_error(&error.to_string()),
    }
}

/// Takes `-1` after an option as its value, which is refused as that of this option.
fn numbers_may_be_negative(command: clap::Command) -> clap::Command {
    let takes_values = |arg: &clap::Arg| arg.get_action().takes_values();
    let command = command.mut_args(|arg| match takes_values(&arg) {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(numbers_may_be_negative)
}

/// Waits in a thread for SIGINT and SIGTERM, unless they are ignored; then cleans up and exits.
///
/// Programs that this one starts do not inherit the blocked signals: the standard library gives
/// them an empty mask.
fn exit_on_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let signals = [Signal::SIGINT, Signal::SIGTERM].into_iter();
    let signals: SigSet = signals.filter(|&signal| ignored >> (signal as i32 - 1) & 1 == 0).collect();
    if signals.thread_block().is_ok() {
        std::thread::spawn(move || {
            if let Ok(signal) = signals.wait() {
                cleanup::exit(128 + signal as i32);
            }
        });
    }
}

/// The words that clap suggests in place of a misspelt one.
fn similar_words(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(word)) => format!(" (did you mean {word}?)"),
        Some(ContextValue::Strings(words)) => format!(" (did you mean {}?)", words.join(" or ")),
        _ => String::new(),
    }
}

/// Prints `message` to standard error and returns the exit status for bad input.
fn print_error(message: &str) -> ExitCode {
    eprintln!("pagewright: {message}");
    ExitCode::from(2)
}
