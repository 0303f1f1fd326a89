//! Linux's counts for each process of a program.
//!
//! The counts are read from procfs while a process is stopped at `PTRACE_EVENT_EXIT`: after its
//! last instruction, and before the kernel frees its memory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use nix::sys::personality::{self, Persona};
use nix::unistd::Pid;

use super::error::RecordError;
use super::tracer::{Watcher, follow};
use crate::ImageCounts;
use crate::cleanup::ScratchDir;
use crate::trace::NativeCounts;

/// Runs the program without address randomisation; returns Linux's counts and the exit status.
pub(super) fn measure(
    program: &str,
    args: &[String],
    input: Stdio,
    scratch: &ScratchDir,
) -> Result<(NativeCounts, i32), RecordError> {
    let path = scratch.file("output");
    // The output goes to a file, because some programs skip their work if it is /dev/null.
    let output = File::create(&path).map_err(|source| RecordError::Io { path, source })?;
    let mut command = Command::new(program);
    command.args(args);
    let mut counters = Counters::default();
    // The program inherits the personality of this thread, which is then restored.
    let before = personality::get().map_err(RecordError::Personality)?;
    personality::set(before | Persona::ADDR_NO_RANDOMIZE).map_err(RecordError::Personality)?;
    let followed = follow(&command, input, Stdio::from(output), &mut counters);
    personality::set(before).map_err(RecordError::Personality)?;
    let status = followed?;
    let counts = NativeCounts {
        kernel: first_word("/proc/sys/kernel/osrelease"),
        thp: chosen_thp(),
        images: counters.into_images(),
    };
    Ok((counts, status))
}

fn first_word(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The word in brackets of `always [madvise] never`.
fn chosen_thp() -> String {
    let text = first_word("/sys/kernel/mm/transparent_hugepage/enabled");
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or("unknown").to_owned()
}

/// The counts of a process at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    minor_faults: u64,
    major_faults: u64,
    peak_rss_bytes: Option<u64>,
    page_table_bytes: Option<u64>,
}

impl Sample {
    fn take(pid: Pid) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Field 3 follows the name, which is in parentheses and may contain any byte. The faults
        // are fields 10 and 12 of proc_pid_stat(5).
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse().ok()).unwrap_or(0);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let bytes = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
        };
        Self {
            minor_faults: field(10),
            major_faults: field(12),
            peak_rss_bytes: bytes("VmHWM:"),
            page_table_bytes: bytes("VmPTE:"),
        }
    }
}

/// A process that has not exited.
struct Process {
    path: Vec<u32>,
    children: u32,
    image: u32,
    command: String,
    /// The counts at the start of the image.
    base: Sample,
    /// The counts at the latest exit of a thread.
    last: Sample,
    /// The position of the image in order of creation.
    order: usize,
}

/// The counts of all processes so far.
#[derive(Default)]
struct Counters {
    live: HashMap<Pid, Process>,
    /// The images that have ended, with their positions in order of creation.
    images: Vec<(usize, ImageCounts)>,
    /// Number of images created so far.
    created: usize,
}

impl Counters {
    fn into_images(mut self) -> Vec<ImageCounts> {
        self.images.sort_by_key(|&(order, _)| order);
        self.images.into_iter().map(|(_, image)| image).collect()
    }

    fn next_position(&mut self) -> usize {
        self.created += 1;
        self.created
    }
}

impl Process {
    fn image(&self, end: Sample, replaced: bool) -> ImageCounts {
        ImageCounts {
            process: self.path.clone(),
            image: self.image,
            command: self.command.clone(),
            minor_faults: end.minor_faults.saturating_sub(self.base.minor_faults),
            major_faults: end.major_faults.saturating_sub(self.base.major_faults),
            peak_rss_bytes: end.peak_rss_bytes.filter(|_| !replaced),
            page_table_bytes: end.page_table_bytes.filter(|_| !replaced),
        }
    }
}

impl Watcher for Counters {
    fn created(&mut self, pid: Pid, parent: Option<Pid>) -> Result<(), RecordError> {
        let path = match parent.and_then(|parent| self.live.get_mut(&parent)) {
            Some(parent) => {
                parent.children += 1;
                let mut path = parent.path.clone();
                path.push(parent.children - 1);
                path
            }
            None => Vec::new(),
        };
        let order = self.next_position();
        let command = first_word(&format!("/proc/{pid}/comm"));
        let (base, last) = (Sample::default(), Sample::default());
        self.live.insert(pid, Process { path, children: 0, image: 0, command, base, last, order });
        Ok(())
    }

    fn execed(&mut self, pid: Pid) {
        let order = self.next_position();
        let Some(process) = self.live.get_mut(&pid) else { return };
        let now = Sample::take(pid);
        // The first image of the root is the shell that executes the program.
        if !(process.path.is_empty() && process.image == 0) {
            self.images.push((process.order, process.image(now, true)));
        }
        process.order = order;
        process.image += 1;
        process.command = first_word(&format!("/proc/{pid}/comm"));
        process.base = now;
        process.last = now;
    }

    fn thread_exits(&mut self, pid: Pid) {
        if let Some(process) = self.live.get_mut(&pid) {
            let now = Sample::take(pid);
            // A thread that exits after the memory is freed has no memory counts.
            if now.peak_rss_bytes.is_some() {
                process.last = now;
            } else {
                process.last.minor_faults = process.last.minor_faults.max(now.minor_faults);
                process.last.major_faults = process.last.major_faults.max(now.major_faults);
            }
        }
    }

    fn exited(&mut self, pid: Pid) {
        if let Some(process) = self.live.remove(&pid) {
            self.images.push((process.order, process.image(process.last, false)));
        }
    }
}
