//! Steps: commands run one after the other, each under a heading, with a time limit and a count of
//! what passed.
//!
//! A step's standard output is kept and shown only when the step fails; its standard error (cargo's
//! progress) is shown as it comes. Each step is a process group of its own, so that at its time
//! limit, and at Ctrl-C, everything it started is stopped.
//!
//! Not guaranteed: an end to what leaves the process group.

use crate::error::Error;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running step is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The shell's exit status after SIGINT.
const INTERRUPTED: i32 = 130;

/// Process group of the running step; 0 when none runs.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Something to be run.
pub(crate) struct Step {
    /// The heading.
    pub(crate) name: &'static str,
    /// What is run.
    pub(crate) command: Command,
    /// When it is stopped and counts as failed.
    pub(crate) limit: Duration,
}

/// What was counted: tests where a step ran tests, else steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// How many passed.
    pub(crate) passed: usize,
    /// How many failed.
    pub(crate) failed: usize,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exit(ExitStatus),
    TimeLimit,
}

/// Runs `steps` in order, all of them whatever fails, and prints the count last.
///
/// # Errors
/// [`Error::Steps`] when one failed; [`Error::Spawn`] when one could not be started.
pub(crate) fn run(steps: Vec<Step>) -> Result<(), Error> {
    ctrlc::set_handler(|| {
        stop(RUNNING.load(Ordering::SeqCst));
        std::process::exit(INTERRUPTED);
    })?;
    let start = Instant::now();
    let (mut total, mut failed_steps) = (Count::default(), 0);
    for step in steps {
        println!("==== {}", step.name);
        let (count, good) = one(step)?;
        total.passed += count.passed;
        total.failed += count.failed;
        failed_steps += usize::from(!good);
    }
    println!("==== all steps: {:.1} s", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed", total.passed, total.failed);
    if failed_steps == 0 { Ok(()) } else { Err(Error::Steps(failed_steps)) }
}

fn one(mut step: Step) -> Result<(Count, bool), Error> {
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
    Ok((count, good))
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
        thread::sleep(LOOK);
    }
}

fn stop(group: i32) {
    if group > 0 {
        // It fails only when the group is gone already.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// Counts libtest's lines in what a step printed; its summaries would miss the tests of a program
/// that died before it printed one. A step without tests counts as one, and a failed step counts at
/// least one failure.
fn count(printed: &str, good: bool) -> Count {
    let ended = |how: &str| printed.lines().filter(|line| line.starts_with("test ") && line.ends_with(how)).count();
    let mut count = Count { passed: ended(" ... ok"), failed: ended(" ... FAILED") };
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
    fn tests_are_added_up_and_other_steps_count_as_one() {
        let printed = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... ignored\n\
                       test result: ok. 2 passed; 0 failed; 1 ignored\n\
                       running 2 tests\ntest e ... FAILED\ntest f ... ok\n";
        assert_eq!(count(printed, false), Count { passed: 3, failed: 1 });
        assert_eq!(count("built", true), Count { passed: 1, failed: 0 });
        assert_eq!(count("", false), Count { passed: 0, failed: 1 });
        assert_eq!(
            count("test a ... ok\n", false),
            Count { passed: 1, failed: 1 },
            "the step failed, so something did"
        );
    }

    #[test]
    fn the_exit_status_decides() {
        assert!(matches!(one(shell("echo fine", MINUTE)), Ok((Count { passed: 1, failed: 0 }, true))));
        assert!(matches!(one(shell("exit 3", MINUTE)), Ok((Count { passed: 0, failed: 1 }, false))));
        let missing = Step { name: "nothing", command: Command::new("/nowhere/at-all"), limit: MINUTE };
        assert!(matches!(one(missing), Err(Error::Spawn { .. })));
    }

    #[test]
    fn at_the_time_limit_everything_the_step_started_is_stopped() {
        // The pipe stays open until the inner sleep is gone too: without the group's end this would
        // wait for it.
        let ended = one(shell("sleep 600 & sleep 600", Duration::from_millis(200)));
        assert!(matches!(ended, Ok((Count { failed: 1, .. }, false))));
    }
}
