//! `cargo xtask programs`: the page faults of twenty recorded programs beside Linux's.
//!
//! Each program of [`PROGRAMS`] runs twice, natively for Linux's own count of faults and under
//! valgrind for its accesses. The replay must take faults within [`TOLERANCE`] per cent of Linux's
//! for all but [`EXCEPTIONS`] of them. Minor and major faults are added up on both sides: a page of
//! a file that Linux has not read yet is a major fault there, and the replay reads no device.
//! `tests/programs/inputs.sh` makes the inputs. A run of all
//! programs writes the table in `docs/programs.md`; `cargo xtask programs NAME…` runs some and
//! writes nothing.
//!
//! Not guaranteed: the same counts on another computer. Programs, libraries and Linux differ.

use crate::boot::given_pagewright;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The largest difference from Linux, in per cent.
const TOLERANCE: u64 = 5;
/// The number of programs that may differ by more.
const EXCEPTIONS: usize = 2;
const PAGE: &str = "docs/programs.md";

/// A program to record.
struct Program {
    /// Its name in the table.
    name: &'static str,
    /// The Debian package.
    package: &'static str,
    /// The command, whose words have no blanks.
    command: &'static str,
    /// What it has that others lack.
    kind: &'static str,
}

const fn program(name: &'static str, package: &'static str, command: &'static str, kind: &'static str) -> Program {
    Program { name, package, command, kind }
}

const PROGRAMS: [Program; 20] = [
    program("sqlite3", "sqlite3", "sqlite3 -init work.sql :memory: .quit", "database"),
    program("python3", "python3", "/usr/bin/python3 -S -E work.py", "interpreter; a list grows by mremap"),
    program("perl", "perl", "perl work.pl", "interpreter"),
    program("lua", "lua5.4", "lua5.4 work.lua", "interpreter"),
    program("ruby", "ruby", "ruby --disable-gems work.rb", "interpreter"),
    program("php", "php-cli", "php -n work.php", "interpreter; aligns chunks of 2 MiB by munmap"),
    program("tcl", "tcl", "tclsh work.tcl", "interpreter"),
    program("gawk", "gawk", "gawk -f work.awk lines.txt", "interpreter"),
    program("gcc", "gcc", "gcc -O1 -c work.c", "compiler; vfork and exec"),
    program("tcc", "tcc", "tcc -c work.c", "compiler"),
    program("make", "make", "make -B -s -j2", "vfork and exec, two jobs at a time"),
    program("m4", "m4", "m4 work.m4", "macro processor"),
    program("gzip", "gzip", "gzip -k -f numbers.txt", "compressor"),
    program("bzip2", "bzip2", "bzip2 -k -f numbers.txt", "compressor"),
    program("unxz", "xz-utils", "xz -d -k -f numbers.txt.xz", "decompressor"),
    program("zstd", "zstd", "zstd -q -f -T2 numbers.txt", "compressor with threads"),
    program("sort", "coreutils", "sort --parallel=2 -n lines.txt", "sort"),
    program("openssl", "openssl", "openssl dgst -sha256 numbers.txt", "large libraries"),
    program("git", "git", "git -C repo log -p --stat", "version control"),
    program("bash", "bash", "bash work.sh", "forks without exec, pipelines, background jobs"),
];

/// The counts of a program.
struct Counted {
    name: &'static str,
    /// Program images, processes and threads.
    shape: String,
    accesses: u64,
    ours: u64,
    linux: u64,
    /// Results that are not Linux's, and calls that were not replayed.
    remarks: usize,
}

impl Counted {
    fn percent(&self) -> f64 {
        (self.ours as f64 / self.linux.max(1) as f64 - 1.0) * 100.0
    }

    fn is_close(&self) -> bool {
        self.ours.abs_diff(self.linux) * 100 <= self.linux * TOLERANCE
    }
}

/// Records and replays the programs, or those of `names`, and compares their faults with Linux's.
///
/// # Errors
/// [`Error::Findings`], if a program could not be recorded or replayed, or too many differ.
pub(crate) fn run(names: &[&str]) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let pagewright = given_pagewright(&workspace)?;
    let folder = workspace.target_directory.join("recorded");
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let inputs = workspace.workspace_root.join("tests/programs/inputs.sh");
    cargo::status(Command::new("sh").arg(inputs).current_dir(&folder))?;
    let (mut counted, mut failed) = (Vec::new(), 0);
    for program in PROGRAMS.iter().filter(|program| names.is_empty() || names.contains(&program.name)) {
        match record_and_replay(&pagewright, &folder, program) {
            Ok(counts) => {
                println!("{}: {} faults, Linux {}: {:+.1} %", counts.name, counts.ours, counts.linux, counts.percent());
                counted.push(counts);
            }
            Err(error) => {
                println!("{} ({}): {error}", program.name, program.package);
                failed += 1;
            }
        }
    }
    let different = counted.iter().filter(|counts| !counts.is_close()).count();
    let page = workspace.workspace_root.join(PAGE);
    if names.is_empty() && failed == 0 {
        fs::write(&page, document(&counted)).map_err(Error::file(&page))?;
    }
    if failed == 0 && different <= EXCEPTIONS {
        Ok(())
    } else {
        Err(Error::Findings { check: "programs", count: failed + different })
    }
}

/// Records a program with a fixed environment, which is on its stack, and replays it.
fn record_and_replay(pagewright: &Path, folder: &Path, program: &Program) -> Result<Counted, Error> {
    let file = |suffix: &str| folder.join(format!("{}.{suffix}", program.name));
    let (capture, replayed, contents) = (file("pwt"), file("json"), file("info.json"));
    let quiet = |words: &[&str]| {
        let mut command = Command::new(pagewright);
        command.args(words).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let mut record = quiet(&["record", "--with", "valgrind", "-o"]);
    record.arg(&capture).arg("--").args(program.command.split(' ')).env_clear();
    record.envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("LC_ALL", "C.UTF-8")]);
    cargo::status(&mut record)?;
    cargo::status(quiet(&["replay", "--set", "cow_page_tables=never"]).arg(&capture).arg("--json").arg(&replayed))?;
    cargo::status(quiet(&["info"]).arg(&capture).arg("--json").arg(&contents))?;
    let read = |path: &Path| -> Result<Value, Error> {
        serde_json::from_slice(&fs::read(path).map_err(Error::file(path))?).map_err(Error::Replay)
    };
    let (replay, info) = (read(&replayed)?, read(&contents)?);
    let run = &replay["runs"][0];
    let list = |value: &Value| value.as_array().map_or(0, Vec::len);
    let sum = |value: &Value, name: &str| -> u64 {
        value.as_array().into_iter().flatten().filter_map(|item| item[name].as_u64()).sum()
    };
    let faults = |images: &Value| sum(images, "minor_faults") + sum(images, "major_faults");
    let contents = &info["contents"];
    let native = &info["header"]["native"]["images"];
    let accesses = ["fetches", "loads", "stores"].iter().filter_map(|name| contents[*name].as_u64()).sum();
    Ok(Counted {
        name: program.name,
        shape: format!(
            "{}, {}, {}",
            list(native),
            list(&contents["processes"]),
            sum(&contents["processes"], "threads")
        ),
        accesses,
        ours: faults(&run["images"]),
        linux: faults(native),
        remarks: list(&run["diverged"]) + list(&run["not_replayed"]),
    })
}

fn document(counted: &[Counted]) -> String {
    let close = counted.iter().filter(|counts| counts.is_close()).count();
    let mut text = format!(
        "# Twenty programs beside Linux\n\n\
         This page compares the page faults of recorded programs with Linux's own count for the same\n\
         command. Each program runs natively, without address randomisation, and under valgrind; the\n\
         recording is replayed on x86-64 (4 CPUs, 2 GiB, `cow_page_tables=never`, as on Linux). The counts\n\
         are those of all its program images, minor and major faults together: a page of a file that Linux\n\
         has not read yet is a major fault there. {close} of {} programs are within {TOLERANCE} %.\n\n\
         `cargo xtask programs` records and replays them again and writes this page; the long tests do so\n\
         too. Programs, libraries and Linux are those of the computer on which it ran last, so figures\n\
         differ elsewhere. [linux-counts.md](linux-counts.md) has six captures that are kept, image by\n\
         image, and what a replay lacks.\n\n\
         | program | command | what it is | images, processes, threads | accesses | faults | Linux | % | remarks |\n\
         | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
        counted.len()
    );
    for counts in counted {
        let program = PROGRAMS.iter().find(|program| program.name == counts.name);
        let (command, kind) = program.map_or(("", ""), |program| (program.command, program.kind));
        let Counted { name, shape, accesses, ours, linux, remarks } = counts;
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "| {name} | `{command}` | {kind} | {shape} | {accesses} | {ours} | {linux} | {:+.1} | {remarks} |",
            counts.percent()
        );
    }
    text.push_str("\nA remark is a call whose result was not Linux's, or that the replay leaves out.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_close_within_the_tolerance() {
        let counts = |ours, linux| Counted { name: "sort", shape: String::new(), accesses: 0, ours, linux, remarks: 0 };
        assert!(counts(105, 100).is_close() && counts(95, 100).is_close());
        assert!(!counts(106, 100).is_close() && !counts(94, 100).is_close());
        assert!(document(&[counts(90, 100)]).contains("0 of 1 programs are within 5 %"));
    }

    #[test]
    fn names_of_programs_are_unique() {
        for (index, program) in PROGRAMS.iter().enumerate() {
            assert!(PROGRAMS[..index].iter().all(|other| other.name != program.name), "{}", program.name);
        }
    }
}
