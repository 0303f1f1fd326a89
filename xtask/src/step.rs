//! Steps: commands that run one after the other, each with a time limit and a count of tests.
//!
//! A step's standard output is shown only if the step fails; its standard error, such as cargo's
//! progress, is shown at once. Each step is a process group of its own, so the time limit and
//! Ctrl-C stop every process that it has started.
//!
//! Not guaranteed: the end of a process that leaves the process group.

use crate::error::Error;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How the line of a failed test ends.
const FAILED: &str = " ... FAILED";
/// The interval at which a running step is polled.
const POLL: Duration = Duration::from_millis(50);
/// The exit status of a shell after SIGINT.
const INTERRUPTED: i32 = 130;

/// The process group of the running step, or 0.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// A command to run.
pub(crate) struct Step {
    /// The heading.
    pub(crate) name: &'static str,
    /// The command.
    pub(crate) command: Command,
    /// The time after which the step is stopped and fails.
    pub(crate) limit: Duration,
}

/// The number of tests that passed and failed; a step without tests counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Passed.
    pub(crate) passed: usize,
    /// Failed.
    pub(crate) failed: usize,
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exit(ExitStatus),
    TimeLimit,
}

/// Runs all `steps` in order, even if one fails, and prints the total count.
///
/// # Errors
/// [`Error::Steps`], if a step failed; [`Error::Spawn`], if one could not be started.
pub(crate) fn run(steps: Vec<Step>) -> Result<(), Error> {
    ctrlc::set_handler(|| {
        stop(RUNNING.load(Ordering::SeqCst));
        std::process::exit(INTERRUPTED);
    })?;
    let start = Instant::now();
    let (mut total, mut failed_steps) = (Count::default(), Vec::new());
    for step in steps {
        println!("==== {}", step.name);
        let name = step.name;
        let (count, good, printed) = run_step(step)?;
        total.passed += count.passed;
        total.failed += count.failed;
        if !good {
            failed_steps.push((name, printed));
        }
    }
    println!("==== all steps: {:.1} s", start.elapsed().as_secs_f64());
    // Again at the end, where a log that was cut off still has them.
    for (name, printed) in &failed_steps {
        println!("{name}:");
        ended(printed, FAILED).for_each(|line| println!("{line}"));
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if failed_steps.is_empty() { Ok(()) } else { Err(Error::Steps(failed_steps.len())) }
}

/// Runs a step, and returns its count, whether it passed and what it printed.
fn run_step(mut step: Step) -> Result<(Count, bool, String), Error> {
    let start = Instant::now();
    let program = step.command.get_program().display().to_string();
    let mut child = step
        .command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| Error::Spawn { program: program.clone(), source })?;
    let group = child.id().cast_signed();
    RUNNING.store(group, Ordering::SeqCst);
    let mut pipe = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut printed = Vec::new();
        // A read error ends the output early; the exit status still decides.
        let _ = pipe.as_mut().map(|pipe| pipe.read_to_end(&mut printed));
        String::from_utf8_lossy(&printed).into_owned()
    });
    let end = wait(&mut child, group, start + step.limit).map_err(|source| Error::Spawn { program, source })?;
    RUNNING.store(0, Ordering::SeqCst);
    let printed = reader.join().unwrap_or_default();
    let good = matches!(end, End::Exit(status) if status.success());
    let count = count(&printed, good);
    let seconds = start.elapsed().as_secs_f64();
    if good {
        println!("     ok in {seconds:.1} s, {} passed", count.passed);
    } else {
        println!("{printed}");
        match end {
            End::Exit(status) => println!("     FAILED in {seconds:.1} s ({status}), {} failed", count.failed),
            End::TimeLimit => println!("     FAILED: stopped at its time limit of {} s", step.limit.as_secs()),
        }
    }
    Ok((count, good, printed))
}

fn wait(child: &mut Child, group: i32, deadline: Instant) -> std::io::Result<End> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exit(status));
        }
        if Instant::now() >= deadline {
            stop(group);
            child.wait()?;
            return Ok(End::TimeLimit);
        }
        thread::sleep(POLL);
    }
}

fn stop(group: i32) {
    if group > 0 {
        // It fails only if the group has already ended.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// The lines of the tests that ended so.
fn ended<'a>(printed: &'a str, how: &'a str) -> impl Iterator<Item = &'a str> {
    printed.lines().filter(move |line| line.starts_with("test ") && line.ends_with(how))
}

/// Counts the tests in the output of a step.
///
/// It counts libtest's lines and not its summaries, because a program that crashes prints none. A
/// step without tests counts as one, and a failed step has at least one failure.
fn count(printed: &str, good: bool) -> Count {
    let mut count = Count { passed: ended(printed, " ... ok").count(), failed: ended(printed, FAILED).count() };
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

    fn shell(script: &str, limit: Duration) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Step { name: "a script", command, limit }
    }

    const MINUTE: Duration = Duration::from_secs(60);

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
        assert!(matches!(run_step(shell("echo fine", MINUTE)), Ok((Count { passed: 1, failed: 0 }, true, _))));
        assert!(matches!(run_step(shell("exit 3", MINUTE)), Ok((Count { passed: 0, failed: 1 }, false, _))));
        let missing = Step { name: "nothing", command: Command::new("/nowhere/at-all"), limit: MINUTE };
        assert!(matches!(run_step(missing), Err(Error::Spawn { .. })));
    }

    #[test]
    fn the_time_limit_stops_every_process_of_a_step() {
        // The pipe stays open until both sleeps have ended, so this returns only if the whole group
        // was stopped.
        let ended = run_step(shell("sleep 600 & sleep 600", Duration::from_millis(200)));
        assert!(matches!(ended, Ok((Count { failed: 1, .. }, false, _))));
    }
}
