//! Hand-written logs, each with a property of real logs, and the events of the imported trace.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use pagewright_capture::import::{ExecutableError, ImportError, ImportOptions, MappingInference, import, import_to};
use pagewright_capture::trace::{
    AccessOrigin, AccessStream, AddressLayout, ImageBacking, MappingSource, MemOp, TaskEvent, TraceError, TraceEvent,
    TraceReader, TraceSummary,
};

/// A directory with logs, a data file and an executable.
///
/// The executable is static, with code at 0x400000 and data and bss at 0x402000.
struct Capture {
    directory: PathBuf,
    logs: Vec<PathBuf>,
}

/// The address of the executable's first instruction.
const ENTRY: u64 = 0x40_0100;

impl Capture {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("pagewright-import-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("program"), elf()).unwrap();
        fs::write(directory.join("data"), vec![0; 10_000]).unwrap();
        Self { directory, logs: Vec::new() }
    }

    fn program(&self) -> String {
        self.directory.join("program").display().to_string()
    }

    /// Adds the log of a process: a preamble, then `body`.
    ///
    /// `@` stands for the pid and `DIR` for the directory. If `started`, the preamble is that of an
    /// exec, and otherwise that of a fork.
    fn log(mut self, pid: u32, parent: u32, started: bool, body: &str) -> Self {
        let mut text = format!(
            "==@== Lackey, an example Valgrind tool\n==@== Copyright (C) 2002-2017\n==@== Command: {}\n==@== Parent PID: {parent}\n==@== \n",
            self.program()
        );
        if started {
            text += "--@--   SCHED[1]:  acquired lock (thread_wrapper(starting new thread))\n--@--   SCHED[1]: entering VG_(scheduler)\n";
            writeln!(text, "I  {ENTRY:08x},3").unwrap();
        }
        text += body;
        let text = text.replace('@', &pid.to_string()).replace("DIR", &self.directory.display().to_string());
        let path = self.directory.join(format!("log.{pid}"));
        fs::write(&path, text).unwrap();
        self.logs.push(path);
        self
    }

    fn options(&self) -> ImportOptions {
        ImportOptions { directory: self.directory.clone(), ..ImportOptions::default() }
    }

    fn import_with(&self, options: &ImportOptions) -> Result<(Vec<TraceEvent>, TraceSummary), ImportError> {
        let (_, bytes) = import_to(&self.logs, Vec::new(), Path::new("out.pwt"), options)?;
        let mut reader = TraceReader::new(&bytes[..], "out.pwt").unwrap();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while reader.next_batch(&mut batch).unwrap() {
            all.append(&mut batch);
        }
        Ok((all, reader.summary().unwrap().clone()))
    }

    fn import(&self) -> Result<(Vec<TraceEvent>, TraceSummary), ImportError> {
        self.import_with(&self.options())
    }

    /// Imports the logs; returns each event as a line.
    fn lines(&self) -> Vec<String> {
        self.import().unwrap_or_else(|error| panic!("{error}")).0.iter().map(line).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn line(event: &TraceEvent) -> String {
    match event {
        TraceEvent::Run(run) => {
            let stream = match (run.origin, run.stream) {
                (AccessOrigin::Kernel, _) => "kernel",
                (AccessOrigin::User, AccessStream::Fetch) => "fetch",
                (AccessOrigin::User, AccessStream::Data) => "data",
            };
            let first = if run.write_first { "w" } else { "r" };
            format!("{stream} {} {}+{} {first}", run.page, run.reads, run.writes)
        }
        TraceEvent::Switch { pid, tid } => format!("switch {pid}.{tid}"),
        TraceEvent::Task(task) => match &**task {
            TaskEvent::Begin { pid, tid } => format!("begin {pid}.{tid}"),
            TaskEvent::Exec { image } => format!("exec {} brk {}", image.mappings.len(), image.brk),
            TaskEvent::CloneThread { tid } => format!("thread {tid}"),
            TaskEvent::Fork { child, tid, vfork } => {
                format!("fork {child}.{tid}{}", if *vfork { " vfork" } else { "" })
            }
            TaskEvent::ExitThread {} => "exit thread".into(),
            TaskEvent::ExitProcess { status } => format!("exit {status}"),
            TaskEvent::Reaped { child } => format!("reaped {child}"),
        },
        TraceEvent::Call(call) => match call.result {
            Ok(value) => format!("{:x?} = {value:#x}", call.op),
            Err(errno) => format!("{:x?} failed {errno}", call.op),
        },
        TraceEvent::File(file) => {
            format!("file {} {} {:?}", file.id, Path::new(&file.path).file_name().unwrap().display(), file.size)
        }
    }
}

/// A small ELF file.
fn elf() -> Vec<u8> {
    let mut out = vec![0u8; 0x1800];
    out[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2u16.to_le_bytes()); // ET_EXEC
    put(18, &62u16.to_le_bytes()); // x86-64
    put(20, &1u32.to_le_bytes());
    put(24, &ENTRY.to_le_bytes());
    put(32, &64u64.to_le_bytes()); // program headers after the header
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &2u16.to_le_bytes());
    let mut segment = |at: usize, flags: u32, offset: u64, vaddr: u64, file: u64, mem: u64| {
        put(at, &1u32.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (field, value) in [offset, vaddr, vaddr, file, mem, 0x1000].into_iter().enumerate() {
            put(at + 8 + 8 * field, &value.to_le_bytes());
        }
    };
    segment(64, 5, 0, 0x40_0000, 0x1000, 0x1000);
    segment(120, 6, 0x1000, 0x40_2000, 0x800, 0x1800);
    out
}

const EXIT: &str = "SYSCALL[@,1](231) exit_group( 0 ) --> [pre-success] Success(0x0) \n";

/// The first events of every trace: the exec, and the page whose end `execve` clears.
fn first_lines() -> Vec<String> {
    ["begin 1.1", "file 1 program Some(6144)", "exec 6 brk 0x404000", "kernel 0x402 0+1 w"].map(String::from).to_vec()
}

fn expect(lines: &[String], rest: &[&str]) {
    let expected: Vec<String> = first_lines().into_iter().chain(rest.iter().map(|line| (*line).to_owned())).collect();
    assert_eq!(lines, expected);
}

#[test]
fn runs_are_in_the_order_of_their_first_accesses() {
    let body = format!(
        " S 00402010,8\nI  00400103,4\n L 00402ffc,8\n M 00403000,4\nI  00400107,2\n L 00402000,8\nI  00400ffe,4\n{EXIT}"
    );
    // The load at 402ffc straddles two pages and counts in both. So does the last fetch, but its
    // second page is not mapped.
    expect(
        &Capture::new("runs").log(7, 1, true, &body).lines(),
        &["fetch 0x400 4+0 r", "data 0x402 1+1 w", "data 0x403 2+1 r", "data 0x402 1+0 r", "exit 0"],
    );
}

#[test]
fn the_image_has_the_mappings_of_binfmt_elf() {
    let capture = Capture::new("image").log(7, 1, true, EXIT);
    let (events, _) = capture.import().unwrap();
    let image = events
        .iter()
        .find_map(|event| match event {
            TraceEvent::Task(task) => match &**task {
                TaskEvent::Exec { image } => Some(image.clone()),
                _ => None,
            },
            _ => None,
        })
        .unwrap();
    let seen: Vec<_> =
        image.mappings.iter().map(|map| (map.start.0, map.len, map.prot.0, map.backing.clone())).collect();
    let file = image.executable;
    assert_eq!(
        seen,
        [
            (0x40_0000, 0x1000, 5, ImageBacking::File { file, offset: 0 }),
            (0x40_2000, 0x1000, 3, ImageBacking::File { file, offset: 0x1000 }),
            (0x40_3000, 0x1000, 3, ImageBacking::Anonymous {}),
            (0x7fff_f7ff_7000, 0x6000, 1, ImageBacking::Vvar {}),
            (0x7fff_f7ff_d000, 0x2000, 5, ImageBacking::Vdso {}),
            (0x7fff_fffd_e000, 0x2_1000, 3, ImageBacking::Stack {}),
        ]
    );
    assert_eq!(image.stack_top.0, 0x7fff_ffff_f000);
    assert_eq!(image.args, [capture.program()]);
}

#[test]
fn execve_fills_the_stack_above_its_first_access() {
    let body = format!(" S 1fffefff80,8\n{EXIT}").replace("1fffefff80", "1ffeffffb8");
    expect(
        &Capture::new("stack").log(7, 1, true, &body).lines(),
        &[
            "fetch 0x400 1+0 r",
            "kernel 0x7fffffffd 0+1 w",
            "kernel 0x7fffffffe 0+1 w",
            "data 0x7fffffffd 0+1 w",
            "exit 0",
        ],
    );
}

#[test]
fn memory_calls_have_the_addresses_of_linux() {
    let body = format!(
        "SYSCALL[@,1](12) sys_brk ( 0x0 ) --> [pre-success] Success(0x4035000) \n\
         SYSCALL[@,1](12) sys_brk ( 0x4056000 ) --> [pre-success] Success(0x4056000) \n\
         SYSCALL[@,1](257) sys_openat ( 4294967196, 0x402000(data), 524288 ) --> [async] ... \n\
         --@--   SCHED[1]: releasing lock (VG_(client_syscall)[async]) -> VgTs_WaitSys\n\
         --@--   SCHED[1]:  acquired lock (VG_(client_syscall)[async])\n\
         SYSCALL[@,1](257) ... [async] --> Success(0x4) \n\
         SYSCALL[@,1](9) sys_mmap ( 0x0, 10000, 1, 2, 4, 0 ) --> [pre-success] Success(0x4837000) \n\
         SYSCALL[@,1](3) sys_close ( 4 )[sync] --> Success(0x0) \n L 04838000,8\n S 04035010,8\n\
         SYSCALL[@,1](28) sys_madvise ( 0x4837000, 4096, 4 ) --> [async] ... \nSYSCALL[@,1](28) ... [async] --> Success(0x0) \n\
         SYSCALL[@,1](11) sys_munmap ( 0x4837000, 10000 )[sync] --> Success(0x0) \n\
         SYSCALL[@,1](9) sys_mmap ( 0x0, 0, 1, 34, 4294967295, 0 ) --> [pre-fail] Failure(0x16) \n\
         SYSCALL[@,1](30) sys_shmat ( 3, 0x0, 0 ) --> [async] ... \nSYSCALL[@,1](30) ... [async] --> Success(0x5000000) \n{EXIT}"
    );
    expect(
        &Capture::new("calls").log(7, 1, true, &body).lines(),
        &[
            "fetch 0x400 1+0 r",
            "Brk { addr: UserAddr(0x0) } = 0x404000",
            "Brk { addr: UserAddr(0x425000) } = 0x425000",
            "kernel 0x402 1+0 r",
            "file 2 data Some(10000)",
            "Mmap { addr: UserAddr(0x0), len: 2710, prot: Prot(0x1), flags: RawMapFlags(0x2), file: Some(FileId(2)), offset: 0 } = 0x7ffff7ff4000",
            "data 0x7ffff7ff5 1+0 r",
            "data 0x404 0+1 w",
            "Madvise { addr: UserAddr(0x7ffff7ff4000), len: 1000, advice: 4 } = 0x0",
            "Munmap { addr: UserAddr(0x7ffff7ff4000), len: 2710 } = 0x0",
            "Mmap { addr: UserAddr(0x0), len: 0, prot: Prot(0x1), flags: RawMapFlags(0x22), file: None, offset: 0 } failed 22",
            "Other { number: 1e, args: [3, 0, 0] } = 0x5000000",
            "exit 0",
        ],
    );
}

#[test]
fn accesses_to_valgrinds_objects_are_omitted() {
    let body = format!(
        "SYSCALL[@,1](257) sys_openat ( 4294967196, 0x10(/usr/libexec/valgrind/vgpreload_core-amd64-linux.so), 524288 )[sync] --> Success(0x4) \n\
         SYSCALL[@,1](9) sys_mmap ( 0x0, 16400, 1, 2050, 4, 0 ) --> [pre-success] Success(0x4837000) \n\
         SYSCALL[@,1](9) sys_mmap ( 0x4838000, 4096, 5, 2066, 4, 4096 ) --> [pre-success] Success(0x4838000) \n\
         SYSCALL[@,1](9) sys_mmap ( 0x483a000, 4096, 3, 50, 4294967295, 0 ) --> [pre-success] Success(0x483a000) \n\
         SYSCALL[@,1](10) sys_mprotect ( 0x483a000, 4096, 1 )[sync] --> Success(0x0) \nI  04838010,4\n M 0483a000,8\nI  5807d000,4\n{EXIT}"
    );
    let capture = Capture::new("tool").log(7, 1, true, &body);
    expect(&capture.lines(), &["fetch 0x400 1+0 r", "exit 0"]);
    assert_eq!(capture.import().unwrap().1.left_out, 4);
}

#[test]
fn system_calls_access_user_memory() {
    let body = format!(
        "SYSCALL[@,1](0) sys_read ( 0, 0x402f00, 8192 ) --> [async] ... \nSYSCALL[@,1](0) ... [async] --> Success(0x180) \n\
         SYSCALL[@,1](5) sys_newfstat ( 0, 0x402000 )[sync] --> Failure(0x9) \n{EXIT}"
    );
    expect(
        &Capture::new("effects").log(7, 1, true, &body).lines(),
        &["fetch 0x400 1+0 r", "kernel 0x402 0+1 w", "kernel 0x403 0+1 w", "exit 0"],
    );
}

#[test]
fn notes_of_the_scheduler_switch_threads() {
    let body = format!(
        "SYSCALL[@,1](56) sys_clone ( 3d0f00, 0x5229f70, 0x522a990, 0x522a990, 0x522a6c0 ) --> [pre-success] Success(0xcf8) --@--   SCHED[1]: releasing lock (VG_(vg_yield)) -> VgTs_Yielding\n\
         --@--   SCHED[1]:  acquired lock (VG_(vg_yield))\n\n S 00402000,8\n\
         --@--   SCHED[1]: releasing lock (VG_(scheduler):timeslice) -> VgTs_Yielding\n\
         --@--   SCHED[2]:  acquired lock (thread_wrapper(starting new thread))\n L 00402000,8\n\
         SYSCALL[@,2](60) exit( 0 ) --> [pre-success] Success(0x0) \n--@--   SCHED[2]: exiting VG_(scheduler)\n\
         --@--   SCHED[1]:  acquired lock (VG_(scheduler):timeslice)\n L 00402000,8\n\
         SYSCALL[@,1](56) sys_clone ( 3d0f00, 0x1, 0x2, 0x3, 0x4 ) --> [pre-success] Success(0xcf9) \n\
         --@--   SCHED[2]:  acquired lock (thread_wrapper(starting new thread))\n S 00403000,8\n\
         --@--   SCHED[1]:  acquired lock (VG_(vg_yield))\n{EXIT}"
    );
    expect(
        &Capture::new("threads").log(7, 1, true, &body).lines(),
        &[
            "fetch 0x400 1+0 r",
            "thread 2",
            "data 0x402 0+1 w",
            "switch 1.2",
            "data 0x402 1+0 r",
            "exit thread",
            "switch 1.1",
            "data 0x402 1+0 r",
            "thread 3",
            "switch 1.3",
            "data 0x403 0+1 w",
            "switch 1.1",
            "exit 0",
        ],
    );
}

const FORK: &str = "SYSCALL[@,1](56) sys_clone ( 1200011, 0x0, 0x0, 0x4a27a10, 0x0 )   clone(fork): process @ created child 8\n \
                    --> [pre-success] Success(0x8) --@--   SCHED[1]: releasing lock (VG_(vg_yield)) -> VgTs_Yielding\n\
                    --@--   SCHED[1]:  acquired lock (VG_(vg_yield))\n\n";

#[test]
fn a_wait_follows_the_exit_of_the_child() {
    let parent = format!(
        "{FORK} S 00402000,8\nSYSCALL[@,1](61) sys_wait4 ( 4294967295, 0x402008, 0, 0x0 ) --> [async] ... \n\
         SYSCALL[@,1](61) ... [async] --> Success(0x8) \n L 00402000,8\n{EXIT}"
    );
    let child = " --> [pre-success] Success(0x0) \n S 00403000,8\nSYSCALL[@,1](231) exit_group( 3 ) --> [pre-success] Success(0x0) \n";
    expect(
        &Capture::new("fork").log(7, 1, true, &parent).log(8, 7, false, child).lines(),
        &[
            "fetch 0x400 1+0 r",
            "fork 2.2",
            "data 0x402 0+1 w",
            "kernel 0x402 0+1 w",
            "switch 2.2",
            "data 0x403 0+1 w",
            "exit 3",
            "switch 1.1",
            "reaped 2",
            "data 0x402 1+0 r",
            "exit 0",
        ],
    );
}

#[test]
fn a_thread_that_forks_keeps_its_number_in_the_child() {
    let clone = "SYSCALL[@,1](56) sys_clone ( 3d0f00, 0x1, 0x2, 0x3, 0x4 ) --> [pre-success] Success(0xcf9) \n\
                 --@--   SCHED[2]:  acquired lock (thread_wrapper(starting new thread))\n";
    let parent = format!(
        "{clone}{}--@--   SCHED[1]:  acquired lock (VG_(vg_yield))\n{EXIT}",
        FORK.replace("SYSCALL[@,1]", "SYSCALL[@,2]").replace("SCHED[1]", "SCHED[2]")
    );
    let child = " --> [pre-success] Success(0x0) \nSYSCALL[@,2](273) sys_set_robust_list ( 0x403000, 24 )[sync] --> Success(0x0) \n\
                 S 00403000,8\nSYSCALL[@,2](231) exit_group( 0 ) --> [pre-success] Success(0x0) \n"
        .replace("\nS ", "\n S ");
    expect(
        &Capture::new("threadfork").log(7, 1, true, &parent).log(8, 7, false, &child).lines(),
        &[
            "fetch 0x400 1+0 r",
            "thread 2",
            "switch 1.2",
            "fork 3.3",
            "switch 1.1",
            "exit 0",
            "switch 3.3",
            "data 0x403 0+1 w",
            "exit 0",
        ],
    );
}

#[test]
fn a_wait_interrupted_by_a_signal_follows_the_exit_of_a_child() {
    let parent = format!(
        "{FORK}SYSCALL[@,1](61) sys_wait4 ( 4294967295, 0x402008, 0, 0x0 ) --> [async] ... \n\
         --@--   SCHED[1]:  acquired lock (async_signalhandler)\nSCHEDSETJMP(line 1211) tid 1, jumped=1476724588\nI  00400200,4\n\
         SYSCALL[@,1](15) sys_rt_sigreturn ( ) --> [pre-success] NoWriteResult \n\
         SYSCALL[@,1](61) sys_wait4 ( 4294967295, 0x402008, 1, 0x0 ) --> [async] ... \n\
         SYSCALL[@,1](61) ... [async] --> Failure(0xa) \n{EXIT}"
    );
    let child = format!(" --> [pre-success] Success(0x0) \n S 00403000,8\n{EXIT}");
    expect(
        &Capture::new("signal").log(7, 1, true, &parent).log(8, 7, false, &child).lines(),
        &[
            "fetch 0x400 1+0 r",
            "fork 2.2",
            "switch 2.2",
            "data 0x403 0+1 w",
            "exit 0",
            "switch 1.1",
            "fetch 0x400 1+0 r",
            "reaped 2",
            "exit 0",
        ],
    );
}

#[test]
fn a_vfork_parent_continues_after_the_exec_of_its_child() {
    let parent = format!("{} S 00402000,8\n{EXIT}", FORK.replace("1200011", "4111"));
    let child = "==8== Lackey, an example Valgrind tool\n==8== Command: x\n==8== Parent PID: 7\n==8== \n --> [pre-success] Success(0x0) \nI  00400108,2\n\
                 SYSCALL[8,1](59) sys_execve ( 0x1(DIR/program), 0x2, 0x3 )==8== Lackey, an example Valgrind tool\n==8== Command: DIR/program two\\ words\n\
                 ==8== Parent PID: 7\n==8== \n--8--   SCHED[1]:  acquired lock (thread_wrapper(starting new thread))\nI  00400100,3\n\
                 SYSCALL[8,1](231) exit_group( 0 ) --> [pre-success] Success(0x0) \n";
    let mut capture = Capture::new("vfork").log(7, 1, true, &parent);
    let path = capture.directory.join("log.8");
    fs::write(&path, child.replace("DIR", &capture.directory.display().to_string())).unwrap();
    capture.logs.push(path);
    expect(
        &capture.lines(),
        &[
            "fetch 0x400 1+0 r",
            "fork 2.2 vfork",
            "switch 2.2",
            "fetch 0x400 1+0 r",
            "exec 6 brk 0x404000",
            "kernel 0x402 0+1 w",
            "fetch 0x400 1+0 r",
            "exit 0",
            "switch 1.1",
            "data 0x402 0+1 w",
            "exit 0",
        ],
    );
}

#[test]
fn the_exit_status_of_a_killed_process_has_its_signal() {
    let body = "SYSCALL[@,1](39) sys_getpid ()[sync] --> Success(0x7) \n S 00402000,8\n==@== \n==@== Process terminating with default action of signal 15 (SIGTERM)\n==@==    at 0x400200: main\n";
    expect(
        &Capture::new("killed").log(7, 1, true, body).lines(),
        &["fetch 0x400 1+0 r", "data 0x402 0+1 w", "exit 143"],
    );
}

#[test]
fn the_captured_layout_has_valgrinds_addresses() {
    let body = format!(
        "SYSCALL[@,1](9) sys_mmap ( 0x0, 4096, 3, 34, 4294967295, 0 ) --> [pre-success] Success(0x4837000) \n S 04837000,8\n{EXIT}"
    );
    let capture = Capture::new("layout").log(7, 1, true, &body);
    let options = ImportOptions { layout: AddressLayout::AsCaptured, ..capture.options() };
    let (events, _) = capture.import_with(&options).unwrap();
    assert!(events.iter().any(|event| line(event) == "data 0x4837 0+1 w"));
}

#[test]
fn logs_may_be_compressed() {
    let mut capture = Capture::new("zstd").log(7, 1, true, &format!(" S 00402000,8\n{EXIT}"));
    let plain = capture.import().unwrap();
    let text = fs::read(&capture.logs[0]).unwrap();
    let path = capture.directory.join("log.zst");
    fs::write(&path, zstd::encode_all(&text[..], 1).unwrap()).unwrap();
    capture.logs = vec![path];
    assert_eq!(capture.import().unwrap(), plain);
}

#[test]
fn a_log_without_calls_is_refused_unless_mappings_are_inferred() {
    let mut capture = Capture::new("bare");
    let path = capture.directory.join("bare.log");
    fs::write(&path, "I  00400100,3\n S 00402000,8\n L 00603000,8\n").unwrap();
    capture.logs.push(path);
    let error = capture.import().unwrap_err();
    assert!(matches!(error, ImportError::AccessesAlone { line: 1, .. }), "{error}");
    let options = ImportOptions { infer: MappingInference::Premapped, ..capture.options() };
    let (events, summary) = capture.import_with(&options).unwrap();
    let lines: Vec<String> = events.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "begin 1.1",
            "Inferred { addr: UserAddr(0x400000), len: 200000 } = 0x400000",
            "fetch 0x400 1+0 r",
            "data 0x402 0+1 w",
            "Inferred { addr: UserAddr(0x600000), len: 200000 } = 0x600000",
            "data 0x603 1+0 r",
            "exit 0",
        ]
    );
    assert_eq!(summary.left_out, 0);
    let output = capture.directory.join("bare.pwt");
    import(&capture.logs, &output, &options).unwrap();
    let reader = TraceReader::open(&output).unwrap();
    assert_eq!(
        (reader.header().mappings, reader.header().layout),
        (MappingSource::Premapped, AddressLayout::AsCaptured)
    );
    // An inferred mapping is not a call of the program.
    assert!(
        events.iter().any(|event| matches!(event, TraceEvent::Call(call) if matches!(call.op, MemOp::Inferred { .. })))
    );
}

#[test]
fn the_error_of_a_bad_log_names_its_line() {
    let refuse = |name: &str, body: &str| Capture::new(name).log(7, 1, true, body).import().unwrap_err();
    let garbage = refuse("garbage", " S 00402000,8\nwhat is this\n");
    assert!(matches!(&garbage, ImportError::Syntax { line: 10, text, .. } if text == "what is this"), "{garbage}");
    assert!(garbage.to_string().contains("log.7:10: not a line of a lackey log: \"what is this\""), "{garbage}");
    let cut = refuse("cut", "SYSCALL[@,1](12) sys_brk ( 0x0 ) --> [pre-success] Success(0x4035000) \n S 00402000,8\n");
    assert!(matches!(cut, ImportError::Unfinished { line: 10, pid: 7, .. }), "{cut}");
    let mid_line = refuse("midline", "SYSCALL[@,1](12) sys_brk ( 0x0 ) --> [pre-succ");
    assert!(
        matches!(mid_line, ImportError::Syntax { line: 9, .. } | ImportError::Unfinished { line: 9, .. }),
        "{mid_line}"
    );
    let alone = refuse("alone", " S 00402000,8\n");
    assert!(matches!(alone, ImportError::AccessesAlone { .. }), "{alone}");
    let thread = refuse("thread", "--@--   SCHED[3]:  acquired lock (VG_(vg_yield))\n");
    assert!(matches!(thread, ImportError::UnknownThread { slot: 3, line: 9, .. }), "{thread}");
    let missing = refuse("missing", FORK);
    assert!(matches!(missing, ImportError::MissingLog { child: 8, .. }), "{missing}");
}

#[test]
fn logs_must_be_those_of_one_capture() {
    let two_roots = Capture::new("roots").log(7, 1, true, EXIT).log(9, 2, true, EXIT).import().unwrap_err();
    assert!(matches!(two_roots, ImportError::TwoRoots { .. }), "{two_roots}");
    let orphan = Capture::new("orphan").log(7, 1, true, EXIT).log(9, 7, true, EXIT).import().unwrap_err();
    assert!(matches!(orphan, ImportError::Orphan { pid: 9, .. }), "{orphan}");
    let mut twice = Capture::new("twice").log(7, 1, true, EXIT);
    twice.logs.push(twice.logs[0].clone());
    assert!(matches!(twice.import().unwrap_err(), ImportError::TwoLogs { pid: 7, .. }));
    let none = import(&[], Path::new("/nonexistent/x.pwt"), &ImportOptions::default()).unwrap_err();
    assert!(matches!(none, ImportError::Output { .. } | ImportError::NoLogs), "{none}");
    let empty = Capture::new("empty");
    let path = empty.directory.join("log");
    fs::write(&path, "").unwrap();
    let error = import_to(&[path], Vec::new(), Path::new("x"), &empty.options()).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImportError::Empty { .. }), "{error}");
}

#[test]
fn an_executable_must_exist_and_be_elf() {
    let mut capture = Capture::new("noexe").log(7, 1, true, EXIT);
    fs::remove_file(capture.program()).unwrap();
    let error = capture.import().unwrap_err();
    assert!(matches!(&error, ImportError::Executable { why: ExecutableError::Io(_), line: 8, .. }), "{error}");
    fs::write(capture.program(), "not an executable").unwrap();
    let error = capture.import().unwrap_err();
    assert!(matches!(&error, ImportError::Executable { why: ExecutableError::NotElf, .. }), "{error}");
    fs::write(capture.program(), format!("#!{}\n", capture.program())).unwrap();
    let error = capture.import().unwrap_err();
    assert!(matches!(&error, ImportError::Executable { why: ExecutableError::TooManyInterpreters(5), .. }), "{error}");
    capture.logs.clear();
}

#[test]
fn a_failed_import_leaves_no_file() {
    let capture = Capture::new("nothing").log(7, 1, true, "what is this\n");
    let output = capture.directory.join("out.pwt");
    import(&capture.logs, &output, &capture.options()).unwrap_err();
    let left: Vec<_> = fs::read_dir(&capture.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("out.pwt")), "{left:?}");
    assert!(matches!(TraceReader::open(&output), Err(TraceError::Io { .. })));
}
