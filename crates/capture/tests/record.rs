//! Recording of real programs; the tests are skipped if valgrind is not installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewright_capture::record::{RecordError, RecordInput, RecordOptions, RecordTool, record};
use pagewright_capture::trace::{AccessOrigin, Compression, MemOp, PageNo, Pid, TaskEvent, TraceEvent, TraceReader};

fn has_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: valgrind is not installed");
    }
    found
}

/// A new directory for a test that records; `None` if nothing can be recorded.
fn scratch(name: &str) -> Option<PathBuf> {
    if !has_valgrind() {
        return None;
    }
    let directory = std::env::temp_dir().join(format!("pagewright-record-test-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    Some(directory)
}

fn events(path: &Path) -> Vec<TraceEvent> {
    let mut reader = TraceReader::open(path).unwrap();
    let (mut events, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).unwrap() {
        events.append(&mut batch);
    }
    events
}

fn tasks(path: &Path) -> Vec<TaskEvent> {
    let task = |event| if let TraceEvent::Task(task) = event { Some(*task) } else { None };
    events(path).into_iter().filter_map(task).collect()
}

#[test]
fn a_shell_is_recorded_with_all_its_children() {
    let Some(directory) = scratch("fork") else { return };
    let output = directory.join("shell.pwt");
    let options =
        RecordOptions { compression: Some(Compression::Fast), stdin: RecordInput::Empty, ..RecordOptions::default() };
    let script = "/bin/true; (exit 3); exit 4";
    let recording = record(&output, "/bin/sh", &["-c".into(), script.into()], &options).unwrap();
    assert_eq!(recording.status, 4);
    assert_eq!(recording.summary.processes, 3);
    let tasks = tasks(&output);
    let execs = tasks.iter().filter(|task| matches!(task, TaskEvent::Exec { .. })).count();
    let exits: Vec<u32> = tasks
        .iter()
        .filter_map(|task| if let TaskEvent::ExitProcess { status } = task { Some(*status) } else { None })
        .collect();
    assert_eq!((execs, exits), (2, vec![0, 3, 4]), "the shell and true are images; children exit before their parent");
    let native = recording.native.unwrap();
    let images: Vec<(&[u32], u32)> = native.images.iter().map(|image| (&image.process[..], image.image)).collect();
    assert_eq!(images, [(&[][..], 1), (&[0][..], 0), (&[0][..], 1), (&[1][..], 0)]);
    assert!(native.images.iter().all(|image| image.minor_faults > 0));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_missing_program_is_an_error_and_leaves_no_file() {
    let Some(directory) = scratch("none") else { return };
    let options = RecordOptions { stdin: RecordInput::Empty, ..RecordOptions::default() };
    let error = record(&directory.join("x.pwt"), "no-such-program", &[], &options).unwrap_err();
    assert!(matches!(error, RecordError::NoProgram { .. }), "{error}");
    assert_eq!(error.to_string(), "no-such-program: no such program");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    fs::remove_dir_all(directory).unwrap();
}

/// The program prints the addresses that Linux chose; the trace has the importer's.
#[test]
fn addresses_in_a_recording_are_those_of_linux() {
    let Some(directory) = scratch("layout") else { return };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/layout.c");
    let (program, file) = (directory.join("layout"), directory.join("file"));
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(compiled.success());
    fs::write(&file, vec![0; 6 << 20]).unwrap();
    let on_linux = Command::new("setarch").arg("-R").arg(&program).arg(&file).arg("print").output().unwrap();
    assert!(on_linux.status.success(), "{on_linux:?}");
    let on_linux: Vec<u64> =
        String::from_utf8(on_linux.stdout).unwrap().lines().map(|at| at.parse().unwrap()).collect();
    assert_eq!(on_linux.len(), 400);

    let output = directory.join("layout.pwt");
    // Under QEMU the dynamic loader allocates a page less than natively, so later addresses differ.
    let options = RecordOptions {
        compression: Some(Compression::Fast),
        stdin: RecordInput::Empty,
        native: false,
        tool: RecordTool::Valgrind,
        ..RecordOptions::default()
    };
    let argument = file.to_str().unwrap().to_owned();
    record(&output, program.to_str().unwrap(), &[argument], &options).unwrap();
    let chosen = |event| match event {
        TraceEvent::Call(call) if matches!(call.op, MemOp::Mmap { .. } | MemOp::Mremap { .. }) => call.result.ok(),
        _ => None,
    };
    let in_trace: Vec<u64> = events(&output).into_iter().filter_map(chosen).collect();
    // The dynamic loader maps the C library first.
    let in_trace = &in_trace[in_trace.len() - on_linux.len()..];
    let wrong = in_trace.iter().zip(&on_linux).position(|(ours, linux)| ours != linux);
    assert_eq!(wrong, None, "{:x?} and {:x?}", wrong.map(|step| in_trace[step]), wrong.map(|step| on_linux[step]));
    fs::remove_dir_all(directory).unwrap();
}

fn has_qemu() -> bool {
    let found = Command::new("qemu-x86_64").arg("--help").output().is_ok();
    if !found {
        eprintln!("skipped: qemu-user is not installed");
    }
    found
}

/// A program compiled from `tests/programs`.
fn compile(compiler: &str, name: &str, args: &[&str], directory: &Path) -> Option<PathBuf> {
    let source = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/{}.c"), name);
    let program = directory.join(format!("{name}-{compiler}"));
    match Command::new(compiler).args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).args(args).status() {
        Ok(status) => {
            assert!(status.success());
            Some(program)
        }
        Err(error) => {
            eprintln!("skipped: {compiler}: {error}");
            None
        }
    }
}

/// What two recordings of one program must have in common.
#[derive(Debug, PartialEq)]
struct Recorded {
    processes: u32,
    threads: u32,
    /// The names of the root's calls after its own mark, sorted.
    calls: Vec<String>,
    /// Number of distinct pages of each process that stores touch after the mark.
    stored: Vec<usize>,
}

/// The mark is the `mincore` that the program makes at the start of `main`.
fn recorded(path: &Path) -> Recorded {
    let (mut calls, mut marked, mut current) = (Vec::new(), false, Pid(1));
    let mut stored: BTreeMap<Pid, BTreeSet<PageNo>> = BTreeMap::new();
    let (mut processes, mut threads) = (0, 0);
    for event in events(path) {
        match event {
            TraceEvent::Switch { pid, .. } => current = pid,
            TraceEvent::Call(call) if matches!(call.op, MemOp::Mincore { .. }) => marked = true,
            TraceEvent::Call(call) if marked && current == Pid(1) => {
                let name = format!("{:?}", call.op);
                calls.push(name.split(' ').next().unwrap_or_default().to_owned());
            }
            TraceEvent::Run(run) if marked && run.writes > 0 && run.origin == AccessOrigin::User => {
                stored.entry(current).or_default().insert(run.page);
            }
            TraceEvent::Task(task) => match *task {
                TaskEvent::Begin { pid, .. } => {
                    current = pid;
                    (processes, threads) = (processes + 1, threads + 1);
                }
                TaskEvent::Fork { .. } => (processes, threads) = (processes + 1, threads + 1),
                TaskEvent::CloneThread { .. } => threads += 1,
                _ => {}
            },
            _ => {}
        }
    }
    // Those of two threads have no order.
    calls.sort_unstable();
    Recorded { processes, threads, calls, stored: stored.into_values().map(|pages| pages.len()).collect() }
}

#[test]
fn qemu_and_valgrind_record_the_same_calls_tasks_and_pages() {
    if !has_qemu() || !has_valgrind() {
        return;
    }
    let directory = scratch("both").unwrap();
    let Some(program) = compile("cc", "tasks", &[], &directory) else { return };
    let [qemu, valgrind] = [RecordTool::Qemu, RecordTool::Valgrind].map(|tool| {
        let output = directory.join("both.pwt");
        let options = RecordOptions { stdin: RecordInput::Empty, native: false, tool, ..RecordOptions::default() };
        let recording = record(&output, program.to_str().unwrap(), &[], &options).unwrap();
        assert_eq!((recording.status, recording.limited), (7, false));
        recorded(&output)
    });
    assert_eq!((qemu.processes, qemu.threads), (3, 5), "two children, and two threads of the root");
    assert_eq!(qemu.calls, valgrind.calls);
    assert_eq!(qemu.stored.len(), valgrind.stored.len());
    for (qemu, valgrind) in qemu.stored.iter().zip(&valgrind.stored) {
        assert!(qemu.abs_diff(*valgrind) <= 4, "{qemu} and {valgrind} pages");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn an_arm64_program_is_recorded_with_its_threads_and_children() {
    if !has_qemu() {
        return;
    }
    let directory = scratch("arm64").unwrap();
    let Some(program) = compile("aarch64-linux-gnu-gcc", "tasks", &["-static"], &directory) else { return };
    let output = directory.join("arm64.pwt");
    let options = RecordOptions { stdin: RecordInput::Empty, ..RecordOptions::default() };
    let recording = record(&output, program.to_str().unwrap(), &[], &options).unwrap();
    assert_eq!(recording.status, 7);
    assert!(recording.native.is_none(), "it does not run natively");
    let seen = recorded(&output);
    assert_eq!((seen.processes, seen.threads), (3, 5));
    assert!(seen.stored[0] > 256, "the root stores to 256 pages of its own: {:?}", seen.stored);
    assert_eq!(TraceReader::open(&output).unwrap().header().isa.name(), "arm64");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_recording_ends_at_the_limit_of_accesses_with_a_whole_capture() {
    if !has_qemu() {
        return;
    }
    let directory = scratch("limit").unwrap();
    let output = directory.join("limit.pwt");
    let options = RecordOptions {
        stdin: RecordInput::Empty,
        native: false,
        max_accesses: Some(3_000_000),
        ..RecordOptions::default()
    };
    let script = "(while :; do :; done) & while :; do :; done";
    let recording = record(&output, "/bin/sh", &["-c".into(), script.into()], &options).unwrap();
    assert!(recording.limited);
    // A queue of each process has at most some ten thousand accesses more.
    assert!((2_000_000..5_000_000).contains(&recording.summary.accesses), "{:?}", recording.summary);
    assert_eq!(recording.summary.processes, 2);
    let events = events(&output);
    let exits = events
        .iter()
        .filter(|event| matches!(event, TraceEvent::Task(task) if matches!(**task, TaskEvent::ExitProcess { .. })));
    assert_eq!(exits.count(), 2, "the capture ends with the exit of all processes");
    fs::remove_dir_all(directory).unwrap();
}
