//! `cargo xtask`: everything that is done to this repository, by hand or by CI, in one place.
//!
//! One command per file: [`test`], [`soak`], [`arrows`], [`tidy`], [`no_std`], [`repeat`],
//! [`kernel`], [`boot`], [`expected`], [`pageout`], [`setup`]. What they share: [`cargo`] (the
//! workspace and nested cargo), [`step`] (a command with a time limit and a count), [`source`]
//! (reading Rust source), [`toolchain`] (who can build for bare metal), [`debian`] (files out of
//! packages), [`linux`] (the kernel among them).
//!
//! Not guaranteed: Windows. Steps are stopped by process group, so a Unix is needed.
#![forbid(unsafe_code)]

mod arrows;
mod boot;
mod cargo;
mod debian;
mod error;
mod expected;
mod kernel;
mod linux;
mod no_std;
mod pageout;
mod repeat;
mod setup;
mod soak;
mod source;
mod step;
mod test;
mod tidy;
mod toolchain;

use error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test            all tests, each step with its time and result (minutes)
  soak            the long tests (hours)
  arrows          dependencies between crates against the table of allowed ones
  tidy [--write]  lengths, openings, leftovers, invariants, generated documents (--write makes the latter)
  no-std          checks the library crates for bare metal, both instruction sets
  kernel A [planted] [oracle]  builds the kernel for x86-64 or arm64 and prints where it is; with bugs that can be chosen at boot, with
                  the judge of its counts
  boot [planted]  boots it and runs programs on it, both instruction sets, one CPU and four (minutes); with mistakes that must be noticed
  expected [NAME] runs the same programs on Debian's Linux and records what they print (minutes; fetches the kernels)
  pageout         counts what paging out costs in barriers and invalidations on Debian's Linux 6.1 and 6.12 for arm64 and here (a minute;
                  fetches the kernels)
  repeat [quick]  replays every capture, or the smaller half, twice and compares (seconds)
  setup           installs what the above need (Debian, as root), or says what to install";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ Error::Usage(_)) => {
            eprintln!("xtask: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Error> {
    match words {
        ["test"] => test::run(),
        ["soak"] => soak::run(),
        ["arrows"] => arrows::run(),
        ["tidy"] => tidy::run(tidy::Generated::Compare),
        ["tidy", "--write"] => tidy::run(tidy::Generated::Write),
        ["no-std"] => no_std::run(),
        ["kernel", isa, extras @ ..] => kernel::run(isa, extras),
        ["boot"] => boot::run(boot::Extent::Programs),
        ["boot", "planted"] => boot::run(boot::Extent::Planted),
        ["expected", names @ ..] => expected::run(names),
        ["pageout"] => pageout::run(),
        ["repeat"] => repeat::run(repeat::Extent::All),
        ["repeat", "quick"] => repeat::run(repeat::Extent::Quick),
        ["setup"] => setup::run(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        unknown => Err(Error::Usage(unknown.join(" "))),
    }
}
