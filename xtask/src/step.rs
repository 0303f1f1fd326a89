//! Steps: what is built and then run, one step after the other, with a count of tests and a time.
//!
//! A step's standard output is shown only if the step fails; its standard error, such as cargo's
//! progress, is shown at once. Each command is a process group of its own ([`Group`]), so Ctrl-C
//! ends every process that it has started. No step has a time limit: [`crate::watch`] ends a test
//! that makes no progress.
//!
//! Not guaranteed: the end of a process that leaves the process group.

use crate::error::Error;
use crate::watch::{Group, processor_time};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How the line of a failed test ends.
const FAILED: &str = " ... FAILED";

/// Commands to run.
pub(crate) struct Step {
    /// The heading.
    pub(crate) name: &'static str,
    /// The commands that build what the step runs.
    pub(crate) build: Vec<Command>,
    /// The command that runs it.
    pub(crate) run: Command,
}

/// The number of tests that passed and failed; a step without tests counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Passed.
    pub(crate) passed: usize,
    /// Failed.
    pub(crate) failed: usize,
}

/// The result of a step.
#[derive(Debug)]
struct Ended {
    count: Count,
    good: bool,
    printed: String,
    build: Duration,
    run: Duration,
    /// The processor time of both.
    processor: Duration,
}

/// Runs all `steps` in order, even if one fails, and prints the times and the total count.
///
/// # Errors
/// [`Error::Steps`], if a step failed; [`Error::Spawn`], if one could not be started.
pub(crate) fn run(steps: Vec<Step>) -> Result<(), Error> {
    let mut ended = Vec::new();
    for step in steps {
        println!("==== {}", step.name);
        ended.push((step.name, run_step(step)?));
    }
    println!("{}", table(&ended));
    let failed = || ended.iter().filter(|(_, step)| !step.good);
    // Again at the end, where a log that was cut off still has them.
    for (name, step) in failed() {
        println!("{name}:");
        with_result(&step.printed, FAILED).for_each(|line| println!("{line}"));
    }
    let (mut passed, mut failed_tests) = (0, 0);
    for (_, step) in &ended {
        passed += step.count.passed;
        failed_tests += step.count.failed;
    }
    println!("{passed} passed, {failed_tests} failed");
    match failed().count() {
        0 => Ok(()),
        count => Err(Error::Steps(count)),
    }
}

/// The times of each step in seconds, and of all.
fn table(ended: &[(&str, Ended)]) -> String {
    let row = |name: &str, times: [Duration; 3]| {
        let [build, run, processor] = times.map(|time| time.as_secs_f64());
        format!("{name:58} {build:8.1} {run:8.1} {processor:10.1}")
    };
    let times = |step: &Ended| [step.build, step.run, step.processor];
    let sum = [0, 1, 2].map(|index| ended.iter().map(|(_, step)| times(step)[index]).sum());
    let mut lines = vec![format!("{:58} {:>8} {:>8} {:>10}", "==== seconds", "build", "run", "processor")];
    lines.extend(ended.iter().map(|(name, step)| row(name, times(step))));
    lines.push(row("all steps", sum));
    lines.join("\n")
}

/// Builds and runs a step.
fn run_step(step: Step) -> Result<Ended, Error> {
    let (start, used) = (Instant::now(), processor_time());
    let mut printed = String::new();
    let mut status = None;
    for command in step.build {
        let (ended, text) = run_command(command)?;
        printed.push_str(&text);
        status = Some(ended).filter(|ended| !ended.success());
        if status.is_some() {
            break;
        }
    }
    let build = start.elapsed();
    let status = match status {
        Some(failed) => failed,
        None => {
            let (ended, text) = run_command(step.run)?;
            printed = text;
            ended
        }
    };
    let good = status.success();
    let count = count(&printed, good);
    let elapsed = start.elapsed();
    if good {
        println!("     ok in {:.1} s, {} passed", elapsed.as_secs_f64(), count.passed);
    } else {
        println!("{printed}");
        println!("     FAILED in {:.1} s ({status}), {} failed", elapsed.as_secs_f64(), count.failed);
    }
    let processor = processor_time().saturating_sub(used);
    Ok(Ended { count, good, printed, build, run: elapsed - build, processor })
}

/// Runs a command, and returns what it printed.
fn run_command(mut command: Command) -> Result<(ExitStatus, String), Error> {
    let program = command.get_program().display().to_string();
    let (_group, mut child) = Group::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let mut printed = Vec::new();
    // A read error ends the output early; the exit status still decides.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut printed));
    let status = child.wait().map_err(|source| Error::Spawn { program, source })?;
    Ok((status, String::from_utf8_lossy(&printed).into_owned()))
}

/// The lines of the tests that ended so.
fn with_result<'a>(printed: &'a str, how: &'a str) -> impl Iterator<Item = &'a str> {
    printed.lines().filter(move |line| line.starts_with("test ") && line.ends_with(how))
}

/// Counts the tests in the output of a step.
///
/// It counts libtest's lines and not its summaries, because a program that crashes prints none. A
/// step without tests counts as one, and a failed step has at least one failure.
fn count(printed: &str, good: bool) -> Count {
    let mut count =
        Count { passed: with_result(printed, " ... ok").count(), failed: with_result(printed, FAILED).count() };
    if good && count.passed == 0 {
        count.passed = 1;
    }
    if !good {
        count.failed = count.failed.max(1);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn ended(build: &[&str], run: &str) -> Ended {
        let build = build.iter().map(|script| shell(script)).collect();
        run_step(Step { name: "scripts", build, run: shell(run) }).expect("sh runs")
    }

    #[test]
    fn tests_are_counted_and_other_steps_count_as_one() {
        let printed = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... ignored\n\
                       test result: ok. 2 passed; 0 failed; 1 ignored\n\
                       running 2 tests\ntest e ... FAILED\ntest f ... ok\n";
        assert_eq!(count(printed, false), Count { passed: 3, failed: 1 });
        assert_eq!(count("built", true), Count { passed: 1, failed: 0 });
        assert_eq!(count("", false), Count { passed: 0, failed: 1 });
        assert_eq!(count("test a ... ok\n", false), Count { passed: 1, failed: 1 }, "a failed step has a failure");
    }

    #[test]
    fn the_exit_status_decides_whether_a_step_fails() {
        let good = ended(&["exit 0"], "echo fine");
        assert_eq!((good.count, good.good), (Count { passed: 1, failed: 0 }, true));
        let bad = ended(&[], "exit 3");
        assert_eq!((bad.count, bad.good), (Count { passed: 0, failed: 1 }, false));
        let missing = Step { name: "nothing", build: Vec::new(), run: Command::new("/nowhere/at-all") };
        assert!(matches!(run_step(missing), Err(Error::Spawn { .. })));
    }

    #[test]
    fn a_step_whose_build_fails_runs_nothing() {
        let failed = ended(&["echo built; exit 1", "echo more"], "echo 'test a ... ok'");
        assert_eq!((failed.count, failed.printed.as_str()), (Count { passed: 0, failed: 1 }, "built\n"));
        let built = ended(&["echo 'test a ... ok'"], "echo 'test b ... ok'; echo 'test c ... ok'");
        assert_eq!(built.count, Count { passed: 2, failed: 0 }, "what a build prints is no test");
    }

    #[test]
    fn the_table_has_a_row_for_each_step_and_their_sum() {
        let step = |build, run, processor| Ended {
            count: Count::default(),
            good: true,
            printed: String::new(),
            build: Duration::from_secs(build),
            run: Duration::from_secs(run),
            processor: Duration::from_secs(processor),
        };
        let table = table(&[("one", step(1, 20, 30)), ("two", step(2, 40, 50))]);
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["one", "1.0", "20.0", "30.0"]);
        assert_eq!(words[3], ["all", "steps", "3.0", "60.0", "80.0"]);
    }
}
