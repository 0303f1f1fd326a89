//! `pagewright check` as its users run it.

use std::process::{Command, Output, Stdio};

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagewright")).arg("check").args(args).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Refused with one line that has all of `words`.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = check(args);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{line}");
    assert!(output.stdout.is_empty() && words.iter().all(|word| line.contains(word)), "{line}");
}

#[test]
fn both_modes_on_both_machines_say_what_they_judged() {
    let output = check(&["--seed", "3", "--steps", "1500000", "--schedules", "500"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in [
        "x86-64\n",
        "arm64\n",
        "accesses checked",
        "measured",
        "calls of every sort",
        "process_vm_writev",
        "fcntl(F_ADD_SEALS)",
        "mprotect",
        "ENOMEM",
        "allocations refused",
        "with different traces",
        "O4 resident sets",
        "no mechanism",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_rule_that_judged_nothing_is_a_failure() {
    let output = check(&["--steps", "1", "--schedules", "0", "--arch", "arm64"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("never happened, so its rule judged nothing: O3 overlapped"), "{text}");
}

#[test]
fn a_program_that_is_right_is_run_again_without_a_finding() {
    let program = "hot-2-10-4/1/all";
    let output = check(&["--arch", "x86-64", "--program", "fast-2-4-20/1/all"]);
    assert_eq!((output.status.code(), said(&output).contains("nothing was found")), (Some(0), true));
    refused(&["--arch", "x86-64", "--program", program], &["token"]);
    refused(
        &["--arch", "x86-64", "--program", program, "--replay", "pw1/00000000/list/c0"],
        &["--replay", "another machine"],
    );
}

#[test]
fn what_can_not_be_meant_is_refused_in_one_line() {
    refused(&["--arch", "x86-64", "--program", "something"], &["--program", "something"]);
    refused(
        &["--arch", "x86-64", "--program", "fast-2-4-20/1/all", "--replay", "something"],
        &["--replay", "something"],
    );
    refused(&["--arch", "x86-64", "--program", "fast-2-4-20/1/all", "--replay", "pw1/00000000/list/c0"], &["schedule"]);
    refused(&["--program", "fast-2-4-20/1/all"], &["--arch"]);
    refused(&["--replay", "pw1/00000000/list/c0"], &["--program"]);
    refused(&["--arch", "sparc"], &["sparc"]);
    refused(&["--cpus", "0"], &["--cpus 0"]);
    refused(&["--seed", "x"], &["--seed"]);
}

/// A bug is found, cut down, and found again by the command that was printed.
#[cfg(feature = "planted")]
#[test]
fn the_printed_command_finds_a_bug_again() {
    for (bug, args) in [("no-flush", ["--steps", "100000"]), ("flush-before-clear", ["--schedules", "1000"])] {
        let mut all = vec!["--arch", "x86-64", "--plant", bug, "--explain"];
        all.extend(args);
        if bug != "no-flush" {
            all.push("--explore");
        }
        let output = check(&all);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let again = text.lines().find_map(|line| line.strip_prefix("again: pagewright check ")).expect("a command");
        let words: Vec<&str> = again.split(' ').collect();
        let output = check(&words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let first = |text: &str| text.lines().find(|line| line.starts_with("FOUND")).map(str::to_owned);
        assert_eq!(first(&said(&output)), first(&text));
    }
}

#[test]
fn beside_linux_answers_are_counted_and_differences_are_named() {
    let output = check(&["--against", "linux", "--steps", "5000", "--seed", "2"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in [
        "operations compared",
        "measured",
        "mremap",
        "ENOMEM",
        "SIGSEGV (not allowed)",
        "meant differences",
        "MAP_STACK",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let again = check(&["--against", "linux", "--program", "linux-1-4-160/2/all"]);
    assert_eq!((again.status.code(), said(&again).contains("both show the same")), (Some(0), true));
}

#[test]
fn what_can_t_be_compared_is_refused_in_one_line() {
    refused(&["--against", "plan9"], &["--against plan9", "only linux"]);
    refused(&["--against", "linux", "--arch", "arm64"], &["--against", "--arch"]);
    refused(&["--against", "linux", "--program", "linux-1"], &["--program", "linux-1"]);
    refused(&["--program", "linux-1-4-160/2/all"], &["--program", "--arch"]);
    refused(&["--arch", "arm64", "--program", "linux-1-4-160/2/all"], &["--against linux"]);
}
