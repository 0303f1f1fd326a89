//! `cargo xtask soak`: tests that search for hours, where `cargo xtask test` searches for minutes.
//!
//! It can be stopped at any time.
//!
//! Not guaranteed: the end of a test that hangs under Miri, which is not watched.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::mutate;
use crate::step::{self, Step};
use crate::watch;
use std::process::{Command, Stdio};

/// The cases of each property; `cargo xtask test` runs 256.
const CASES: &str = "200000";

/// The accesses of random programs, on each instruction set.
const STEPS: &str = "100000000";
/// The different schedules of random programs, on each instruction set.
const SCHEDULES: &str = "100000";
/// The operations that are compared with Linux; `cargo xtask test` compares 100,000.
const BESIDE_LINUX: &str = "10000000";
/// The boots of the kernel; `cargo xtask test` makes each of them once.
const BOOTS: &str = "2000";

/// The modules of tests that the soak searches longer: races, and allocations that fail.
const SEARCHES: [&str; 13] = [
    "swap::",
    "reclaim::",
    "space::",
    "fault::",
    "file::",
    "gup::",
    "refused::",
    "share::",
    "migrate::",
    "numa::",
    "batch_races::",
    "ledger_races::",
    "walker_races::",
];

/// The tests of `frame` that Miri runs, by module; others need much memory, or threads for long.
const MIRI_OF_FRAME: [&str; 3] = ["table_page::", "linear::", "debts::"];

/// Runs the steps.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let cargo = |words: &[&str]| {
        let mut command = cargo::command();
        command.args(words).current_dir(&workspace.workspace_root);
        command
    };
    // Each program that cargo builds runs under the watchdog; nested tasks have their own.
    let watched = watch::cargo_options(watch::LONG)?;
    let search = |words: &[&str]| {
        let mut command = cargo(words);
        command.args(&watched);
        command
    };
    // Tests that search longer in a soak.
    let longer = |packages: &[&str], binary: &str, modules: &[&str]| {
        let mut command = search(&["test", "--release", "--test", binary]);
        command.args(packages.iter().flat_map(|package| ["--package", *package]));
        command.args(["--", "--nocapture"]).args(modules).env("PAGEWRIGHT_SOAK", "1");
        command
    };
    let mut planted = search(&["test", "--release", "--package", "pagewright-fuzz", "--package", "pagewright-tlb"]);
    planted.args(["--test", "all", "--features", "pagewright-fuzz/planted,pagewright-tlb/planted"]);
    planted.args(["--", "--nocapture", "planted"]).env("PAGEWRIGHT_SOAK", "1");
    let mut random = search(&["run", "--release", "--package", "pagewright", "--", "check"]);
    random.args(["--steps", STEPS, "--schedules", SCHEDULES]);
    let mut families = search(&["run", "--release", "--package", "pagewright", "--", "check", "--theme", "families"]);
    families.args(["--schedules", SCHEDULES]);
    let mut beside_linux = search(&["test", "--release", "--package", "pagewright-fuzz", "--test", "against_linux"]);
    beside_linux.env("PAGEWRIGHT_AGAINST_LINUX", BESIDE_LINUX);
    let mut properties = search(&["test", "--workspace", "--lib", "--tests", "--no-fail-fast"]);
    // Rejected cases scale with the number of cases; a failing case of this many is minimised.
    properties.env("PROPTEST_CASES", CASES).env("PROPTEST_MAX_GLOBAL_REJECTS", CASES);
    properties.env("PROPTEST_MAX_SHRINK_ITERS", "1000000");
    let mut steps = miri(&workspace);
    steps.extend([
        step("library crates on bare metal", cargo(&["xtask", "no-std"])),
        step("each package builds from its own archive", cargo(&["xtask", "package", "build"])),
        step("random programs under the oracle", random),
        step("breaks, pins, reclaim and ends of spaces that share page tables, interleaved", families),
        step(
            "10,000,000 random operations of every memory call",
            longer(&["pagewright-fuzz"], "all", &["random_calls::"]),
        ),
        step(
            "races of the memory manager in 100 times as many schedules, and every failure",
            longer(&["pagewright-mm", "pagewright-tlb"], "all", &SEARCHES),
        ),
        step("planted bugs are found from several seeds", planted),
        step("all captures give the same figures for the same seed", cargo(&["xtask", "repeat"])),
        step("whole workloads repeat", longer(&["pagewright-capture"], "all", &["determinism::"])),
        step("the longest counted evaluation writes the same document twice", longer(&["pagewright"], "evaluate", &[])),
        step("twenty programs take Linux's faults", cargo(&["xtask", "programs"])),
        step("a capture of 10 GB replays in constant memory", longer(&["pagewright-capture"], "replay_memory", &[])),
        step("programs on the kernel in QEMU, also with planted bugs", cargo(&["xtask", "boot", "planted"])),
        step("programs of Debian and random system calls on the kernel", cargo(&["xtask", "boot", "long"])),
        step("stressors of memory and processes that pass on Linux", cargo(&["xtask", "boot", "stressors"])),
        step("2,000 boots of the kernel", cargo(&["xtask", "boot", "repeat", BOOTS])),
        step("10,000,000 operations match Linux", beside_linux),
        step("properties, 200,000 cases each", properties),
    ]);
    steps.extend(scripts(&workspace));
    let steps = step::run(steps);
    println!("==== a sample of mutants, and the tests that notice them");
    let mutants = mutate::run(&[]);
    steps.and(mutants)
}

/// A step that builds what it runs.
fn step(name: &'static str, run: Command) -> Step {
    Step { name, build: Vec::new(), run }
}

/// The scripts in `tests`.
fn scripts(workspace: &Workspace) -> [Step; 3] {
    let script = |name: &'static str, file: &str, arguments: &[&str]| {
        let mut command = Command::new(workspace.workspace_root.join("tests").join(file));
        command.args(arguments);
        step(name, command)
    };
    let (own, published) = ("crates/check/tests/user_crate.rs", "tests/published/hyperlight.rs");
    let dependency = "hyperlight-common = \"=0.18.0\"";
    [
        script("four jobs of Debian take Linux's faults", "jobs.sh", &[]),
        script("the README's test fails without its flush", "failing-test.sh", &[own, "INV-ORACLE-O1"]),
        script(
            "a published crate's test fails without its caller's flush",
            "failing-test.sh",
            &[published, "INV-ORACLE-O1 INV-ORACLE-O2", dependency],
        ),
    ]
}

/// The crates with unsafe code under Miri, which interprets them and reports undefined behaviour.
///
/// None, with a line that says so, if there is no nightly toolchain with Miri.
fn miri(workspace: &Workspace) -> Vec<Step> {
    let nightly = |words: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo", "miri"]).args(words);
        command.current_dir(&workspace.workspace_root).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        // A property needs few cases, because Miri is a thousand times slower. Tests of dropped
        // values leak them.
        command.env("PROPTEST_CASES", "4").env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks");
        command.env("CARGO_TARGET_DIR", workspace.target_directory.join("miri"));
        command
    };
    let version = nightly(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!("Miri is skipped: `rustup toolchain install nightly --component miri rust-src` installs it");
        return Vec::new();
    }
    let of_sync = nightly(&["test", "--package", "pagewright-sync", "--features", "std", "--lib", "--test", "host"]);
    let of_frame = nightly(&["test", "--package", "pagewright-frame", "--lib"]);
    let mut beside_frame = nightly(&["test", "--package", "pagewright-frame", "--test", "all", "--"]);
    beside_frame.args(MIRI_OF_FRAME);
    vec![
        step("locks and containers under Miri", of_sync),
        step("frames under Miri", of_frame),
        step("tables and debts of frames under Miri", beside_frame),
    ]
}
