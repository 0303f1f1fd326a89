//! Recording of real programs; the tests are skipped if valgrind is not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewright_capture::record::{RecordError, RecordInput, RecordOptions, record};
use pagewright_capture::trace::{Compression, MemOp, TaskEvent, TraceEvent, TraceReader};

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
        RecordOptions { compression: Compression::Fast, stdin: RecordInput::Empty, ..RecordOptions::default() };
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
    let options = RecordOptions {
        compression: Compression::Fast,
        stdin: RecordInput::Empty,
        native: false,
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
