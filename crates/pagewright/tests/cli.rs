//! The program as its users run it, wrong input included: one clear line on standard error that
//! names what is wrong, exit status 2, nothing on standard output and nothing half-written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn pagewright(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagewright")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn capture(name: &str) -> String {
    format!("{}/../../tests/captures/{name}.pwt", env!("CARGO_MANIFEST_DIR"))
}

/// An empty directory for one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pagewright-cli-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.0.join(name), bytes).unwrap();
        self.path(name)
    }

    fn files(&self) -> Vec<String> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command is refused with one line that has all of `words`.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = pagewright(args);
    is_refusal(&output, words);
}

#[track_caller]
fn is_refusal(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "nothing on standard output");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    assert!(said.starts_with("pagewright: "), "{said}");
    for word in words {
        assert!(said.contains(word), "{said} does not say {word}");
    }
}

#[test]
fn traces_that_are_none() {
    let scratch = Scratch::new("traces");
    let whole = fs::read(capture("shell")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let lackey = b"==7== Lackey, an example Valgrind tool\n==7== Command: true\n==7== \nI  04001000,3\n";
    refused(&["replay", &scratch.write("empty", b"")], &["empty: empty file"]);
    refused(&["replay", &scratch.write("cut.pwt", &whole[..whole.len() - 100])], &["cut.pwt", "truncated at byte"]);
    refused(&["replay", &scratch.write("start.pwt", &whole[..10])], &["start.pwt", "truncated at byte 10"]);
    refused(&["replay", &scratch.write("flipped.pwt", &flipped)], &["flipped.pwt", "byte"]);
    refused(&["replay", &scratch.write("log", lackey)], &["log: a valgrind lackey log", "pagewright record"]);
    refused(&["replay", &scratch.write("text", b"hello, world\n")], &["text"]);
    refused(&["replay", &scratch.path("missing.pwt")], &["missing.pwt", "No such file"]);
    refused(&["replay", scratch.0.to_str().unwrap()], &["Is a directory"]);
}

#[test]
fn options_that_make_no_sense() {
    let sort = &capture("sort");
    refused(&["replay"], &["<TRACE>"]);
    refused(&["frobnicate"], &["frobnicate"]);
    refused(&["replay", sort, "--bogus"], &["--bogus"]);
    refused(&["replay", sort, "--cpus", "many"], &["--cpus", "many"]);
    refused(&["replay", sort, "--arch", "mips"], &["--arch mips"]);
    refused(&["replay", sort, "--profile", "i486"], &["i486", "icelake"]);
    refused(&["replay", sort, "--set", "swappiness=60"], &["perhaps vm.swappiness was meant", "fault_around_bytes"]);
    refused(&["replay", sort, "--set", "fault_around_bytes"], &["--set fault_around_bytes", "NAME=VALUE"]);
    refused(&["replay", sort, "--set", "fault_around_bytes=5000"], &["5000", "a power of two"]);
    refused(&["replay", sort, "--set", "nopcid=2"], &["nopcid=2", "0 or 1"]);
    refused(&["replay", sort, "--arch", "arm64", "--set", "nopcid=1"], &["arm64", "nopcid"]);
    refused(&["replay", sort, "--compare", "nopcid"], &["--compare nopcid", "NAME=OFF,ON"]);
    refused(&["replay", sort, "--compare", "nopcid=0"], &["--compare nopcid=0", "NAME=OFF,ON"]);
    refused(&["replay", sort, "--compare", "speed=1,2"], &["speed"]);
    refused(&["replay", sort, "--compare", "fault_around_bytes=4096,1"], &["fault_around_bytes=1"]);
    refused(&["run", "quake"], &["quake", "fork-server"]);
}

#[test]
fn machines_that_can_not_be() {
    let sort = &capture("sort");
    refused(&["replay", sort, "--cpus", "0"], &["0 CPUs"]);
    refused(&["replay", sort, "--cpus", "300"], &["300 CPUs", "256"]);
    refused(&["replay", sort, "--mem", "0"], &["no memory"]);
    refused(&["replay", sort, "--mem", "2Q"], &["--mem", "2Q"]);
    refused(&["replay", sort, "--mem", "half%"], &["--mem half%"]);
    refused(&["run", "sweep", "--mem", "50%"], &["--mem 50%", "capture"]);
    refused(&["replay", sort, "--mem", "1G", "--node", "0:1G"], &["--mem", "--node"]);
    refused(&["replay", sort, "--node", "0:1G,cpus=0-1", "--node", "1:1G,cpus=1-3"], &["CPU 1", "node 0", "node 1"]);
    refused(&["replay", sort, "--node", "x"], &["--node", "'x'"]);
    refused(&["replay", sort, "--swap", "much"], &["--swap", "much"]);
    refused(&["replay", sort, "--swap", "4095"], &["--swap 4095", "a page at least"]);
    refused(&["replay", sort, "--swap", "1T"], &["--swap 1T", "512 GiB"]);
    refused(&["replay", sort, "--profile", "milan", "--arch", "arm64"], &["milan", "arm64"]);
    refused(&["replay", sort, "--mem", "64K"], &["too small"]);
    refused(&["replay", sort, "--mem", "384K"], &["process 1 runs out of memory", "--mem"]);
    refused(&["replay", sort, "--mem", "10%"], &["process 1 runs out of memory", "--mem"]);
}

#[test]
fn boots_that_can_not_be() {
    let boot = |args: &[&str], words: &[&str]| refused(&[&["boot"], args, &["/bin/sh"]].concat(), words);
    boot(&["--arch", "mips"], &["--arch mips"]);
    boot(&["--machine", "virt"], &["--machine virt", "microvm"]);
    boot(&["--cpus", "0"], &["0 CPUs"]);
    boot(&["--cpus", "257"], &["257 CPUs", "256"]);
    boot(&["--mem", "0"], &["node 0 has no memory"]);
    boot(&["--mem", "100T"], &["16 TiB"]);
    boot(&["--mem", "1028K"], &["1052672 bytes", "MiB"]);
    boot(&["--node", "0:1G,cpus=4"], &["CPU 4", "1 CPUs"]);
    boot(&["--swap", "0"], &["--swap 0", "a page at least"]);
    boot(&["--set", "nopcid=1"], &["nopcid", "not of the kernel"]);
    boot(&["--set", "tlb_batch=3"], &["tlb_batch=3", "0 to 2"]);
    boot(&["--kernel", "/none/image"], &["/none/image", "No such file"]);
    refused(&["boot", "/none/program"], &["/none/program", "No such file"]);
    // Named before anything is built.
    let own = env!("CARGO_BIN_EXE_pagewright");
    let (this, other) = if cfg!(target_arch = "aarch64") { ("arm64", "x86-64") } else { ("x86-64", "arm64") };
    refused(&["boot", "--arch", this, own], &["is dynamic", "/ld-", "-static"]);
    refused(&["boot", "--arch", other, own], &[&format!("for {this}"), &format!("is {other}"), "--arch"]);
    refused(&["boot", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], &["Cargo.toml", "neither", "nor a script"]);
    let file = format!("{own}=/bin/own");
    refused(&["boot", "--arch", this, "--file", &file, "/bin/own"], &["/bin/own is dynamic"]);
}

#[test]
fn output_that_can_not_be_written() {
    let scratch = Scratch::new("output");
    let shell = &capture("shell");
    let nowhere = scratch.path("none/out.json");
    refused(&["replay", shell, "--json", &nowhere], &["none/out.json", "No such file"]);
    refused(&["replay", shell, "--json", scratch.0.to_str().unwrap()], &["directory"]);
    let kept = scratch.write("kept.json", b"old");
    refused(&["replay", shell, "--mem", "384K", "--json", &kept], &["out of memory"]);
    assert_eq!(fs::read(&kept).unwrap(), b"old", "a replay that fails leaves the file as it was");
    assert_eq!(scratch.files(), ["kept.json"], "and no other behind");
    // What is no file is written to, and stays what it is.
    let full = scratch.path("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    refused(&["run", "sweep", "--json", &full], &["full", "No space left"]);
    assert!(Path::new(&full).is_symlink());
}

#[test]
fn programs_that_can_not_be_recorded() {
    let scratch = Scratch::new("record");
    let output = scratch.path("out.pwt");
    refused(&["record", "-o", &output], &["<PROGRAM>"]);
    let bare = Command::new(env!("CARGO_BIN_EXE_pagewright"))
        .args(["record", "-o", &output, "--", "true"])
        .env("PATH", &scratch.0)
        .output();
    is_refusal(&bare.unwrap(), &["valgrind is not installed", "apt install valgrind"]);
    // With something in valgrind's place, what comes next is wrong.
    scratch.write("valgrind", b"#!/bin/sh\necho valgrind-0\n");
    let make_executable = Command::new("chmod").args(["+x", &scratch.path("valgrind")]).status();
    assert!(make_executable.unwrap().success());
    let with_valgrind = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
        command.arg("record").args(args).env("PATH", &scratch.0).stdin(Stdio::null()).output().unwrap()
    };
    is_refusal(&with_valgrind(&["-o", &output, "--", "/no/such/program"]), &["/no/such/program", "no such program"]);
    let nowhere = scratch.path("none/out.pwt");
    is_refusal(&with_valgrind(&["-o", &nowhere, "--", "/bin/sh"]), &["none/out.pwt", "No such file"]);
    assert!(!Path::new(&output).exists());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pagewright"))
        .args(["replay", &capture("shell")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before the first line is written.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// The program, where SIGINT is not ignored: a shell that does not control jobs has what runs in
/// its background ignore it.
fn that_hears_signals() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_pagewright")]);
    command
}

/// Starts the program, sends it SIGINT once `ready` is there, and returns how it ended.
fn interrupted(command: &mut Command, ready: impl Fn() -> bool) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !ready() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait_with_output().unwrap()
}

#[test]
fn who_is_interrupted_leaves_nothing_behind() {
    let scratch = Scratch::new("interrupted");
    let mut replay = that_hears_signals();
    replay.args(["replay", &capture("compile"), "--json", &scratch.path("out.json")]);
    let output = interrupted(&mut replay, || !scratch.files().is_empty());
    assert_eq!(output.status.code(), Some(130));
    assert!(scratch.files().is_empty(), "{:?}", scratch.files());

    // With something in QEMU's place that tells its number and never ends.
    let (pid, temporary) = (scratch.path("pid"), scratch.path("temporary"));
    fs::create_dir(&temporary).unwrap();
    let qemu = scratch.write("qemu-system-x86_64", format!("#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n").as_bytes());
    assert!(Command::new("chmod").args(["+x", &qemu]).status().unwrap().success());
    let mut boot = that_hears_signals();
    let program = env!("CARGO_BIN_EXE_pagewright");
    boot.args(["boot", "--kernel", program, program]).env("TMPDIR", &temporary);
    boot.env("PATH", format!("{}:/usr/bin:/bin", scratch.0.display()));
    let told = || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
    let output = interrupted(&mut boot, told);
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    let process = Path::new("/proc").join(fs::read_to_string(&pid).unwrap().trim());
    assert!(!process.exists(), "the machine does not run on");
}

#[test]
fn the_json_has_every_figure_under_its_name() {
    let scratch = Scratch::new("json");
    let (one, two) = (scratch.path("one.json"), scratch.path("two.json"));
    let read = |path: &str| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
    assert!(pagewright(&["replay", &capture("shell"), "--seed", "5", "--json", &one]).status.success());
    let json = read(&one);
    assert_eq!(json["schema"], 1);
    let run = &json["runs"][0];
    for (name, member) in [("dTLB-loads", "counters"), ("pgfault", "counters"), ("elapsed_ns", "modelled")] {
        assert!(run[member][name].as_u64().unwrap() > 0, "{member}.{name}");
    }
    assert_eq!((&run["isa"], &run["config"]["seed"]), (&"x86-64".into(), &5.into()));
    assert_eq!(run["images"].as_array().unwrap().len(), 32);
    assert!(run["measured"]["seconds"].as_f64().unwrap() > 0.0);

    let compare = ["replay", &capture("shell"), "--compare", "fault_around_bytes=4096,65536", "--json", &two];
    assert!(pagewright(&compare).status.success());
    let json = read(&two);
    let faults = |index: usize| json["runs"][index]["counters"]["pgfault"].as_u64().unwrap();
    assert_eq!(json["runs"][0]["label"], "fault_around_bytes=4096");
    assert_eq!(json["runs"][1]["config"]["fault_around_bytes"], 65536);
    assert!(faults(0) > faults(1));
    assert_eq!(scratch.files().len(), 2, "no part is left behind");
}

#[test]
fn memory_in_percent_is_of_what_the_capture_needed_on_linux() {
    let scratch = Scratch::new("percent");
    let path = scratch.path("out.json");
    assert!(pagewright(&["replay", &capture("sort"), "--mem", "500%", "--json", &path]).status.success());
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let memory = json["runs"][0]["config"]["memory_bytes"].as_u64().unwrap();
    assert!((8 << 20..13 << 20).contains(&memory), "five times 2 MiB and a little: {memory}");
}

#[test]
fn whoever_has_less_memory_than_linux_had_is_told() {
    let replay = |args: &[&str]| {
        let output = pagewright(&[&["replay", &capture("sort")], args].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (half, whole) = (replay(&["--mem", "50%", "--swap", "64M"]), replay(&[]));
    assert!(half.contains("Linux had memory enough") && !whole.contains("Linux had memory enough"));
    let machine = |text: &str| text.lines().nth(1).unwrap().to_owned();
    assert!(machine(&half).contains(" KiB, 64 MiB of swap, seed 0"), "{}", machine(&half));
    assert!(machine(&whole).contains("4 CPUs, 2048 MiB, seed 0"), "{}", machine(&whole));
}

#[test]
fn help_names_every_option() {
    let output = pagewright(&["replay", "--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for option in ["--arch", "--profile", "--cpus", "--mem", "--node", "--seed", "--set", "--compare", "--json"] {
        assert!(text.contains(option), "{option}");
    }
}

#[test]
fn an_evaluation_that_is_not_there_or_can_not_be_written_is_refused_before_it_runs() {
    refused(&["evaluate", "clearly"], &["evaluation 'clearly'", "there are batch, clear"]);
    let scratch = Scratch::new("evaluate");
    for option in ["--json", "--html"] {
        refused(&["evaluate", "clear", option, &scratch.path("nowhere/file")], &["nowhere/file"]);
    }
    assert!(scratch.files().is_empty());
}
