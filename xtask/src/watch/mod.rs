//! A watchdog: ends a test or a boot that makes no progress, and names it.
//!
//! A program may spend so much time of its own ([`own_time`]) until it ends, or until it ends one
//! more of its tests ([`transcript`]). It spends the time in which it runs or sleeps. The time in
//! which it waits for a CPU is not its own, so a busy machine ends nothing. Builds are not watched:
//! [`cargo`] has cargo run each program that it has built under `xtask watch`.
//!
//! **INV-WATCH-OWN** `cargo xtask test` ends a test or a boot exactly if it has spent its time
//! without progress: the time in which it sleeps or runs, and not that in which it waits for a CPU.
//! Otherwise a hang would stop the whole run, or a busy machine a test that would pass.
//!
//! **INV-WATCH-NAME** A test that is ended so counts as failed, and its name is printed.
//!
//! Not guaranteed: a fair count on a virtual machine whose host gives its CPUs to others, because a
//! program that runs then seems to sleep; nor without Linux's `/proc`, where all time counts.

mod group;
mod own_time;
mod transcript;

pub(crate) use group::{Group, end_all_at_interrupt, processor_time};

use crate::cargo;
use crate::error::Error;
use own_time::OwnTime;
use std::fmt;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use transcript::Transcript;

/// The time that a test of `cargo xtask test`, or another short program, may spend.
///
/// The longest test takes a minute on an idle machine.
pub(crate) const SHORT: Duration = Duration::from_secs(600);
/// The time that a test of the soak may spend.
pub(crate) const LONG: Duration = Duration::from_secs(4 * 3600);
/// The interval at which the processes of a program are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// A program that was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stuck {
    program: String,
    /// The tests that ran.
    test: Option<String>,
    allowed: Duration,
    /// What libtest prints if a test fails, for the tests that ran.
    failure: String,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(test) = &self.test {
            write!(f, "{test} of ")?;
        }
        write!(f, "{} ended by the watchdog: no progress in {} s of its own", self.program, self.allowed.as_secs())
    }
}

/// A part of what a program printed.
enum Printed {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// The end of a program.
struct Watched {
    status: ExitStatus,
    stuck: Option<Stuck>,
}

/// Runs a program, which may spend `allowed`, and returns what it printed.
///
/// If it is ended, its standard error says so at the end.
///
/// # Errors
/// [`Error::Spawn`], if it could not be started.
pub(crate) fn output(command: &mut Command, allowed: Duration) -> Result<Output, Error> {
    Ok(collect(command, OwnTime::new(allowed), INTERVAL)?.0)
}

/// As [`output`], of a test program; if it is ended, the test that ran counts as failed.
///
/// # Errors
/// As [`output`].
pub(crate) fn test_output(command: &mut Command, allowed: Duration) -> Result<Output, Error> {
    let (mut output, stuck) = collect(command, OwnTime::new(allowed), INTERVAL)?;
    output.stdout.extend(stuck.into_iter().flat_map(|stuck| stuck.failure.into_bytes()));
    Ok(output)
}

fn collect(command: &mut Command, own: OwnTime, interval: Duration) -> Result<(Output, Option<Stuck>), Error> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let Watched { status, stuck } = watch(command.stderr(Stdio::piped()), own, interval, |printed| match printed {
        Printed::Out(bytes) => stdout.extend(bytes),
        Printed::Err(bytes) => stderr.extend(bytes),
    })?;
    stderr.extend(stuck.iter().flat_map(|stuck| format!("{stuck}\n").into_bytes()));
    Ok((Output { status, stdout, stderr }, stuck))
}

/// `cargo xtask watch SECONDS PROGRAM ARGUMENT…`: runs a program, and returns its exit status.
///
/// The program prints as it does by itself.
///
/// # Errors
/// [`Error::Spawn`], if it could not be started.
pub(crate) fn runner(words: &[&str]) -> Result<ExitCode, Error> {
    let usage = || Error::Usage(format!("watch {}", words.join(" ")));
    let [seconds, program, arguments @ ..] = words else { return Err(usage()) };
    let allowed = Duration::from_secs(seconds.parse().map_err(|_| usage())?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // Nothing can be done for a reader that has ended.
    let show = |bytes: &[u8]| _ = std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush());
    let Watched { status, stuck } = watch(&mut command, OwnTime::new(allowed), INTERVAL, |printed| match printed {
        // Standard error is inherited.
        Printed::Out(bytes) | Printed::Err(bytes) => show(&bytes),
    })?;
    if let Some(stuck) = stuck {
        show(stuck.failure.as_bytes());
        eprintln!("{stuck}");
    }
    // A program that a signal ended has no status.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The options with which cargo runs each program that it has built under the watchdog.
///
/// Tests, examples in documentation and `cargo run` are such programs; build scripts are not.
///
/// # Errors
/// [`Error::Program`], if rustc does not run.
pub(crate) fn cargo_options(allowed: Duration) -> Result<[String; 2], Error> {
    let this = std::env::current_exe().map_err(Error::file("xtask"))?;
    let words = [this.display().to_string(), "watch".to_owned(), allowed.as_secs().to_string()];
    // Strings of JSON are strings of TOML.
    Ok(["--config".to_owned(), format!("target.{}.runner={}", cargo::host()?, serde_json::to_string(&words)?)])
}

/// Runs a program, calls `show` with what it prints, and ends it if it has spent its time.
fn watch(
    command: &mut Command,
    mut own: OwnTime,
    interval: Duration,
    mut show: impl FnMut(Printed),
) -> Result<Watched, Error> {
    let program = command.get_program().display().to_string();
    let (group, mut child) = Group::start(command.stdout(Stdio::piped()))?;
    let (to, printed) = channel();
    forward(child.stdout.take(), Printed::Out, to.clone());
    forward(child.stderr.take(), Printed::Err, to);
    let mut transcript = Transcript::default();
    let is_stuck = is_stuck(&printed, &group, &mut own, interval, |printed| {
        let ended = transcript.ended;
        if let Printed::Out(bytes) = &printed {
            transcript.push(bytes);
        }
        show(printed);
        transcript.ended > ended
    });
    let stuck = is_stuck.then(|| {
        group.kill();
        let (test, failure) = (transcript.running(), transcript.failure(&program));
        Stuck { program: program.clone(), test, allowed: own.allowed(), failure }
    });
    let status = child.wait().map_err(|source| Error::Spawn { program, source })?;
    Ok(Watched { status, stuck })
}

/// Waits until every process has closed its output; returns whether the time was spent before.
///
/// `take` gets what was printed, and returns whether that is progress.
fn is_stuck(
    printed: &Receiver<Printed>,
    group: &Group,
    own: &mut OwnTime,
    interval: Duration,
    mut take: impl FnMut(Printed) -> bool,
) -> bool {
    let mut next = Instant::now() + interval;
    loop {
        match printed.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(printed) => {
                if take(printed) {
                    own.restart();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= next {
            // An interval in which the watchdog itself did not run counts once.
            if own.spend(interval, group.usage()) {
                return true;
            }
            next = Instant::now() + interval;
        }
    }
}

/// Sends what is read from `pipe`, until every process has closed it.
fn forward(pipe: Option<impl Read + Send + 'static>, part: fn(Vec<u8>) -> Printed, to: Sender<Printed>) {
    let Some(mut pipe) = pipe else { return };
    thread::spawn(move || {
        let mut buffer = [0; 1 << 14];
        // A read error ends the output early; the exit status still decides.
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if to.send(part(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches a script, which may spend a second of its own; returns its status and its output.
    fn watched(script: &str) -> (ExitStatus, String, String) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let own = OwnTime::new(Duration::from_secs(1));
        let (output, stuck) = collect(&mut command, own, Duration::from_millis(50)).expect("sh runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let failure = stuck.map_or(String::new(), |stuck| stuck.failure);
        (output.status, text(output.stdout) + &failure, text(output.stderr))
    }

    // INV-WATCH-OWN, INV-WATCH-NAME
    #[test]
    fn a_test_that_sleeps_or_spins_for_ever_is_ended_and_named() {
        for hang in ["sleep 600", "while :; do :; done", "sleep 600 & sleep 600", "(while :; do :; done) & wait"] {
            let (status, stdout, stderr) = watched(&format!("printf 'test a ... ok\ntest b::c ... '; {hang}"));
            assert!(!status.success(), "{hang}");
            assert_eq!(stdout, "test a ... ok\ntest b::c ... FAILED\n", "{hang}");
            assert_eq!(stderr, "b::c of sh ended by the watchdog: no progress in 1 s of its own\n", "{hang}");
        }
    }

    // INV-WATCH-NAME
    #[test]
    fn a_program_that_is_ended_without_a_test_is_named_itself() {
        let (_, stdout, stderr) = watched("echo text; printf more; sleep 600");
        assert_eq!(stdout, "text\nmore\ntest sh ... FAILED\n");
        assert_eq!(stderr, "sh ended by the watchdog: no progress in 1 s of its own\n");
    }

    // INV-WATCH-OWN
    #[test]
    fn a_program_whose_tests_end_one_by_one_is_not_ended() {
        let (status, stdout, stderr) =
            watched("for i in $(seq 15); do printf \"test $i ... \"; sleep 0.1; echo ok; done; exit 3");
        assert_eq!((status.code(), stdout.lines().count(), stderr.as_str()), (Some(3), 15, ""));
    }

    #[test]
    fn cargo_gets_the_program_with_its_arguments_as_words() {
        let [option, value] = cargo_options(SHORT).expect("rustc runs, since it built this");
        assert_eq!(option, "--config");
        assert!(value.starts_with("target.") && value.ends_with(",\"watch\",\"600\"]"), "{value}");
    }
}
