//! Recording of real programs; the tests are skipped if valgrind is not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewright_capture::record::{RecordError, RecordInput, RecordOptions, record};
use pagewright_capture::trace::{Compression, TaskEvent, TraceEvent, TraceReader};

fn has_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: valgrind is not installed");
    }
    found
}

fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("pagewright-record-test-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn tasks(path: &Path) -> Vec<TaskEvent> {
    let mut reader = TraceReader::open(path).unwrap();
    let (mut tasks, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).unwrap() {
        tasks.extend(batch.drain(..).filter_map(|event| match event {
            TraceEvent::Task(task) => Some(*task),
            TraceEvent::Run(_) | TraceEvent::Switch { .. } | TraceEvent::Call(_) | TraceEvent::File(_) => None,
        }));
    }
    tasks
}

#[test]
fn a_shell_is_recorded_with_all_its_children() {
    if !has_valgrind() {
        return;
    }
    let directory = scratch("fork");
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
    if !has_valgrind() {
        return;
    }
    let directory = scratch("none");
    let options = RecordOptions { stdin: RecordInput::Empty, ..RecordOptions::default() };
    let error = record(&directory.join("x.pwt"), "no-such-program", &[], &options).unwrap_err();
    assert!(matches!(error, RecordError::NoProgram { .. }), "{error}");
    assert_eq!(error.to_string(), "no-such-program: no such program");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    fs::remove_dir_all(directory).unwrap();
}
