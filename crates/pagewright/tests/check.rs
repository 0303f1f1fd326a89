//! `pagewright check` as a command: output, exit status and refusals.

use std::process::{Command, Output, Stdio};

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagewright")).arg("check").args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that the command is refused with one line that has all of `words`.
#[track_caller]
fn assert_refused(args: &[&str], words: &[&str]) {
    let output = check(args);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{line}");
    assert!(output.stdout.is_empty() && words.iter().all(|word| line.contains(word)), "{line}");
}

/// Asserts that the command succeeds and prints all of `words`.
#[track_caller]
fn assert_prints(args: &[&str], words: &[&str]) {
    let output = check(args);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in words {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_check_prints_what_it_ran_and_judged_on_both_machines() {
    let words = [
        "x86-64\n",
        "arm64\n",
        "accesses checked",
        "measured",
        "one operation at a time",
        "mostly system calls",
        "interleaved",
        "process_vm_writev",
        "fcntl(F_ADD_SEALS)",
        "mprotect",
        "ENOMEM",
        "allocations refused",
        "with different traces",
        "O4 resident sets",
        "no mechanism",
    ];
    assert_prints(&["--seed", "4", "--steps", "1500000", "--schedules", "1000"], &words);
}

#[test]
fn a_rule_that_judged_nothing_fails_the_check() {
    let output = check(&["--steps", "1", "--schedules", "0", "--arch", "arm64"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("never happened, so its rule judged nothing: O3 overlapped"), "{text}");
}

#[test]
fn a_correct_program_runs_without_a_finding() {
    let program = "hot-2-10-4/1/all";
    let output = check(&["--arch", "x86-64", "--program", "fast-2-4-20/1/all"]);
    assert_eq!((output.status.code(), stdout(&output).contains("no finding")), (Some(0), true));
    assert_refused(&["--arch", "x86-64", "--program", program], &["token"]);
    assert_refused(
        &["--arch", "x86-64", "--program", program, "--replay", "pw1/00000000/list/c0"],
        &["--replay", "another machine"],
    );
}

#[test]
fn bad_options_are_refused_in_one_line() {
    assert_refused(&["--arch", "x86-64", "--program", "something"], &["--program", "something"]);
    assert_refused(
        &["--arch", "x86-64", "--program", "fast-2-4-20/1/all", "--replay", "something"],
        &["--replay", "something"],
    );
    assert_refused(
        &["--arch", "x86-64", "--program", "fast-2-4-20/1/all", "--replay", "pw1/00000000/list/c0"],
        &["schedule"],
    );
    assert_refused(&["--program", "fast-2-4-20/1/all"], &["--arch"]);
    assert_refused(&["--replay", "pw1/00000000/list/c0"], &["--program"]);
    assert_refused(&["--arch", "sparc"], &["sparc"]);
    assert_refused(&["--cpus", "0"], &["--cpus 0"]);
    assert_refused(&["--seed", "x"], &["--seed"]);
}

/// CPU 3 is on a slow tier's node in fast mode, and does not exist in other programs.
#[test]
fn programs_run_on_machines_with_several_nodes() {
    let nodes = ["--node", "0:8M", "--node", "1:8M,cpus=1,3", "--node", "2:8M", "--distance", "0,2:31"];
    let some = ["--seed", "5", "--steps", "150000", "--schedules", "60", "--theme", "hot"];
    assert_prints(&[&some[..], &nodes].concat(), &["interleaved"]);
    let program = ["--arch", "arm64", "--program", "fast-4-8-120/7/all"];
    assert_prints(&[&program[..], &nodes].concat(), &["no finding"]);
    assert_prints(&[&["--arch", "x86-64", "--program", "calls-2-8-500/3/all"], &nodes[..]].concat(), &["no finding"]);
    // Other sizes, CPUs or distances are another machine, to which a token does not belong.
    let fingerprint = |nodes: &[&str]| {
        let args = ["--arch", "x86-64", "--program", "hot-2-10-4/1/all", "--replay", "pw1/00000000/list/c0"];
        let text = String::from_utf8_lossy(&check(&[&args, nodes].concat()).stderr).into_owned();
        assert!(text.contains("another machine"), "{text}");
        text.rsplit(' ').next().map(str::to_owned)
    };
    let machines: [&[&str]; 5] = [
        &[],
        &["--node", "0:8M", "--node", "1:8M"],
        &["--node", "0:8M", "--node", "1:4M"],
        &["--node", "0:8M", "--node", "1:8M,cpus=1"],
        &["--node", "0:8M", "--node", "1:8M", "--distance", "0,1:31"],
    ];
    let all: std::collections::BTreeSet<_> = machines.iter().map(|nodes| fingerprint(nodes)).collect();
    assert_eq!(all.len(), machines.len(), "{all:?}");
}

#[cfg(feature = "planted")]
#[test]
fn the_printed_command_reproduces_a_finding() {
    for (bug, args) in [("no-flush", ["--steps", "100000"]), ("flush-before-clear", ["--schedules", "1000"])] {
        let mut all = vec!["--arch", "x86-64", "--plant", bug, "--explain"];
        all.extend(args);
        if bug != "no-flush" {
            all.push("--explore");
        }
        let output = check(&all);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let command = text.lines().find_map(|line| line.strip_prefix("reproduce with: pagewright check "));
        let words: Vec<&str> = command.expect("a command is printed").split(' ').collect();
        let output = check(&words);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let first = |text: &str| text.lines().find(|line| line.starts_with("FOUND")).map(str::to_owned);
        assert_eq!(first(&stdout(&output)), first(&text));
    }
}

#[test]
fn a_comparison_with_linux_counts_results_and_lists_known_differences() {
    let words = [
        "operations compared",
        "measured",
        "mremap",
        "ENOMEM",
        "SIGSEGV (not allowed)",
        "known differences",
        "MADV_PAGEOUT of shared memory",
    ];
    assert_prints(&["--against", "linux", "--steps", "5000", "--seed", "2"], &words);
    let again = check(&["--against", "linux", "--program", "linux-1-4-160/2/all"]);
    assert_eq!((again.status.code(), stdout(&again).contains("same results here and on Linux")), (Some(0), true));
}

#[test]
fn bad_options_of_a_comparison_are_refused_in_one_line() {
    assert_refused(&["--against", "plan9"], &["--against plan9", "must be linux"]);
    assert_refused(&["--against", "linux", "--arch", "arm64"], &["--against", "--arch"]);
    assert_refused(&["--against", "linux", "--theme", "hot"], &["--theme", "--against linux", "must be huge"]);
    assert_refused(&["--against", "linux", "--program", "linux-1"], &["--program", "linux-1"]);
    assert_refused(&["--program", "linux-1-4-160/2/all"], &["--program", "--arch"]);
    assert_refused(&["--arch", "arm64", "--program", "linux-1-4-160/2/all"], &["--against linux"]);
}
