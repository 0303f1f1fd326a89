//! The image of a program, made from an ELF file (`load_elf_binary`).
//!
//! An image is an address space with its mappings and its stack, and the initial registers.
//! Programs are static, position-independent or not. Segments are private mappings of the file, as
//! in Linux, so their pages are faulted in.
//!
//! Not guaranteed: interpreters (`PT_INTERP` is refused), executable stacks, address-space
//! randomisation: addresses are those of Linux without it.

use crate::credentials::{Credentials, FileAccess};
use crate::errno::Errno;
use crate::file::{DescriptorTable, FsContext};
use crate::inode::{ArchiveFile, Inode, InodeKind};
use crate::limits::ProcessLimits;
use crate::memory::{FileObject, SpaceHandle, mm};
use crate::options::Options;
use crate::process::Process;
use crate::ramfs;
use crate::record;
use crate::report;
use crate::run_queue::Scheduling;
use crate::signal::{self, PendingSignals, SigActions, SignalCheck, SignalSet};
use crate::task::{self, INIT, Thread, ThreadEntry};
use crate::usage::Usage;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use elf::abi::{EI_NIDENT, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::{Class, ELF64_EHDR_TAILSIZE, FileHeader, parse_ident};
use elf::parse::ParseError;
use elf::segment::{ProgramHeader, SegmentTable};
use linux_raw_sys::auxvec;
use pagewright_arch::Isa;
use pagewright_hal::{Machine, UserContext};
use pagewright_mm::space::{FileMapping, Resource};
use pagewright_mm::{MapFlags, MapRequest};
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};
use spin::Mutex;

/// The load address of a position-independent program (`ELF_ET_DYN_BASE`).
fn dyn_base() -> VirtAddr {
    VirtAddr::new(user_end().raw() / 3 * 2).align_down(PAGE_SIZE)
}

fn user_end() -> VirtAddr {
    <<Machine as pagewright_arch::Effects>::Isa as Isa>::USER_END
}

/// The initial size of the stack, which grows by faults (`setup_arg_pages`).
const STACK_AT_START: u64 = 132 << 10;
/// The limit of the bytes of arguments and environment together.
pub(crate) const STRINGS_MAX: usize = 2 << 20;
/// The size of a program header in bytes, and the limit of all of them together (`load_elf_phdrs`).
const PROGRAM_HEADER: u64 = 56;
const PROGRAM_HEADERS_MAX: u64 = 65536;
/// The limit of scripts that name each other as interpreter (`exec_binprm`).
const INTERPRETERS_MAX: u32 = 5;
#[cfg(target_arch = "x86_64")]
const MACHINE: (u16, &str) = (elf::abi::EM_X86_64, "x86_64");
#[cfg(target_arch = "aarch64")]
const MACHINE: (u16, &str) = (elf::abi::EM_AARCH64, "aarch64");

/// The arguments of `execve`.
pub(crate) struct ExecRequest {
    /// An absolute path.
    pub(crate) path: String,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) environment: Vec<Vec<u8>>,
}

/// A program that is ready to run.
///
/// The CPU that made it runs its address space.
pub(crate) struct ProgramImage {
    pub(crate) space: Arc<SpaceHandle>,
    pub(crate) context: UserContext,
    pub(crate) path: String,
    /// The arguments, each with its zero byte.
    pub(crate) arguments: Arc<[u8]>,
    pub(crate) trampoline: VirtAddr,
    /// The credentials of the program, and whether they are more than the caller's.
    pub(crate) credentials: Credentials,
    pub(crate) is_secure: bool,
}

/// The values of the auxiliary vector that come from the ELF file.
struct AuxvInfo {
    entry: u64,
    headers: u64,
    header_count: u64,
}

/// Checks that there is a program for [`load`], and makes nothing.
pub(crate) fn check(request: &ExecRequest, caller: &Credentials) -> Result<(), Errno> {
    let (node, _) = program(request, caller)?;
    segments(&node).map(drop)
}

/// The program to run, and the request with which a script runs it.
///
/// The first line of a script names its interpreter, which may be a script too.
fn program(request: &ExecRequest, caller: &Credentials) -> Result<(Arc<Inode>, Option<ExecRequest>), Errno> {
    let mut interpreted = None;
    for _ in 0..=INTERPRETERS_MAX {
        let request = interpreted.as_ref().unwrap_or(request);
        let node = ramfs::find(&request.path, true, caller)?;
        if !node.is_file() {
            return Err(Errno::EACCES);
        }
        caller.access(&node.attributes(), FileAccess::EXECUTE)?;
        match script(&node, request) {
            Some(next) => interpreted = Some(next),
            None => return Ok((node, interpreted)),
        }
    }
    Err(Errno::ELOOP)
}

/// Makes the image.
///
/// After an error, the CPU may run no address space.
pub(crate) fn load(request: &ExecRequest, limits: &ProcessLimits, caller: &Credentials) -> Result<ProgramImage, Errno> {
    let (node, interpreted) = program(request, caller)?;
    let (credentials, is_secure) = caller.for_program(&node.attributes());
    let request = interpreted.as_ref().unwrap_or(request);
    let object = node.object().map_err(|_| Errno::EACCES)?;
    let privileges = credentials.privileges();
    let space = Arc::new(SpaceHandle::new(mm().new_space()?, limits, privileges));
    record::begin_image();
    match fill(&space, &node, &object, request, (&credentials, is_secure)) {
        Ok((context, trampoline)) => {
            let (brk, path) = (space.0.map().read().heap().start(), node.path());
            let (top, stack) = (user_end(), limits.space_limits(privileges).get(Resource::Stack));
            record::end_image(Some(format_args!("exec {brk:x} {top:x} {stack:x} {path}")));
            let arguments = request.arguments.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
            Ok(ProgramImage { space, context, path: node.path(), arguments, trampoline, credentials, is_secure })
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
    node: &Inode,
    object: &pagewright_sync::Arc<FileObject>,
    request: &ExecRequest,
    user: (&Credentials, bool),
) -> Result<(UserContext, VirtAddr), Errno> {
    mm().tlb().switch_to(space.0.table().context());
    let program = map(space, node, object)?;
    let sp = stack(space, &program, request, user)?;
    Ok((UserContext::new(VirtAddr::new(program.entry), sp), trampoline(space)?))
}

fn script(node: &Inode, request: &ExecRequest) -> Option<ExecRequest> {
    let line = |bytes: &[u8]| {
        let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        Some(core::str::from_utf8(line).ok()?.trim().to_string())
    };
    let line = node.look_at_start(PAGE_SIZE, line).ok()??;
    let (interpreter, option) = line.split_once(' ').unwrap_or((&line, ""));
    let mut arguments = vec![interpreter.as_bytes().to_vec()];
    if !option.trim().is_empty() {
        arguments.push(option.trim().as_bytes().to_vec());
    }
    arguments.push(request.path.as_bytes().to_vec());
    arguments.extend(request.arguments.iter().skip(1).cloned());
    Some(ExecRequest { path: interpreter.to_string(), arguments, environment: request.environment.clone() })
}

fn parse_header(bytes: &[u8]) -> Result<FileHeader<LittleEndian>, ParseError> {
    if bytes.len() < EI_NIDENT + ELF64_EHDR_TAILSIZE {
        return Err(ParseError::BadMagic([0; 4]));
    }
    let (ident, tail) = bytes.split_at(EI_NIDENT);
    FileHeader::parse_tail(parse_ident(ident)?, tail)
}

/// The headers of an ELF file for this machine.
fn segments(node: &Inode) -> Result<(FileHeader<LittleEndian>, Vec<ProgramHeader>), Errno> {
    let header = node.look_at_start(PAGE_SIZE, parse_header)?.map_err(|_| Errno::ENOEXEC)?;
    let size = u64::from(header.e_phnum) * PROGRAM_HEADER;
    let end = header.e_phoff.checked_add(size).ok_or(Errno::ENOEXEC)?;
    if u64::from(header.e_phentsize) != PROGRAM_HEADER || header.class != Class::ELF64 || size > PROGRAM_HEADERS_MAX {
        return Err(Errno::ENOEXEC);
    }
    let read = |bytes: &[u8]| -> Option<Vec<ProgramHeader>> {
        let table = bytes.get(usize::try_from(header.e_phoff).ok()?..)?;
        let table = table.get(..size as usize)?;
        Some(SegmentTable::new(LittleEndian, header.class, table).iter().collect())
    };
    let headers = node.look_at_start(end, read)?.ok_or(Errno::ENOEXEC)?;
    if header.e_machine != MACHINE.0 || headers.iter().any(|header| header.p_type == PT_INTERP) {
        return Err(Errno::ENOEXEC);
    }
    Ok((header, headers))
}

/// Maps the segments of a program.
fn map(space: &SpaceHandle, node: &Inode, object: &pagewright_sync::Arc<FileObject>) -> Result<AuxvInfo, Errno> {
    let (header, headers) = segments(node)?;
    let bias = match header.e_type {
        ET_EXEC => 0,
        ET_DYN => dyn_base().raw(),
        _ => return Err(Errno::ENOEXEC),
    };
    let loads: Vec<&ProgramHeader> = headers.iter().filter(|header| header.p_type == PT_LOAD).collect();
    for segment in &loads {
        map_segment(space, object, segment, bias)?;
    }
    let end = loads.iter().filter_map(|segment| segment.p_vaddr.checked_add(segment.p_memsz)).max();
    let end = VirtAddr::new(bias + end.ok_or(Errno::ENOEXEC)?).align_up(PAGE_SIZE).ok_or(Errno::ENOEXEC)?;
    mm().set_brk_start(&space.0, end);
    if let Some(code) = loads.iter().find(|segment| segment.p_flags & PF_X != 0) {
        let start = VirtAddr::new(bias + code.p_vaddr).align_down(PAGE_SIZE);
        let last = VirtAddr::new(bias + code.p_vaddr + code.p_filesz).align_up(PAGE_SIZE).ok_or(Errno::ENOEXEC)?;
        mm().set_code(&space.0, PageRange::new(start, last));
    }
    let first = loads.iter().find(|segment| segment.p_offset == 0).map_or(0, |segment| segment.p_vaddr);
    Ok(AuxvInfo {
        entry: bias + header.e_entry,
        headers: bias + first + header.e_phoff,
        header_count: headers.len() as u64,
    })
}

fn rights(flags: u32) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::READ, flags & PF_R != 0);
    rights.set(Rights::WRITE, flags & PF_W != 0);
    rights.set(Rights::EXEC, flags & PF_X != 0);
    rights
}

fn map_segment(
    space: &SpaceHandle,
    object: &pagewright_sync::Arc<FileObject>,
    segment: &ProgramHeader,
    bias: u64,
) -> Result<(), Errno> {
    let address = VirtAddr::new(bias.checked_add(segment.p_vaddr).ok_or(Errno::ENOEXEC)?);
    let start = address.align_down(PAGE_SIZE);
    let lead = address.since(start);
    let offset = segment.p_offset.checked_sub(lead).ok_or(Errno::ENOEXEC)?;
    let in_file = segment.p_filesz + lead;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    if segment.p_filesz > 0 {
        let file = FileMapping { file: object, offset, opened: Rights::RX };
        let request =
            MapRequest { addr: start, len: in_file, rights: rights(segment.p_flags), flags, file: Some(file) };
        mm().mmap(&space.0, &request)?;
        record::mapping(start, in_file, rights(segment.p_flags).bits(), offset, object.name());
    }
    let file_end = start.checked_add(in_file).and_then(|end| end.align_up(PAGE_SIZE)).ok_or(Errno::ENOEXEC)?;
    let end = address.checked_add(segment.p_memsz).and_then(|end| end.align_up(PAGE_SIZE)).ok_or(Errno::ENOEXEC)?;
    if end > file_end {
        let len = end.since(file_end);
        let flags = flags | MapFlags::ANONYMOUS;
        let request = MapRequest { addr: file_end, len, rights: rights(segment.p_flags), flags, file: None };
        mm().mmap(&space.0, &request)?;
        record::mapping(file_end, len, rights(segment.p_flags).bits(), 0, "-");
    }
    // The rest of the last page of the file is cleared.
    let tail = address.add(segment.p_filesz);
    if segment.p_memsz > segment.p_filesz && segment.p_flags & PF_W != 0 && !tail.is_page_aligned() {
        let zeroes = vec![0; (PAGE_SIZE - tail.page_offset()) as usize];
        space.write(tail, &zeroes)?;
    }
    Ok(())
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
    program: &AuxvInfo,
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
    let platform = string(MACHINE.1.as_bytes())?;
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
    program: &AuxvInfo,
    [name, platform, random]: [u64; 3],
    (credentials, is_secure): (&Credentials, bool),
) -> [(u32, u64); 18] {
    [
        (auxvec::AT_PHDR, program.headers),
        (auxvec::AT_PHENT, PROGRAM_HEADER),
        (auxvec::AT_PHNUM, program.header_count),
        (auxvec::AT_PAGESZ, PAGE_SIZE),
        (auxvec::AT_BASE, 0),
        (auxvec::AT_FLAGS, 0),
        (auxvec::AT_ENTRY, program.entry),
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

/// Makes the first process and its only thread ready.
pub(crate) fn start_init(options: &Options) {
    let Some(path) = options.command.first() else { panic!("the command line names no program") };
    let request = ExecRequest {
        path: ramfs::absolute("/", path),
        arguments: options.command.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: ENVIRONMENT.iter().map(|text| text.as_bytes().to_vec()).collect(),
    };
    // The first image is made before its thread, which will be thread 1 of process 1.
    record::set_init_running();
    let (limits, credentials) = (ProcessLimits::of_init(), Credentials::root());
    let image = match load(&request, &limits, &credentials) {
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
    let process = Process::new(&Arc::new(id), id, id, image.path, &image.space, limits, credentials.clone());
    scheduler.processes.insert(id, process);
    let mut actions = SigActions::new();
    actions.trampoline = image.trampoline;
    let actions = Arc::new(Mutex::new(actions));
    scheduler.process(id).arguments = image.arguments;
    scheduler.process(id).actions = Arc::downgrade(&actions);
    let scheduling = Scheduling::of_init();
    let entry = ThreadEntry {
        process: id,
        name: None,
        pending: PendingSignals::default(),
        credentials: credentials.clone(),
        scheduling,
        robust_list: VirtAddr::ZERO,
    };
    scheduler.threads.insert(id, entry);
    scheduler.make_ready(Box::new(Thread {
        id,
        first_id: id,
        process: id,
        context: image.context,
        space: image.space,
        files: Arc::new(Mutex::new(DescriptorTable::of_init())),
        fs: Arc::new(Mutex::new(FsContext::of_init())),
        actions,
        credentials,
        scheduling,
        blocked: SignalSet::default(),
        saved_blocked: None,
        signal_check: SignalCheck::default(),
        signal_stack: (0, 0),
        clear_child_tid: VirtAddr::ZERO,
        set_child_tid: VirtAddr::ZERO,
        call: (0, 0),
        bytes_moved: 0,
        opening: None,
        resume: None,
        deadline: None,
        usage: Usage::default(),
        accounted: 0,
        noted: Usage::default(),
    }));
}
