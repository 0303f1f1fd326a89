//! `cargo xtask`: the tasks of this repository, for developers and for CI.
//!
//! One command per module: [`mod@test`] (with [`test_programs`]), [`soak`], [`arrows`], [`tidy`],
//! [`no_std`], [`repeat`], [`kernel`], [`boot`], [`expected`], [`instructions`], [`pageout`],
//! [`tiers`], [`programs`], [`snapshots`], [`package`], [`mutate`], [`setup`]. They share [`cargo`]
//! (the workspace and nested cargo), [`built`] (what cargo has built), [`cores`] (work spread over
//! the cores), [`step`] (commands with a count and a time), [`mod@watch`] (the watchdog),
//! [`source`] (Rust source files), [`toolchain`] (toolchains for bare metal), [`debian`] (files
//! from packages) and
//! [`linux`] (Debian's Linux kernels).
//!
//! Not guaranteed: Windows. A step is stopped with its process group, which needs a Unix.
#![forbid(unsafe_code)]

mod arrows;
mod boot;
mod built;
mod cargo;
mod cores;
mod debian;
mod error;
mod expected;
mod instructions;
mod kernel;
mod linux;
mod mutate;
mod no_std;
mod package;
mod pageout;
mod programs;
mod repeat;
mod setup;
mod snapshots;
mod soak;
mod source;
mod step;
mod test;
mod test_programs;
mod tidy;
mod tiers;
mod toolchain;
mod watch;

use error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [workspace | build]
                       run all tests, and print the time and result of each step (minutes);
                       workspace: only the test programs of the workspace; build: only build them
  soak                 run the long tests (hours)
  arrows               check the dependencies between crates against the table of allowed ones
  tidy [--write]       check lengths, names, prose, invariants and generated documents;
                       --write generates the documents
  no-std               check the library crates for bare metal, on both instruction sets
  package [build]      pack each package as `cargo publish --workspace` uploads it, and check the
                       files of the archives; build: also build each archive by itself (minutes)
  kernel ISA [planted] [oracle]
                       build the kernel for x86-64 or arm64 and print the path of the image;
                       planted: with bugs that can be chosen at boot; oracle: with the judge of
                       its counts
  boot [planted]       run programs on the kernel in QEMU, on both instruction sets, on one CPU
                       and on four (minutes); planted: also with bugs that must be detected
  boot build           build what `boot` runs, and run nothing
  boot long [NAME...]  run programs of Debian, many forks and random system calls (an hour;
                       downloads packages)
  boot stressors [NAME...]
                       run the stressors of stress-ng about memory and processes that pass on
                       Linux (half an hour; downloads a package)
  boot stressors record [NAME...]
                       run them on Debian's Linux and record which pass (an hour; downloads kernels)
  boot repeat BOOTS    make so many boots of the programs of `boot`, at least four at once; keep
                       what failed ones print in target/failed-boots
  expected [NAME...]   run the same programs on Debian's Linux and record their output (minutes;
                       downloads kernels)
  instructions [--write]
                       count the kernel's instructions per operation, on Debian's Linux 6.1 and on
                       Pagewright (minutes; downloads kernels); --write: also into
                       docs/benchmarks.md
  instructions huge [--write]
                       count only operations on huge pages
  instructions moving [--write]
                       count only pages that move between two nodes
  instructions profile ISA [NAME=VALUE]
                       print the functions of our kernel that execute them; NAME=VALUE: with this
                       setting
  instructions huge profile ISA [NAME=VALUE]
                       print those of the operations on huge pages
  pageout              count the barriers and invalidations of a page-out on arm64, on Debian's
                       Linux 6.1 and 6.12 and on Pagewright (a minute; downloads kernels)
  tiers                count promotions and demotions of a program on two memory tiers, on Debian's
                       Linux 6.12 and on Pagewright, and the flushes that move pages with each
                       tlb_linger (half an hour; downloads kernels)
  tiers linger         count only the flushes (minutes)
  programs [NAME...]   record and replay twenty programs, compare their faults with Linux's, and
                       write docs/programs.md (minutes)
  snapshots [WORD...]  compare what `pagewright snapshot` predicts of forks with the forks of six
                       programs, of 20 MB to 4 GB, and write docs/snapshots.md (minutes); WORD: only
                       programs whose command has it
  repeat [quick]       replay every capture twice and compare; quick: the smaller half (seconds)
  mutate [--sample N] [--seed S] [--package P] [--file F] [--longest SECONDS] [--tests P]...
         [--id ID]... [--list]
                       run tests against small mistakes in the source, and print which mistakes no
                       test notices (hours); --tests: only the tests of these packages; --longest:
                       only tests that take no longer; --id: run these mistakes again; --list: print
                       them all
  setup                install the packages that the other commands need (on Debian, as root), or
                       name them
  watch SECONDS PROGRAM ARGUMENT...
                       run a program, and end it if it makes no progress in so many seconds of its
                       own: those in which it waits for a CPU do not count";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = watch::end_all_at_interrupt().and_then(|()| match *words {
        ["watch", ref words @ ..] => watch::runner(words),
        ref words => run(words).map(|()| ExitCode::SUCCESS),
    });
    match ended {
        Ok(status) => status,
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
        ["test", "build"] => test_programs::build().map(|_| ()),
        ["test", "workspace"] => test_programs::run(),
        ["soak"] => soak::run(),
        ["arrows"] => arrows::run(),
        ["tidy"] => tidy::run(tidy::Generated::Compare),
        ["tidy", "--write"] => tidy::run(tidy::Generated::Write),
        ["no-std"] => no_std::run(),
        ["package"] => package::run(package::Archives::List),
        ["package", "build"] => package::run(package::Archives::Build),
        ["kernel", isa, features @ ..] => kernel::run(isa, features),
        ["boot"] => boot::run(boot::Extent::Programs, &[]),
        ["boot", "build"] => boot::build(),
        ["boot", "planted"] => boot::run(boot::Extent::Planted, &[]),
        ["boot", "long", names @ ..] => boot::run(boot::Extent::Long, names),
        ["boot", "stressors", "record", names @ ..] => boot::stressors::record(names),
        ["boot", "stressors", names @ ..] => boot::stressors::run(names),
        ["boot", "repeat", boots] => match boots.parse() {
            Ok(boots) => boot::run(boot::Extent::Repeated(boots), &[]),
            Err(_) => Err(Error::Usage(words.join(" "))),
        },
        ["expected", names @ ..] => expected::run(names),
        ["instructions"] => instructions::run(instructions::Table::Print),
        ["instructions", "--write"] => instructions::run(instructions::Table::Write),
        ["instructions", "moving"] => instructions::run_moving(instructions::Table::Print),
        ["instructions", "moving", "--write"] => instructions::run_moving(instructions::Table::Write),
        ["instructions", "huge"] => instructions::run_huge(instructions::Table::Print),
        ["instructions", "huge", "--write"] => instructions::run_huge(instructions::Table::Write),
        ["instructions", "profile", isa] => instructions::profile(isa, None),
        ["instructions", "profile", isa, setting] => instructions::profile(isa, Some(setting)),
        ["instructions", "huge", "profile", isa] => instructions::profile_huge(isa, None),
        ["instructions", "huge", "profile", isa, setting] => instructions::profile_huge(isa, Some(setting)),
        ["pageout"] => pageout::run(),
        ["tiers"] => tiers::run(),
        ["tiers", "linger"] => tiers::run_lingering(),
        ["programs", names @ ..] => programs::run(names),
        ["snapshots", names @ ..] => snapshots::run(names),
        ["repeat"] => repeat::run(repeat::Extent::All),
        ["repeat", "quick"] => repeat::run(repeat::Extent::Quick),
        ["mutate", options @ ..] => mutate::run(options),
        ["setup"] => setup::run(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        unknown => Err(Error::Usage(unknown.join(" "))),
    }
}
