//! The program as a command.
//!
//! Bad input gets one line on standard error that names it and exit status 2, prints nothing on
//! standard output and leaves no partly written file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn pagewright(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagewright")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn capture(name: &str) -> String {
    format!("{}/../../tests/captures/{name}.pwt", env!("CARGO_MANIFEST_DIR"))
}

/// What a replay of a small capture prints.
fn replay_sort(args: &[&str]) -> String {
    let output = pagewright(&[&["replay", &capture("sort")], args].concat());
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
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

/// Asserts that the command is refused with one line that has all of `words`.
#[track_caller]
fn assert_refused(args: &[&str], words: &[&str]) {
    let output = pagewright(args);
    assert_refusal(&output, words);
}

#[track_caller]
fn assert_refusal(output: &Output, words: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty(), "nothing on standard output");
    assert_one_line(&error, words);
}

#[track_caller]
fn assert_one_line(error: &str, words: &[&str]) {
    assert_eq!(error.lines().count(), 1, "one line: {error}");
    assert!(error.starts_with("pagewright: "), "{error}");
    for word in words {
        assert!(error.contains(word), "'{word}' is missing in: {error}");
    }
}

#[test]
fn files_that_are_not_traces_are_refused() {
    let scratch = Scratch::new("traces");
    let whole = fs::read(capture("shell")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let lackey = b"==7== Lackey, an example Valgrind tool\n==7== Command: true\n==7== \nI  04001000,3\n";
    assert_refused(&["replay", &scratch.write("empty", b"")], &["empty: empty file"]);
    assert_refused(
        &["replay", &scratch.write("cut.pwt", &whole[..whole.len() - 100])],
        &["cut.pwt", "truncated at byte"],
    );
    assert_refused(&["replay", &scratch.write("start.pwt", &whole[..10])], &["start.pwt", "truncated at byte 10"]);
    assert_refused(&["replay", &scratch.write("flipped.pwt", &flipped)], &["flipped.pwt", "byte"]);
    assert_refused(&["replay", &scratch.write("log", lackey)], &["log: a valgrind lackey log", "pagewright record"]);
    assert_refused(&["replay", &scratch.write("text", b"hello, world\n")], &["text"]);
    assert_refused(&["replay", &scratch.path("missing.pwt")], &["missing.pwt", "No such file"]);
    assert_refused(&["replay", scratch.0.to_str().unwrap()], &["Is a directory"]);
}

#[test]
fn bad_options_are_refused() {
    let sort = &capture("sort");
    assert_refused(&["replay"], &["<TRACE>"]);
    assert_refused(&["frobnicate"], &["frobnicate"]);
    assert_refused(&["replay", sort, "--bogus"], &["--bogus"]);
    assert_refused(&["replay", sort, "--cpus", "many"], &["--cpus", "many"]);
    assert_refused(&["replay", sort, "--arch", "mips"], &["--arch mips"]);
    assert_refused(&["replay", sort, "--profile", "i486"], &["i486", "icelake"]);
    assert_refused(&["replay", sort, "--set", "swappiness=60"], &["did you mean vm.swappiness?"]);
    assert_refused(&["replay", sort, "--set", "fault_around_bytes"], &["--set fault_around_bytes", "NAME=VALUE"]);
    assert_refused(&["replay", sort, "--set", "fault_around_bytes=5000"], &["5000", "a power of two"]);
    assert_refused(
        &["replay", sort, "--set", "fault_around_bytes=x"],
        &["--set fault_around_bytes=x", "x is not a power of two from 4096 to 2097152"],
    );
    assert_refused(&["replay", sort, "--set", "nopcid=2"], &["--set nopcid=2", "0 or 1"]);
    assert_refused(&["replay", sort, "--arch", "arm64", "--set", "nopcid=1"], &["--set nopcid=1", "arm64"]);
    assert_refused(&["replay", sort, "--compare", "nopcid"], &["--compare nopcid", "NAME=A,B"]);
    assert_refused(&["replay", sort, "--compare", "nopcid=0"], &["--compare nopcid=0", "NAME=A,B"]);
    assert_refused(&["replay", sort, "--compare", "speed=1,2"], &["--compare speed=1,2", "unknown setting speed"]);
    assert_refused(
        &["replay", sort, "--compare", "fault_around_bytes=4096,1"],
        &["--compare", "4096,1: 1 is not a power of two"],
    );
    assert_refused(&["run", "quake"], &["quake", "fork-server"]);
    assert_refused(&["run", "swep"], &["swep", "did you mean sweep?"]);
    assert_refused(&["replay", sort, "--compare", "nopcid=0,0"], &["--compare nopcid=0,0", "0 is given twice"]);
    assert_refused(&["replay", sort, "--compare", "nopcid=0,1,00"], &["--compare nopcid=0,1,00", "0 is given twice"]);
    assert_refused(&["replay", sort, "--set", "nopcid=1", "--compare", "nopcid=0,1"], &["--set also gives nopcid"]);
    assert_refused(&["replay", sort, "--set", "nopcid=1", "--set", "nopcid=0"], &["nopcid is given twice"]);
    assert_refused(&["replay", sort, "--compare", "nopcid=0,1", "--compare", "nopcid=0,1"], &["nopcid is given twice"]);
    assert_refused(&["replay", sort, "--seeds", "2"], &["--compare"]);
    assert_refused(&["replay", sort, "--compare", "nopcid=0,1", "--seeds", "101"], &["--seeds", "from 1 to 100"]);
}

#[test]
fn misspelt_words_suggest_the_right_one() {
    let sort = &capture("sort");
    assert_refused(&["replay", sort, "--set", "swapiness=60"], &["swapiness (did you mean vm.swappiness?)"]);
    assert_refused(&["replay", sort, "--compare", "tlb_bach=0,1"], &["tlb_bach (did you mean tlb_batch?)"]);
    assert_refused(&["replay", sort, "--cpu", "2"], &["did you mean --cpus?"]);
    assert_refused(&["repaly", sort], &["did you mean replay?"]);
    assert_refused(&["boot", "--set", "tlb_bach=1", "x"], &["did you mean tlb_batch?"]);
}

/// `script` of util-linux gives the program a terminal.
#[test]
fn colours_are_for_terminals_and_no_color_turns_them_off() {
    const ESCAPE: &[u8] = b"\x1b[";
    let help = concat!(env!("CARGO_BIN_EXE_pagewright"), " replay --help");
    let mut on_terminal = Command::new("script");
    on_terminal.args(["--quiet", "--command", help, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    let has_colours = |command: &mut Command| {
        let text = command.stdin(Stdio::null()).output().unwrap().stdout;
        assert!(text.windows(8).any(|word| word == b"--oracle"), "help");
        text.windows(ESCAPE.len()).any(|bytes| bytes == ESCAPE)
    };
    assert!(has_colours(&mut on_terminal));
    assert!(!has_colours(on_terminal.env("NO_COLOR", "1")));
    assert!(!has_colours(Command::new(env!("CARGO_BIN_EXE_pagewright")).args(["replay", "--help"])));
}

#[test]
fn negative_and_too_large_numbers_name_the_range() {
    let sort = &capture("sort");
    for command in [&["replay", sort][..], &["boot", "x"]] {
        let with = |args: &[&str], words: &[&str]| assert_refused(&[command, args].concat(), words);
        with(&["--cpus", "300"], &["--cpus", "300", "from 1 to 256"]);
        with(&["--cpus", "-1"], &["--cpus", "-1", "from 1 to 256"]);
        with(&["--mem", "-5"], &["--mem", "'-5' is not a size"]);
        with(&["--swap", "-5"], &["--swap", "'-5' is not a size"]);
        with(&["--set", "vm.swappiness=-5"], &["-5 is not a number from 0 to 200"]);
        with(&["--set", "vm.swappiness=201"], &["201 is not a number from 0 to 200"]);
    }
}

#[test]
fn the_tour_replays_the_schedule_of_its_token() {
    let tour = |token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
        command.env("PAGEWRIGHT_REPLAY", token).stdin(Stdio::null()).output().unwrap()
    };
    let found = tour("pw1/3993f1e3/list/c1");
    assert_eq!(found.status.code(), Some(0), "{}", String::from_utf8_lossy(&found.stderr));
    let text = String::from_utf8(found.stdout).unwrap();
    assert!(text.contains("INV-ORACLE-O1") && text.contains("CPU 1 can reach it through a stale"), "{text}");
    assert_refusal(&tour("pw1/3993f1e3"), &["PAGEWRIGHT_REPLAY"]);
    assert_refusal(&tour("pw1/00000000/list/c1"), &["PAGEWRIGHT_REPLAY"]);
}

#[test]
fn impossible_machines_are_refused_by_the_option() {
    let sort = &capture("sort");
    assert_refused(&["replay", sort, "--seed", "-1"], &["--seed", "-1", "must be a number from 0"]);
    assert_refused(&["replay", sort, "--cpus", "0"], &["--cpus", "from 1 to 256"]);
    assert_refused(&["replay", sort, "--mem", "0"], &["--mem", "no memory"]);
    assert_refused(&["replay", sort, "--node", "0:0"], &["--node", "no memory"]);
    assert_refused(&["replay", sort, "--mem", "2Q"], &["--mem", "2Q"]);
    assert_refused(&["replay", sort, "--mem", "half%"], &["--mem half%"]);
    assert_refused(&["run", "sweep", "--mem", "50%"], &["--mem 50%", "capture"]);
    assert_refused(&["replay", sort, "--mem", "1G", "--node", "0:1G"], &["--mem", "--node"]);
    assert_refused(
        &["replay", sort, "--node", "0:1G,cpus=0-1", "--node", "1:1G,cpus=1-3"],
        &["CPU 1", "node 0", "node 1"],
    );
    assert_refused(&["replay", sort, "--node", "x"], &["--node", "'x'"]);
    assert_refused(&["replay", sort, "--swap", "much"], &["--swap", "much"]);
    assert_refused(&["replay", sort, "--swap", "4095"], &["--swap 4095", "at least 4K"]);
    assert_refused(&["replay", sort, "--swap", "1T"], &["--swap 1T", "at most 512G"]);
    assert_refused(&["replay", sort, "--profile", "milan", "--arch", "arm64"], &["--profile", "milan", "arm64"]);
    assert_refused(&["replay", sort, "--mem", "64K"], &["too small"]);
    for memory in ["384K", "10%"] {
        // These run until memory is exhausted; on a busy host they say meanwhile how far they are.
        let output = pagewright(&["replay", sort, "--mem", memory]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(output.stdout.is_empty(), "nothing on standard output");
        let rest: Vec<&str> = error.lines().filter(|line| !line.ends_with(" % replayed")).collect();
        assert_one_line(&rest.join("\n"), &["process 1 runs out of memory", "--mem"]);
    }
}

#[test]
fn impossible_nodes_and_distances_are_refused_by_the_option() {
    let sort = &capture("sort");
    for command in [&["replay", sort][..], &["run", "sweep"], &["check", "--schedules", "1"], &["boot", "x"]] {
        let with = |nodes: &[&str], distances: &[&str], words: &[&str]| {
            let option =
                |name, values: &[&str]| values.iter().map(|value| format!("{name}={value}")).collect::<Vec<_>>();
            let options = [option("--cpus", &["4"]), option("--node", nodes), option("--distance", distances)].concat();
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            assert_refused(&[command, &options].concat(), words);
        };
        let two = ["0:64M,cpus=0-2", "1:64M"];
        with(&["0:64M", "1:0"], &[], &["--node", "node 1 has no memory"]);
        with(&["0:64M", "1:many"], &[], &["--node", "'many' is not a size"]);
        with(&["0:64M", "1:64M,cpus=4"], &[], &["--node", "node 1 names CPU 4", "last CPU of the machine is 3"]);
        with(&["0:64M,cpus=0-2", "1:64M,cpus=2-3"], &[], &["--node", "CPU 2", "node 0", "node 1"]);
        with(&["0:64M", "2:64M"], &[], &["--node", "node 2 is given in place of node 1"]);
        with(&two, &["0:20"], &["--distance", "'0:20' is not a distance", "0,1:20"]);
        with(&two, &["0,1:ten"], &["--distance", "'0,1:ten'"]);
        with(&two, &["0,1:9"], &["--distance", "nodes 0 and 1", "9", "from 11 to 254"]);
        with(&two, &["1,0:10"], &["--distance", "10", "from 11 to 254"]);
        with(&two, &["0,1:255"], &["--distance", "255", "from 11 to 254"]);
        with(&two, &["0,2:20"], &["--distance", "node 2", "2 nodes"]);
        with(&two, &["1,1:10"], &["--distance", "node 1", "itself"]);
        with(&two, &["0,1:20", "1,0:30"], &["--distance", "nodes 1 and 0", "twice"]);
        with(&[], &["0,1:20"], &["--distance", "node 1", "1 nodes"]);
    }
    let both = ["check", "--against", "linux", "--node", "0:64M"];
    assert_refused(&both, &["--against", "--node"]);
}

#[test]
fn accesses_by_node_are_shown_with_the_remark_that_no_cache_is_modelled() {
    let scratch = Scratch::new("nodes");
    let json = scratch.path("out.json");
    let nodes = ["--node", "0:1G,cpus=0-1", "--node", "1:1G,cpus=2-3", "--distance", "0,1:31"];
    let text = replay_sort(&[&nodes[..], &["--json", &json]].concat());
    for words in ["accesses by node of memory; no cache is modelled", "memory by node, all CPUs, no cache modelled ("] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let run = &json["runs"][0];
    let of = |node: usize, name: &str| run["nodes"][node][name].as_u64().unwrap();
    assert_eq!(of(0, "loads") + of(1, "loads"), run["counters"]["node-loads"].as_u64().unwrap());
    assert!(of(0, "stores") + of(1, "stores") > 0 && of(0, "remote_loads") <= of(0, "loads"));
    assert_eq!(run["nodes"][1]["distance"], serde_json::json!([31, 10]));
    assert!(run["modelled"]["memory_ns"].as_u64().unwrap() > 0);
    let compare = [&nodes[..], &["--compare", "fault_around_bytes=4096,65536", "--seeds", "1", "--all"]].concat();
    let compared = replay_sort(&compare);
    for words in
        ["loads of node 1, no cache modelled", "stores to node 0, no cache modelled", "memory by node, all CPUs"]
    {
        assert!(compared.contains(words), "{words}: {compared}");
    }
    let one = replay_sort(&[]);
    assert!(!one.contains("no cache"), "{one}");
}

#[test]
fn a_comparison_of_shared_tables_says_what_they_mean_to_the_program() {
    let compare = ["--compare", "cow_page_tables=never,always", "--seeds", "1"];
    let sort = replay_sort(&compare);
    assert!(sort.contains("The program never forks"), "{sort}");
    let scratch = Scratch::new("forks");
    let json = scratch.path("out.json");
    let shell = capture("shell");
    let both = [&compare[..], &["--compare", "tlb_batch=never,auto", "--json", &json]].concat();
    let output = pagewright(&[&["replay", &shell], &both[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let runs = json["runs"].as_array().unwrap();
    let labels: Vec<_> = runs.iter().map(|run| run["label"].as_str().unwrap()).collect();
    assert_eq!(labels.len(), 4, "{labels:?}");
    assert_eq!(
        (labels[1], labels[2]),
        ("cow_page_tables=never tlb_batch=auto", "cow_page_tables=always tlb_batch=never")
    );
    assert!(text.contains(&format!(" #3  {}", labels[2])), "{text}");
    let forks = |run: usize, name: &str| runs[run]["forks"][name].as_u64().unwrap();
    assert!(text.contains(&format!("The program forks {} times", forks(0, "forks"))), "{text}");
    assert!(forks(2, "total_ns") < forks(0, "total_ns"), "a fork that shares tables is shorter");
    assert!((1..forks(0, "total_ns")).contains(&forks(0, "longest_ns")));
    let tables = |run: usize, name: &str| runs[run]["forks"]["most_tables"][name].as_u64().unwrap();
    assert!(tables(0, "processes") > 1 && tables(0, "private_bytes") == tables(0, "all_bytes"), "nothing is shared");
    let resident = |run: usize| {
        let of = |image: &serde_json::Value| image["peak_rss_bytes"].as_u64().unwrap_or(0);
        runs[run]["images"].as_array().unwrap().iter().map(of).sum::<u64>() / 1024
    };
    let more = (resident(2) - resident(0)).to_string();
    assert!(text.replace(',', "").contains(&format!("Peak RSS rises by up to {more} kB")), "{text}");
}

#[test]
fn a_snapshot_counts_the_tables_of_a_process_as_linux_does() {
    let scratch = Scratch::new("snapshot");
    let json = scratch.path("out.json");
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let output = pagewright(&["snapshot", &sleeper.id().to_string(), "--json", &json]);
    sleeper.kill().expect("it is our child");
    sleeper.wait().expect("it is our child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let counted = |name: &str| json["counted"][name].as_u64().unwrap();
    // The process may touch a page between the two reads, which adds a table.
    let (ours, linux) = (counted("table_bytes"), counted("vm_pte_bytes"));
    assert!(ours > 0 && ours.abs_diff(linux) <= 8192, "{ours} {linux}");
    let text = String::from_utf8(output.stdout).unwrap();
    for (name, assumption) in json["assumptions"].as_object().unwrap() {
        let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = assumption.as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&words), "{name}: {text}");
    }
    assert_refused(&["snapshot", "0"], &["from 1 to"]);
    assert_refused(&["snapshot", &i32::MAX.to_string()], &["no such process"]);
}

#[test]
fn impossible_boots_are_refused() {
    let boot = |args: &[&str], words: &[&str]| assert_refused(&[&["boot"], args, &["/bin/sh"]].concat(), words);
    boot(&["--arch", "mips"], &["--arch mips"]);
    boot(&["--machine", "virt"], &["--machine virt", "microvm"]);
    boot(&["--cpus", "0"], &["--cpus", "from 1 to 256"]);
    boot(&["--cpus", "257"], &["--cpus", "257", "from 1 to 256"]);
    boot(&["--mem", "0"], &["--mem", "node 0 has no memory"]);
    boot(&["--mem", "100T"], &["16 TiB"]);
    let scratch = Scratch::new("boot");
    boot(&["--mem", "1028K"], &["--mem", "1052672 bytes", "MiB"]);
    boot(&["--node", "0:1G,cpus=4"], &["--node", "CPU 4", "is 0"]);
    boot(&["--swap", "0"], &["--swap 0", "at least 4K"]);
    boot(&["--set", "nopcid=1"], &["--set nopcid=1", "not of the kernel"]);
    boot(&["--set", "tlb_batch=3"], &["--set tlb_batch=3", "never, auto or always"]);
    boot(&["--kernel", "/none/image"], &["/none/image", "No such file"]);
    assert_refused(&["boot", "/none/program"], &["/none/program", "No such file"]);
    // These are refused before the kernel is built.
    let own = env!("CARGO_BIN_EXE_pagewright");
    let (this, other) = if cfg!(target_arch = "aarch64") { ("arm64", "x86-64") } else { ("x86-64", "arm64") };
    let (nowhere, file) = (scratch.path("nowhere"), format!("{own}=/bin/own"));
    let lacking = |program: &[&str], words: &[&str]| {
        assert_refused(&[&["boot", "--arch", this, "--sysroot", &nowhere], program].concat(), words);
    };
    lacking(&[own], &["needs", "/ld-", "nowhere", "--sysroot", "-static"]);
    lacking(&["--file", &file, "/bin/own"], &["/bin/own needs"]);
    assert_refused(&["boot", "--arch", other, own], &[&format!("for {this}"), &format!("is {other}"), "--arch"]);
    assert_refused(
        &["boot", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")],
        &["Cargo.toml", "neither", "nor a script"],
    );
}

/// A file that is a kernel to `pagewright boot`: it ends at this MiB of memory.
fn kernel_image(scratch: &Scratch, arch: &str, end: u64) -> String {
    let mut image = [0; 128];
    if arch == "arm64" {
        // Linux's header: the size in memory and the magic number. The image is at 2 MiB.
        image[16..24].copy_from_slice(&((end - 2) << 20).to_le_bytes());
        image[56..60].copy_from_slice(b"ARM\x64");
    } else {
        // An ELF file for x86-64, with one segment at 2 MiB that is loaded.
        image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (image[16], image[18], image[20], image[32], image[52], image[54], image[56]) = (2, 62, 1, 64, 64, 56, 1);
        image[64] = 1;
        image[64 + 24..64 + 32].copy_from_slice(&(2_u64 << 20).to_le_bytes());
        image[64 + 40..64 + 48].copy_from_slice(&((end - 2) << 20).to_le_bytes());
    }
    scratch.write(&format!("kernel-{arch}-{end}"), &image)
}

#[test]
fn memory_that_is_too_little_for_the_kernel_is_refused() {
    let scratch = Scratch::new("boot-memory");
    // A script is a program, so these machines are refused for their memory only.
    let script = scratch.write("script", b"#!/bin/sh\n");
    let small = |arch: &str, end: u64, machine: &[&str], words: &[&str]| {
        let kernel = kernel_image(&scratch, arch, end);
        let args = [&["boot", "--arch", arch, "--kernel", &kernel], machine, &[&script]].concat();
        assert_refused(&args, words);
    };
    // The image, 8 MiB for the heap and its alignment, and firmware's tables.
    small("x86-64", 4, &["--mem", "1M"], &["--mem: 1 MiB are too little", "at least 13 MiB"]);
    small("x86-64", 4, &["--mem", "8M"], &["--mem: 8 MiB are too little", "at least 13 MiB"]);
    small("x86-64", 4, &["--mem", "12M"], &["--mem: 12 MiB are too little", "at least 13 MiB"]);
    small("x86-64", 7, &["--mem", "15M"], &["--mem: 15 MiB are too little", "at least 16 MiB"]);
    small("arm64", 4, &["--mem", "18M"], &["--mem: 18 MiB are too little", "at least 21 MiB"]);
    small("arm64", 20, &["--mem", "30M"], &["--mem: 30 MiB are too little", "at least 31 MiB"]);
    small("x86-64", 4, &["--node", "0:4M", "--node", "1:4M"], &["--node: 8 MiB are too little"]);
    small("x86-64", 4, &["--node", "0:1M", "--node", "1:16M"], &["--node: node 0 has 1 MiB", "at least 2 MiB"]);
    small("x86-64", 4, &["--node", "0:64M", "--node", "1:1M"], &["--node: node 1 has 1 MiB", "at least 3 MiB"]);
}

#[test]
fn output_files_are_replaced_whole_or_not_at_all() {
    let scratch = Scratch::new("output");
    let shell = &capture("shell");
    let nowhere = scratch.path("none/out.json");
    assert_refused(&["replay", shell, "--json", &nowhere], &["none/out.json", "No such file"]);
    assert_refused(&["replay", shell, "--json", scratch.0.to_str().unwrap()], &["directory"]);
    let kept = scratch.write("kept.json", b"old");
    // So little that it fails at once, before a line of progress is due.
    assert_refused(&["replay", shell, "--mem", "192K", "--json", &kept], &["out of memory"]);
    assert_eq!(fs::read(&kept).unwrap(), b"old", "a failed replay leaves the file unchanged");
    assert_eq!(scratch.files(), ["kept.json"], "a failed replay leaves no temporary file");
    // A device is written to and not replaced.
    let full = scratch.path("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    assert_refused(&["run", "sweep", "--json", &full], &["full", "No space left"]);
    assert!(Path::new(&full).is_symlink());
}

#[test]
fn impossible_recordings_are_refused() {
    let scratch = Scratch::new("record");
    let output = scratch.path("out.pwt");
    assert_refused(&["record", "-o", &output], &["<PROGRAM>"]);
    let bare = Command::new(env!("CARGO_BIN_EXE_pagewright"))
        .args(["record", "-o", &output, "--", "/bin/sh"])
        .env("PATH", &scratch.0)
        .output();
    assert_refusal(&bare.unwrap(), &["valgrind is not installed", "apt install valgrind"]);
    // With a script in place of valgrind, the other errors are found.
    scratch.write("valgrind", b"#!/bin/sh\necho valgrind-0\n");
    let make_executable = Command::new("chmod").args(["+x", &scratch.path("valgrind")]).status();
    assert!(make_executable.unwrap().success());
    let with_valgrind = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
        command.arg("record").args(args).env("PATH", &scratch.0).stdin(Stdio::null()).output().unwrap()
    };
    let missing = with_valgrind(&["-o", &output, "--", "/no/such/program"]);
    assert_refusal(&missing, &["/no/such/program", "no such program"]);
    let nowhere = scratch.path("none/out.pwt");
    assert_refusal(&with_valgrind(&["-o", &nowhere, "--", "/bin/sh"]), &["none/out.pwt", "No such file"]);
    assert!(!Path::new(&output).exists());
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pagewright"))
        .args(["replay", &capture("shell")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe is closed before the first line is written.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// The program with the default action of SIGINT.
///
/// A shell without job control makes its background processes ignore SIGINT.
fn with_default_sigint() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_pagewright")]);
    command
}

/// Starts the program, sends it SIGINT as soon as `ready` returns true, and waits for its end.
fn interrupt(command: &mut Command, ready: impl Fn() -> bool) -> Output {
    end_by("INT", command, ready)
}

/// As [`interrupt`], by another signal.
fn end_by(signal: &str, command: &mut Command, ready: impl Fn() -> bool) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !ready() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The shell's own `kill`, because a small system has no such program.
    let kill = format!("kill -{signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_command_leaves_no_files_and_no_processes() {
    let scratch = Scratch::new("interrupted");
    let mut replay = with_default_sigint();
    replay.args(["replay", &capture("compile"), "--json", &scratch.path("out.json")]);
    let output = interrupt(&mut replay, || !scratch.files().is_empty());
    assert_eq!(output.status.code(), Some(130));
    assert!(scratch.files().is_empty(), "{:?}", scratch.files());

    // In the background of a shell without job control, a process ignores SIGINT.
    let mut replay = Command::new("env");
    replay.args(["--ignore-signal=INT", env!("CARGO_BIN_EXE_pagewright"), "replay", &capture("compile")]);
    replay.args(["--json", &scratch.path("out.json")]);
    let output = end_by("TERM", &mut replay, || !scratch.files().is_empty());
    assert_eq!(output.status.code(), Some(143));
    assert!(scratch.files().is_empty(), "{:?}", scratch.files());

    // A script in place of QEMU writes its process id and never ends.
    let (pid, temporary) = (scratch.path("pid"), scratch.path("temporary"));
    fs::create_dir(&temporary).unwrap();
    let qemu = scratch.write("qemu-system-x86_64", format!("#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n").as_bytes());
    assert!(Command::new("chmod").args(["+x", &qemu]).status().unwrap().success());
    let mut boot = with_default_sigint();
    let program = env!("CARGO_BIN_EXE_pagewright");
    boot.args(["boot", "--kernel", program, program]).env("TMPDIR", &temporary);
    boot.env("PATH", format!("{}:/usr/bin:/bin", scratch.0.display()));
    let is_running = || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
    let output = interrupt(&mut boot, is_running);
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    let process = Path::new("/proc").join(fs::read_to_string(&pid).unwrap().trim());
    assert!(!process.exists(), "QEMU is killed");
}

#[test]
fn the_json_document_has_counters_times_and_images() {
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
    assert!(pagewright(&[&compare[..], &["--seeds", "1"]].concat()).status.success());
    let json = read(&two);
    let faults = |index: usize| json["runs"][index]["counters"]["pgfault"].as_u64().unwrap();
    assert_eq!(json["runs"][0]["label"], "fault_around_bytes=4096");
    assert_eq!(json["runs"][1]["config"]["fault_around_bytes"], 65536);
    assert!(faults(0) > faults(1));
    assert_eq!(scratch.files().len(), 2, "no temporary file is left");
}

#[test]
fn a_comparison_has_a_column_for_each_value_and_hides_equal_rows() {
    let scratch = Scratch::new("compare");
    let json = scratch.path("out.json");
    let compare = ["replay", &capture("shell"), "--compare", "fault_around_bytes=4096,65536,16384", "--seeds", "2"];
    let output = pagewright(&[&compare[..], &["--json", &json]].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let head = text.lines().find(|line| line.starts_with(" counts")).expect("a table of counts");
    let expected =
        ["counts", "fault_around_bytes=4096", "fault_around_bytes=65536", "change", "fault_around_bytes=16384"];
    assert_eq!(head.split_whitespace().take(5).collect::<Vec<_>>(), expected);
    assert!(text.lines().any(|line| line.starts_with(" pgfault ")), "{text}");
    assert!(!text.contains(" pw_fork "), "equal in all replays: {text}");
    assert!(!text.contains("_ps"), "times are not among the counts: {text}");
    assert!(text.contains("rows are equal in all replays; --all shows them"), "{text}");
    let all = String::from_utf8(pagewright(&[&compare[..], &["--all"]].concat()).stdout).unwrap();
    assert!(all.contains(" pw_fork ") && !all.contains("--all shows"), "{all}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let runs: Vec<(u64, u64)> = (json["runs"].as_array().unwrap().iter())
        .map(|run| {
            [&run["config"]["fault_around_bytes"], &run["config"]["seed"]].map(|figure| figure.as_u64().unwrap())
        })
        .map(|[value, seed]| (value, seed))
        .collect();
    assert_eq!(runs, [(4096, 0), (4096, 1), (65536, 0), (65536, 1), (16384, 0), (16384, 1)]);
}

#[test]
fn a_replay_shows_faults_by_mapping_times_with_units_and_counts_that_are_not_zero() {
    let (short, all) = (replay_sort(&[]), replay_sort(&["--all"]));
    assert!(short.contains("faults by mapping") && short.contains("[heap]") && short.contains("libc.so.6"), "{short}");
    assert!(short.contains("Faults over modelled time"), "{short}");
    assert!(short.lines().any(|line| line.ends_with(" ms   elapsed")), "{short}");
    assert!(!short.contains("pswpout") && all.contains("pswpout 0"), "{short}");
    assert!(!short.contains("node 1") && !all.contains("_ps"));
    let nodes = replay_sort(&["--node", "0:1G,cpus=0-1", "--node", "1:1G,cpus=2-3"]);
    assert!(nodes.lines().any(|line| line.starts_with(" node 1 ")), "{nodes}");
    let oracle = replay_sort(&["--oracle"]);
    assert!(oracle.contains("The oracle judged ") && oracle.contains(": no finding"), "{oracle}");
}

#[test]
fn info_says_what_a_capture_holds() {
    let scratch = Scratch::new("info");
    let json = scratch.path("info.json");
    let output = pagewright(&["info", &capture("shell"), "--json", &json]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["Capture of 'dash work.sh'", "processes, threads", "mmap, private file", "/usr/bin/tr", "--all shows"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let contents = serde_json::from_slice::<serde_json::Value>(&fs::read(&json).unwrap()).unwrap();
    let contents = &contents["contents"];
    // The trace's own summary was counted by the importer.
    let reader = || pagewright_capture::trace::TraceReader::open(Path::new(&capture("shell"))).unwrap();
    let (mut trace, mut batch) = (reader(), Vec::new());
    while trace.next_batch(&mut batch).unwrap() {}
    let summary = trace.summary().unwrap();
    let of = |name: &str| contents[name].as_u64().unwrap();
    assert_eq!((of("events"), of("fetches"), of("stores")), (summary.events, summary.fetches, summary.stores));
    assert_eq!(of("fetches") + of("loads") + of("stores"), summary.accesses);
    assert_eq!(of("kernel_accesses"), summary.kernel_accesses);
    assert_eq!(contents["processes"].as_array().unwrap().len() as u32, summary.processes);
    assert_refused(&["info", &scratch.write("text", b"hello, world\n")], &["text"]);
}

#[test]
fn a_recording_ends_with_the_status_of_the_program_and_keeps_the_capture() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let scratch = Scratch::new("status");
    let output = scratch.path("out.pwt");
    let record = |script: &str| pagewright(&["record", "-o", &output, "--", "/bin/sh", "-c", script]);
    let failed = record("exit 3");
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("/bin/sh failed: its exit status was 3; the capture is kept"), "{stderr}");
    assert!(pagewright(&["info", &output]).status.success());
    let killed = record("kill -9 $$");
    assert_eq!(killed.status.code(), Some(137), "{}", String::from_utf8_lossy(&killed.stderr));
    let passed = record("exit 0");
    assert_eq!(passed.status.code(), Some(0));
    assert!(!String::from_utf8_lossy(&passed.stderr).contains("failed"));
}

#[test]
fn memory_in_percent_is_relative_to_the_peak_on_linux() {
    let scratch = Scratch::new("percent");
    let path = scratch.path("out.json");
    assert!(pagewright(&["replay", &capture("sort"), "--mem", "500%", "--json", &path]).status.success());
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let memory = json["runs"][0]["config"]["memory_bytes"].as_u64().unwrap();
    assert!((8 << 20..13 << 20).contains(&memory), "about five times 2 MiB: {memory}");
}

#[test]
fn a_replay_with_less_memory_than_on_linux_prints_a_remark() {
    let (half, whole) = (replay_sort(&["--mem", "50%", "--swap", "64M"]), replay_sort(&[]));
    let remark = "On Linux the program had enough memory";
    assert!(half.contains(remark) && !whole.contains(remark));
    let machine = |text: &str| text.lines().nth(1).unwrap().to_owned();
    assert!(machine(&half).contains(" KiB, 64 MiB of swap, seed 0"), "{}", machine(&half));
    assert!(machine(&whole).contains("4 CPUs, 2048 MiB, seed 0"), "{}", machine(&whole));
}

#[test]
fn help_lists_every_option() {
    let output = pagewright(&["replay", "--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("vm.swappiness=60 (a number from 0 to 200)"), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "a line of {widest:?} columns");
    for option in
        ["--arch", "--profile", "--cpus", "--mem", "--node", "--distance", "--seed", "--set", "--compare", "--json"]
    {
        assert!(text.contains(option), "{option}");
    }
}

#[test]
fn evaluations_are_refused_before_they_run() {
    assert_refused(
        &["evaluate", "clearly"],
        &["unknown evaluation clearly", "the evaluations are batch, clear, cow-table, lines, migrc, thp"],
    );
    assert_refused(&["evaluate", "migrc", "--rounds", "10"], &["--rounds"]);
    let scratch = Scratch::new("evaluate");
    for option in ["--json", "--html"] {
        for name in ["clear", "migrc"] {
            assert_refused(&["evaluate", name, option, &scratch.path("nowhere/file")], &["nowhere/file"]);
        }
    }
    assert!(scratch.files().is_empty());
}

/// INV-FILES-APART.
#[test]
fn an_output_that_is_another_file_of_its_command_is_refused_and_nothing_changes() {
    let scratch = Scratch::new("apart");
    let trace = &scratch.write("t.pwt", &fs::read(capture("shell")).unwrap());
    let program = &scratch.write("program", b"#!/bin/sh\necho ran > \"$0.ran\"\n");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let [link, hard, folder] = ["link", "hard", "folder"].map(|name| scratch.path(name));
    symlink(trace, &link).unwrap();
    fs::hard_link(trace, &hard).unwrap();
    symlink(&scratch.0, &folder).unwrap();
    let through_folder = |name: &str| format!("{folder}/../{}/folder/{name}", scratch.0.file_name().unwrap().display());
    let contents = || {
        let mut files = scratch.files();
        files.sort();
        files.into_iter().map(|name| (fs::read(scratch.path(&name)).ok(), name)).collect::<Vec<_>>()
    };
    let before = contents();
    let refused = |args: &[&str], words: &[&str]| {
        assert_refused(args, words);
        assert_eq!(contents(), before, "{args:?}");
    };
    for output in [trace, &link, &hard, &through_folder("t.pwt")] {
        let words = [&format!("--json {output}: "), "also the capture", trace];
        refused(&["replay", trace, "--json", output], &words);
        refused(&["info", trace, "--json", output], &words);
        refused(
            &["record", "-o", output, "--", program, "x", trace],
            &["--output", output, "an argument of the program"],
        );
    }
    for output in [program, &through_folder("program")] {
        refused(&["record", "-o", output, "--", program], &["--output", output, "also the program"]);
        refused(&["boot", "--record", output, program], &["--record", output, "also the program"]);
        refused(&["boot", "--record", output, "--kernel", program, "x"], &["--record", output, "also --kernel"]);
        let file = format!("{program}=/bin/x");
        refused(&["boot", "--record", output, "--file", &file, "/bin/x"], &["--record", output, "also --file"]);
        let plugin = format!("{program},fast=on");
        refused(&["boot", "--record", output, "--plugin", &plugin, "x"], &["--record", output, "also --plugin"]);
    }
    let (new, same) = (&scratch.path("new"), &through_folder("new"));
    for (json, html) in [(new, same), (new, new), (trace, &hard)] {
        refused(&["evaluate", "lines", "--json", json, "--html", html], &[&format!("--html {html}: "), "also --json"]);
    }
}

#[test]
fn an_output_that_is_standard_input_or_output_or_a_program_in_path_is_refused() {
    let scratch = Scratch::new("streams");
    let file = scratch.write("file", b"#!/bin/sh\n");
    let run = |args: &[&str], change: &dyn Fn(&mut Command)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
        change(command.args(args).stdin(Stdio::null()));
        let output = command.output().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"#!/bin/sh\n");
        output
    };
    let record = ["record", "-o", &file, "--", "file"];
    let from_path = run(&record, &|command| _ = command.env("PATH", &scratch.0));
    assert_refusal(&from_path, &["--output", "also the program", &file]);
    let open = |write: bool| fs::OpenOptions::new().read(true).append(write).open(&file).unwrap();
    let from_input = run(&["record", "-o", &file, "--", "cat"], &|command| _ = command.stdin(open(false)));
    assert_refusal(&from_input, &["--output", "also standard input"]);
    let to_output = run(&["run", "sweep", "--json", &file], &|command| _ = command.stdout(open(true)));
    assert_refusal(&to_output, &["--json", "also standard output"]);
}

#[test]
fn outputs_that_are_one_device_are_written() {
    let null = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
    let status = command.args(["info", &capture("shell"), "--json", "/dev/null"]).stdout(null).status();
    assert!(status.unwrap().success());
}
