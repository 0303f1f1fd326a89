//! The image of a program, made from an ELF file (`load_elf_binary`).
//!
//! An image is an address space with its mappings and its stack, and the initial registers.
//! The program and its interpreter are mapped by `segments`.
//!
//! **INV-KERNEL-LOADER** A dynamically linked program begins at its loader. The auxiliary vector
//! tells the loader where the headers and the entry of the program are (`create_elf_tables`).
//!
//! **INV-KERNEL-TEXT** A file that an address space runs as its program is not opened for writing
//! and not cut by its path, and a file that is open for writing does not run (`ETXTBSY`), whether a
//! path or a descriptor leads to it. As in Linux, the descriptor that `memfd_create` returns does
//! not count.
//!
//! Not guaranteed: executable stacks, address-space randomisation: addresses are those of Linux
//! without it.

use crate::archive::ArchiveFile;
use crate::credentials::{Credentials, FileAccess};
use crate::errno::Errno;
use crate::file::{DescriptorTable, FsContext};
use crate::inode::{Inode, InodeKind, RunningProgram, SET_GID, SET_UID};
use crate::limits::ProcessLimits;
use crate::memory::{FileObject, SpaceHandle, mm};
use crate::mount;
use crate::options::Options;
use crate::process::{NO_LEADER, Process};
use crate::ramfs;
use crate::record;
use crate::report;
use crate::run_queue::Scheduling;
use crate::segments::{ElfProgram, MappedProgram, PLATFORM, PROGRAM_HEADER};
use crate::signal::{self, PendingSignals, SigActions, SignalCheck, SignalSet};
use crate::task::{self, INIT, Thread, ThreadEntry};
use crate::usage::{Accounted, Usage};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use linux_raw_sys::{auxvec, general as linux};
use pagewright_arch::Isa;
use pagewright_hal::{Machine, UserContext};
use pagewright_mm::policy::MemPolicy;
use pagewright_mm::space::{FileMapping, Resource};
use pagewright_mm::{MapFlags, MapRequest, ThpDisabled};
use pagewright_plant::plant;
use pagewright_types::{PAGE_SIZE, Rights, VirtAddr};
use spin::Mutex;

pub(crate) fn user_end() -> VirtAddr {
    <<Machine as pagewright_arch::Effects>::Isa as Isa>::USER_END
}

/// The initial size of the stack, which grows by faults (`setup_arg_pages`).
const STACK_AT_START: u64 = 132 << 10;
/// The limit of the bytes of arguments and environment together.
pub(crate) const STRINGS_MAX: usize = 2 << 20;
/// The limit of scripts that name each other as interpreter (`exec_binprm`).
const INTERPRETERS_MAX: u32 = 5;
/// The arguments of `execve`.
pub(crate) struct ExecRequest {
    /// The file of the program.
    pub(crate) node: Arc<Inode>,
    /// An absolute path, by which the file was found or can be (`AT_EXECFN`).
    pub(crate) path: String,
    /// The name of the process (`comm`).
    pub(crate) name: String,
    /// Whether the program can open the path, as an interpreter must.
    pub(crate) is_reachable: bool,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) environment: Vec<Vec<u8>>,
}

/// A program that is ready to run.
///
/// The CPU that made it runs its address space.
pub(crate) struct ProgramImage {
    pub(crate) space: Arc<SpaceHandle>,
    pub(crate) context: UserContext,
    /// The name of the program, or that of the script that it runs.
    pub(crate) name: String,
    /// The arguments and the environment, each word with its zero byte.
    pub(crate) arguments: Arc<[u8]>,
    pub(crate) environment: Arc<[u8]>,
    pub(crate) trampoline: VirtAddr,
    /// The credentials of the program, and whether they are more than the caller's.
    pub(crate) credentials: Credentials,
    pub(crate) is_secure: bool,
}

/// Checks that there is a program for [`load`], and makes nothing.
pub(crate) fn check(request: &ExecRequest, caller: &Credentials) -> Result<(), Errno> {
    let (node, _running, _) = program(request, caller)?;
    ElfProgram::open(node, caller).map(drop)
}

/// Checks that an inode is a file that the caller may execute (`do_open_execat`).
///
/// # Errors
/// `EACCES`.
pub(crate) fn check_program(node: &Inode, caller: &Credentials) -> Result<(), Errno> {
    if !node.is_file() || mount::has_flag(&node.path(), linux::MS_NOEXEC) {
        return Err(Errno::EACCES);
    }
    caller.access(&node.attributes(), FileAccess::EXECUTE)
}

/// The program to run, and the request with which a script runs it.
///
/// The first line of a script names its interpreter, which may be a script too.
///
/// Each file that is looked at must not be open for writing.
fn program(
    request: &ExecRequest,
    caller: &Credentials,
) -> Result<(Arc<Inode>, RunningProgram, Option<ExecRequest>), Errno> {
    let mut interpreted = None;
    for _ in 0..=INTERPRETERS_MAX {
        let request = interpreted.as_ref().unwrap_or(request);
        let node = request.node.clone();
        check_program(&node, caller)?;
        let running = node.run()?;
        match script(request, caller)? {
            Some(next) => interpreted = Some(next),
            None => return Ok((node, running, interpreted)),
        }
    }
    Err(Errno::ELOOP)
}

/// Makes the image, which keeps what its caller has asked of huge pages (`mmf_init_flags`).
///
/// After an error, the CPU may run no address space.
pub(crate) fn load(
    request: &ExecRequest,
    limits: &ProcessLimits,
    caller: &Credentials,
    thp_disabled: ThpDisabled,
) -> Result<ProgramImage, Errno> {
    let (node, running, interpreted) = program(request, caller)?;
    let mut attributes = node.attributes();
    // `mnt_may_suid`
    if mount::has_flag(&node.path(), linux::MS_NOSUID) {
        attributes.mode &= !(SET_UID | SET_GID);
    }
    let (credentials, is_secure) = caller.for_program(&attributes);
    let name = request.name.clone();
    let request = interpreted.as_ref().unwrap_or(request);
    let program = ElfProgram::open(node.clone(), caller)?;
    let privileges = credentials.privileges();
    let space = Arc::new(SpaceHandle::new(mm().new_space()?, limits, privileges, running));
    space.0.set_thp_disabled(thp_disabled);
    record::begin_image();
    match fill(&space, &program, request, (&credentials, is_secure)) {
        Ok((context, trampoline)) => {
            let (brk, path) = (space.0.map().read().heap().start(), node.path());
            let (top, stack) = (user_end(), limits.space_limits(privileges).get(Resource::Stack));
            record::end_image(Some(format_args!("exec {brk:x} {top:x} {stack:x} {path}")));
            let words = |words: &[Vec<u8>]| words.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
            let (arguments, environment) = (words(&request.arguments), words(&request.environment));
            Ok(ProgramImage { space, context, name, arguments, environment, trampoline, credentials, is_secure })
        }
        Err(error) => {
            record::end_image(None);
            // The incomplete space ends with its handle, and no CPU may run it then.
            mm().tlb().leave_space();
            Err(error)
        }
    }
}

fn fill(
    space: &SpaceHandle,
    program: &ElfProgram,
    request: &ExecRequest,
    user: (&Credentials, bool),
) -> Result<(UserContext, VirtAddr), Errno> {
    mm().tlb().switch_to(space.0.table().context());
    let mapped = program.map(space)?;
    let sp = stack(space, &mapped, request, user)?;
    Ok((UserContext::new(VirtAddr::new(mapped.start), sp), trampoline(space)?))
}

/// The request with which a script runs its interpreter; `None` for any other file.
fn script(request: &ExecRequest, caller: &Credentials) -> Result<Option<ExecRequest>, Errno> {
    let line = |bytes: &[u8]| {
        let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        Some(core::str::from_utf8(line).ok()?.trim().to_string())
    };
    let Ok(Some(line)) = request.node.look_at_start(PAGE_SIZE, line) else { return Ok(None) };
    if !request.is_reachable {
        return Err(Errno::ENOENT);
    }
    let (interpreter, option) = line.split_once(' ').unwrap_or((&line, ""));
    let mut arguments = vec![interpreter.as_bytes().to_vec()];
    if !option.trim().is_empty() {
        arguments.push(option.trim().as_bytes().to_vec());
    }
    arguments.push(request.path.as_bytes().to_vec());
    arguments.extend(request.arguments.iter().skip(1).cloned());
    Ok(Some(ExecRequest {
        node: ramfs::find(interpreter, true, caller)?,
        path: interpreter.to_string(),
        name: request.name.clone(),
        is_reachable: true,
        arguments,
        environment: request.environment.clone(),
    }))
}

/// Maps the page with the code that returns from a signal handler, if programs do not have it.
fn trampoline(space: &SpaceHandle) -> Result<VirtAddr, Errno> {
    if signal::TRAMPOLINE.is_empty() {
        return Ok(VirtAddr::ZERO);
    }
    let code = vdso()?;
    let file = FileMapping { file: &code, offset: 0, opened: Rights::RX };
    let request = MapRequest {
        addr: VirtAddr::ZERO,
        len: PAGE_SIZE,
        rights: Rights::RX,
        flags: MapFlags::PRIVATE,
        file: Some(file),
    };
    let at = mm().mmap(&space.0, &request)?;
    record::mapping(at, PAGE_SIZE, Rights::RX.bits(), 0, code.name());
    Ok(at)
}

fn vdso() -> Result<pagewright_sync::Arc<FileObject>, Errno> {
    static VDSO: spin::Once<Arc<Inode>> = spin::Once::new();
    let make = || Inode::new("[vdso]", 0o100_555, InodeKind::Archive(ArchiveFile::new(signal::TRAMPOLINE)));
    VDSO.call_once(make).object()
}

/// Maps the stack, fills it, and returns the stack pointer.
///
/// It holds the strings, the auxiliary vector, the environment and the arguments.
fn stack(
    space: &SpaceHandle,
    program: &MappedProgram,
    request: &ExecRequest,
    user: (&Credentials, bool),
) -> Result<VirtAddr, Errno> {
    let top = user_end();
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::ANONYMOUS | MapFlags::GROWSDOWN;
    let start = VirtAddr::new(top.raw() - STACK_AT_START);
    let map = MapRequest { addr: start, len: STACK_AT_START, rights: Rights::RW, flags, file: None };
    mm().mmap(&space.0, &map)?;
    record::mapping(start, STACK_AT_START, Rights::RW.bits(), 0, "[stack]");
    let strings: usize = request.arguments.iter().chain(&request.environment).map(|string| string.len() + 1).sum();
    if strings > STRINGS_MAX {
        return Err(Errno::E2BIG);
    }
    let mut at = top.raw() - 8;
    let mut put = |bytes: &[u8]| -> Result<u64, Errno> {
        at -= bytes.len() as u64;
        space.write(VirtAddr::new(at), bytes)?;
        Ok(at)
    };
    let mut string = |text: &[u8]| {
        let mut bytes = text.to_vec();
        bytes.push(0);
        put(&bytes)
    };
    let name = string(request.path.as_bytes())?;
    let environment = request.environment.iter().rev().map(|text| string(text)).collect::<Result<Vec<_>, _>>()?;
    let arguments = request.arguments.iter().rev().map(|text| string(text)).collect::<Result<Vec<_>, _>>()?;
    let platform = string(PLATFORM.as_bytes())?;
    let random = string(&[0x5a; 15])?;
    let mut words = vec![arguments.len() as u64];
    words.extend(arguments.iter().rev());
    words.push(0);
    words.extend(environment.iter().rev());
    words.push(0);
    for (kind, value) in auxiliary(program, [name, platform, random], user) {
        words.extend([u64::from(kind), value]);
    }
    let sp = (random - words.len() as u64 * 8) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    space.write(VirtAddr::new(sp), &bytes)?;
    mm().set_stack_start(&space.0, VirtAddr::new(sp));
    Ok(VirtAddr::new(sp))
}

fn auxiliary(
    program: &MappedProgram,
    [name, platform, random]: [u64; 3],
    (credentials, is_secure): (&Credentials, bool),
) -> [(u32, u64); 18] {
    [
        (auxvec::AT_PHDR, program.headers),
        (auxvec::AT_PHENT, PROGRAM_HEADER),
        (auxvec::AT_PHNUM, program.header_count),
        (auxvec::AT_PAGESZ, PAGE_SIZE),
        (auxvec::AT_BASE, program.interpreter),
        (auxvec::AT_FLAGS, 0),
        // INV-KERNEL-LOADER: of the program, also if a loader runs first.
        (auxvec::AT_ENTRY, plant!(EntryOfLoader; program.interpreter, program.entry)),
        (auxvec::AT_UID, credentials.user.real.into()),
        (auxvec::AT_EUID, credentials.user.effective.into()),
        (auxvec::AT_GID, credentials.group.real.into()),
        (auxvec::AT_EGID, credentials.group.effective.into()),
        (auxvec::AT_SECURE, is_secure.into()),
        (auxvec::AT_CLKTCK, 100),
        (auxvec::AT_HWCAP, pagewright_hal::hardware_capabilities()),
        (auxvec::AT_RANDOM, random),
        (auxvec::AT_EXECFN, name),
        (auxvec::AT_PLATFORM, platform),
        (auxvec::AT_NULL, 0),
    ]
}

/// The environment of the first program.
const ENVIRONMENT: [&str; 3] = ["HOME=/", "PATH=/bin:/sbin:/usr/bin:/usr/sbin", "TERM=linux"];

/// The exit status of a shell for a program that cannot be run.
const NOT_FOUND: u8 = 127;

/// The image of the first program, which is at `path`.
fn first_image(
    path: &str,
    options: &Options,
    limits: &ProcessLimits,
    credentials: &Credentials,
) -> Result<ProgramImage, Errno> {
    let absolute = ramfs::absolute("/", path);
    let request = ExecRequest {
        node: ramfs::find(&absolute, true, credentials)?,
        path: absolute,
        name: path.rsplit('/').next().unwrap_or_default().to_string(),
        is_reachable: true,
        arguments: options.command.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: ENVIRONMENT.iter().map(|text| text.as_bytes().to_vec()).collect(),
    };
    load(&request, limits, credentials, ThpDisabled::No)
}

/// Makes the first process and its only thread ready.
pub(crate) fn start_init(options: &Options) {
    let Some(path) = options.command.first() else { panic!("the command line names no program") };
    // The first image is made before its thread, which will be thread 1 of process 1.
    record::set_init_running();
    let (limits, credentials) = (ProcessLimits::of_init(), Credentials::root());
    let image = match first_image(path, options, &limits, &credentials) {
        Ok(image) => image,
        Err(error) => {
            report::say(format_args!("{path} cannot be run: {error}"));
            report::power_off(NOT_FOUND)
        }
    };
    // The first thread may run on any CPU, and then this one has nothing of its space.
    mm().tlb().leave_space();
    let mut scheduler = task::scheduler();
    let id = scheduler.choose_id(None).unwrap_or(INIT);
    debug_assert_eq!(id, INIT, "the first number is that of the first process");
    let actions = Arc::new(Mutex::new(SigActions::new().for_new_program(image.trampoline)));
    let files = Arc::new(Mutex::new(DescriptorTable::of_init(options.input)));
    let Ok(root) = ramfs::at("/") else { panic!("the tree has no root") };
    let fs = Arc::new(Mutex::new(FsContext::of_init(root)));
    let mut process = Process::new(&Arc::new(id), id, NO_LEADER, image.name, &image.space, limits, credentials.clone());
    (process.arguments, process.environment) = (image.arguments, image.environment);
    (process.files, process.fs, process.actions) =
        (Arc::downgrade(&files), Arc::downgrade(&fs), Arc::downgrade(&actions));
    scheduler.processes.insert(id, process);
    let (scheduling, pending) = (Scheduling::of_init(), PendingSignals::default());
    let entry = ThreadEntry {
        process: id,
        name: None,
        pending,
        credentials: credentials.clone(),
        scheduling,
        robust_list: VirtAddr::ZERO,
        inherited_lock: None,
    };
    scheduler.threads.insert(id, entry);
    scheduler.make_ready(Box::new(Thread {
        id,
        first_id: id,
        process: id,
        context: image.context,
        space: image.space,
        files,
        fs,
        actions,
        credentials,
        scheduling,
        policy: MemPolicy::DEFAULT,
        blocked: SignalSet::default(),
        saved_blocked: None,
        signal_check: SignalCheck::default(),
        signal_stack: (0, 0),
        clear_child_tid: VirtAddr::ZERO,
        set_child_tid: VirtAddr::ZERO,
        call: (0, 0),
        bytes_moved: 0,
        messages: None,
        words: Vec::new(),
        opening: None,
        resume: None,
        deadline: None,
        usage: Usage::default(),
        accounted: Accounted::default(),
        noted: Usage::default(),
    }));
}
