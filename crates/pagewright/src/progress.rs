//! Progress on standard error: a bar on a terminal, a line at intervals elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use pagewright_capture::replay::EventSource;
use pagewright_capture::trace::{TraceError, TraceEvent, TraceHeader, TraceReader};
use std::io::{IsTerminal, Read};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time between two lines.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Prints a line at intervals, from another thread, until it is dropped.
pub(crate) struct Heartbeat {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Calls `print` at intervals if standard error is no terminal: indicatif hides bars there.
    fn without_terminal(print: impl Fn() + Send + 'static) -> Option<Self> {
        (!std::io::stderr().is_terminal()).then(|| Self::start(INTERVAL, print))
    }

    /// Calls `print` at each end of an `interval`.
    pub(crate) fn start(interval: Duration, print: impl Fn() + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let beat = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                print();
            }
        };
        Self { stop: Some(stop), thread: Some(thread::spawn(beat)) }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A line that cannot be printed, because standard error is closed, is no error.
            let _ = thread.join();
        }
    }
}

/// The step that a long command has reached: a spinner on a terminal, or a line at intervals.
pub(crate) struct StepProgress {
    bar: ProgressBar,
    step: Arc<Mutex<String>>,
    _heartbeat: Option<Heartbeat>,
}

impl StepProgress {
    /// Begins to show the steps of `command`.
    pub(crate) fn start(command: &'static str) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        let (step, began) = (Arc::new(Mutex::new(String::new())), Instant::now());
        let shown = Arc::clone(&step);
        let print = move || {
            let step = shown.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("{}", step_line(command, &step, began.elapsed()));
        };
        Self { bar, step, _heartbeat: Heartbeat::without_terminal(print) }
    }

    /// Shows nothing.
    #[cfg(test)]
    pub(crate) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), step: Arc::default(), _heartbeat: None }
    }

    /// Shows the current step.
    pub(crate) fn show(&self, step: &str) {
        step.clone_into(&mut self.step.lock().unwrap_or_else(PoisonError::into_inner));
        self.bar.set_message(step.to_owned());
        self.bar.tick();
    }

    /// Hides the spinner while `print` writes to the terminal.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The line of a heartbeat.
fn step_line(command: &str, step: &str, elapsed: Duration) -> String {
    format!("pagewright: {command}, {} s: {step}", elapsed.as_secs())
}

/// How much of a trace all replays of a command have read: a bar, or a line at intervals.
pub(crate) struct ReplayProgress {
    /// Its position is the number of bytes read.
    bar: ProgressBar,
    _heartbeat: Option<Heartbeat>,
}

impl ReplayProgress {
    /// Begins to show `replays` replays of a trace that is `bytes` long; `label` names it.
    pub(crate) fn start(bytes: u64, replays: usize, label: String) -> Self {
        let all = bytes * replays as u64;
        let bar = ProgressBar::new(all).with_message(label.clone());
        if let Ok(style) = ProgressStyle::with_template("{msg:24!} {bar:40} {percent:>3}% {eta}") {
            bar.set_style(style);
        }
        let so_far = bar.clone();
        let print = move || eprintln!("{}", replay_line(&label, so_far.position(), all, replays));
        Self { bar, _heartbeat: Heartbeat::without_terminal(print) }
    }
}

impl Drop for ReplayProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The line of a heartbeat.
fn replay_line(label: &str, read: u64, all: u64, replays: usize) -> String {
    let of = if replays == 1 { "replayed".to_owned() } else { format!("of {replays} replays done") };
    format!("pagewright: {label}: {} % {of}", read * 100 / all.max(1))
}

/// A trace reader that shows how much it has read.
pub(crate) struct ProgressReader<R: Read> {
    reader: TraceReader<R>,
    progress: Arc<ReplayProgress>,
    /// Bytes that `progress` has of this reader.
    shown: u64,
}

impl<R: Read> ProgressReader<R> {
    pub(crate) fn new(reader: TraceReader<R>, progress: Arc<ReplayProgress>) -> Self {
        Self { reader, progress, shown: 0 }
    }
}

impl<R: Read> EventSource for ProgressReader<R> {
    fn header(&self) -> &TraceHeader {
        self.reader.header()
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        let more = self.reader.offset() - self.shown;
        self.shown += more;
        self.progress.bar.inc(more);
        self.reader.next_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_command_takes_how_long_for_what() {
        let line = step_line("evaluate", "forks of 512 MiB", Duration::from_millis(31_900));
        assert_eq!(line, "pagewright: evaluate, 31 s: forks of 512 MiB");
    }

    #[test]
    fn a_line_is_about_all_replays_together() {
        assert_eq!(replay_line("a.pwt", 50, 100, 1), "pagewright: a.pwt: 50 % replayed");
        assert_eq!(replay_line("a.pwt", 150, 600, 6), "pagewright: a.pwt: 25 % of 6 replays done");
    }

    #[test]
    fn the_step_that_is_shown_is_the_last_one() {
        let progress = StepProgress::hidden();
        ["first", "second"].iter().for_each(|step| progress.show(step));
        assert_eq!(*progress.step.lock().expect("no panic"), "second");
    }

    #[test]
    fn a_heartbeat_prints_again_and_again_and_stops_when_dropped() {
        let (printed, prints) = mpsc::channel();
        let heartbeat = Heartbeat::start(Duration::from_millis(1), move || _ = printed.send(()));
        assert_eq!([prints.recv(), prints.recv()], [Ok(()); 2]);
        drop(heartbeat);
        assert!(prints.iter().count() < usize::MAX, "the sender is dropped with the thread");
    }
}
