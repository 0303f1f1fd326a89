//! The tests of trapped instructions.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod instructions;
mod stores;
mod torn_entry;
mod x86_64_crate;

use pagewright_check::CheckOutcome;
use std::backtrace::Backtrace;

/// The line of the drawing that begins with `what`, its rows joined, up to the end of its location.
#[track_caller]
fn drawn(outcome: &CheckOutcome, what: &str) -> String {
    let text = outcome.to_string();
    let text = text.split(char::is_whitespace).filter(|word| !["│", ""].contains(word)).collect::<Vec<_>>().join(" ");
    let (_, line) = text.split_once(what).unwrap_or_else(|| panic!("{what} is drawn\n{outcome}"));
    line.split_once(']').map_or(line, |(location, _)| location).to_owned()
}

/// How a drawing names the code in `line` of the test file `module`.
///
/// A program without debug information has the names of its functions.
fn users_code(module: &str, line: u32) -> String {
    let has_lines = Backtrace::force_capture().to_string().contains("main.rs:");
    if has_lines { format!("{module}.rs:{line}") } else { format!("all::{module}::") }
}
