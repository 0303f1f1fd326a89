//! The callbacks of QEMU.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::api::{self, Api, Id, Info};
use crate::guest;
use crate::launch::{AARCH64, Launch, X86_64};
use crate::log::{Image, Record};
use crate::output::{self, Options};
use crate::turn::ForkLock;
use crate::vcpu::{ACCESS, FETCH, Turn, Vcpu};

/// The version of the interface, which QEMU checks.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: c_int = 1;

/// Maximum number of threads at one time; accesses of others are not recorded.
const VCPUS: usize = 4096;
/// The wait for a turn inside QEMU's code, after which a thread runs without it.
const PATIENCE: Duration = Duration::from_millis(50);
/// Number of blocks after which a thread lets another one run.
///
/// A thread that spins until another one stores touches few pages, but executes many blocks.
const TURN: u32 = 50_000;
const PAGE_SHIFT: u32 = 12;
/// Number of bits for the number of instructions in the value of a callback.
const COUNT_BITS: u32 = 12;

static CPUS: [AtomicPtr<Vcpu>; VCPUS] = [const { AtomicPtr::new(ptr::null_mut()) }; VCPUS];
static LOCK: ForkLock = ForkLock::new();
static MACHINE: AtomicU32 = AtomicU32::new(X86_64);
static IMAGE: Once = Once::new();

thread_local! {
    /// The thread of the program that this thread of QEMU runs.
    static SLOT: Cell<u32> = const { Cell::new(0) };
}

/// The state of a CPU, which only the thread of that CPU uses.
fn vcpu<'a>(index: c_uint) -> Option<&'a mut Vcpu> {
    let vcpu = CPUS.get(index as usize)?.load(Ordering::Relaxed);
    // SAFETY: null, or a box that is never freed; no two threads run one CPU at a time.
    unsafe { vcpu.as_mut() }
}

/// Starts the plugin; QEMU calls this when it has loaded the library.
///
/// # Safety
/// QEMU's arguments.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    let Some(api) = api::get() else { return 1 };
    // SAFETY: QEMU's information is valid during this call.
    let name = unsafe { (*info).target_name };
    // SAFETY: the name is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    MACHINE.store(if name == c"aarch64" { AARCH64 } else { X86_64 }, Ordering::Relaxed);
    let mut options = Options { directory: PathBuf::new(), max: 0 };
    for at in 0..argc as usize {
        // SAFETY: `argv` has `argc` pointers.
        let arg = unsafe { argv.add(at) };
        // SAFETY: as above.
        let arg = unsafe { arg.read() };
        // SAFETY: the pointers are those of C strings.
        let arg = unsafe { CStr::from_ptr(arg) }.to_bytes();
        if let Some(directory) = arg.strip_prefix(b"dir=") {
            options.directory = PathBuf::from(OsString::from_vec(directory.to_vec()));
        } else if let Some(max) = arg.strip_prefix(b"max=") {
            options.max = std::str::from_utf8(max).ok().and_then(|max| max.parse().ok()).unwrap_or(0);
        }
    }
    if !output::start(options) {
        return 1;
    }
    // SAFETY: the callbacks have the signatures that QEMU calls.
    unsafe { (api.on_init)(id, on_init) };
    // SAFETY: as above.
    unsafe { (api.on_translation)(id, on_translation) };
    // SAFETY: as above.
    unsafe { (api.on_syscall)(id, on_syscall) };
    // SAFETY: as above.
    unsafe { (api.on_return)(id, on_return) };
    // SAFETY: as above.
    unsafe { (api.on_exit)(id, on_exit, ptr::null_mut()) };
    0
}

/// A CPU is created, by the thread that clones its own.
unsafe extern "C" fn on_init(_: Id, index: c_uint) {
    let Some(cpu) = CPUS.get(index as usize) else { return };
    // The state of an earlier thread with this number is not freed: its callbacks may still run.
    let old = cpu.swap(Box::into_raw(Vcpu::new(index)), Ordering::Relaxed);
    if IMAGE.is_completed() || !old.is_null() {
        output::record(&Record::Thread { slot: SLOT.get(), new: index });
    }
}

/// Takes the turn, in QEMU's code.
#[cold]
fn take_turn(vcpu: &mut Vcpu) {
    SLOT.set(vcpu.slot);
    vcpu.turn = if LOCK.acquire(Some(PATIENCE)) { Turn::Held } else { Turn::Without };
    vcpu.blocks = 0;
}

/// Adds accesses; writes the queue if it is full.
#[inline(always)]
fn touch(vcpu: &mut Vcpu, stream: usize, page: u64, reads: u32, writes: u32) {
    if !vcpu.touch(stream, page, reads, writes) {
        output::runs(vcpu);
        vcpu.touch(stream, page, reads, writes);
    }
}

/// Lets another thread run, if one waits; the log then has what this one did before.
#[cold]
fn end_turn(vcpu: &mut Vcpu) {
    vcpu.blocks = 0;
    if vcpu.turn == Turn::Held && LOCK.is_wanted() {
        output::runs(vcpu);
        LOCK.offer();
        take_turn(vcpu);
    }
}

/// A block, or the part of one in its second page, is executed.
unsafe extern "C" fn on_fetch(index: c_uint, page_and_count: *mut c_void) {
    let Some(vcpu) = vcpu(index) else { return };
    if vcpu.turn == Turn::Missing {
        take_turn(vcpu);
    }
    vcpu.blocks += 1;
    if vcpu.blocks >= TURN {
        end_turn(vcpu);
    }
    let word = page_and_count as u64;
    touch(vcpu, FETCH, word >> COUNT_BITS, (word & ((1 << COUNT_BITS) - 1)) as u32, 0);
}

/// A load or a store is executed.
unsafe extern "C" fn on_access(index: c_uint, info: u32, addr: u64, _: *mut c_void) {
    let Some(vcpu) = vcpu(index) else { return };
    let kind = kind(info);
    let (reads, writes) = ((kind & 1) as u32, (kind >> 1 & 1) as u32);
    let page = addr >> PAGE_SHIFT;
    touch(vcpu, ACCESS, page, reads, writes);
    let last = addr.wrapping_add((kind >> 2 & 0xff) - 1) >> PAGE_SHIFT;
    if last != page {
        touch(vcpu, ACCESS, last, reads, writes);
    }
}

/// The kinds seen so far: QEMU's value, then the size, and the bits 1 for a load and 2 for a store.
static KINDS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

#[inline(always)]
fn kind(info: u32) -> u64 {
    let known = KINDS[((info ^ info >> 10) & 255) as usize].load(Ordering::Relaxed);
    if known >> 32 == u64::from(info) && known != 0 { known } else { new_kind(info) }
}

#[cold]
fn new_kind(info: u32) -> u64 {
    let Some(api) = api::get() else { return 1 | 1 << 2 };
    // SAFETY: the value is QEMU's.
    let size = 1u64 << unsafe { (api.size_shift)(info) }.min(7);
    // SAFETY: as above.
    let store = unsafe { (api.is_store)(info) };
    // QEMU has the direction above 16 bits: 1 load, 2 store, 3 both. The interface tells only
    // whether the access is a store.
    let both = store && info >> 16 & 3 == 3;
    let bits = u64::from(!store || both) | u64::from(store) << 1;
    let known = u64::from(info) << 32 | size << 2 | bits;
    KINDS[((info ^ info >> 10) & 255) as usize].store(known, Ordering::Relaxed);
    known
}

/// A block is translated.
unsafe extern "C" fn on_translation(_: Id, block: *mut c_void) {
    let Some(api) = api::get() else { return };
    // SAFETY: the block is QEMU's.
    let len = unsafe { (api.instructions)(block) };
    // The first instruction of each page, the page, and the number of its instructions.
    let mut parts: Vec<(usize, u64, u64)> = Vec::with_capacity(2);
    for at in 0..len {
        // SAFETY: the index is less than the length.
        let instruction = unsafe { (api.instruction)(block, at) };
        // SAFETY: the instruction is QEMU's.
        let addr = unsafe { (api.address)(instruction) };
        // SAFETY: as above.
        let size = unsafe { (api.size)(instruction) } as u64;
        IMAGE.call_once(|| start_image(api, instruction, addr));
        for page in addr >> PAGE_SHIFT..=(addr + size.max(1) - 1) >> PAGE_SHIFT {
            match parts.iter_mut().find(|part| part.1 == page) {
                Some(part) => part.2 += 1,
                None => parts.push((at, page, 1)),
            }
        }
        // SAFETY: the instruction is QEMU's, and the callback has the signature that it calls.
        unsafe { (api.on_access)(instruction, on_access, api::NO_REGS, api::MEM_RW, ptr::null_mut()) };
    }
    for (nth, (first, page, count)) in parts.into_iter().enumerate() {
        let value = (page << COUNT_BITS | count) as *mut c_void;
        if nth == 0 {
            // SAFETY: the block is QEMU's, and the callback has the signature that it calls.
            unsafe { (api.on_block)(block, on_fetch, api::NO_REGS, value) };
        } else {
            // SAFETY: the index is less than the length.
            let instruction = unsafe { (api.instruction)(block, first) };
            // SAFETY: as for the block.
            unsafe { (api.on_instruction)(instruction, on_fetch, api::NO_REGS, value) };
        }
    }
}

/// Records the image at the translation of its first instruction.
fn start_image(api: &Api, instruction: *mut c_void, addr: u64) {
    // SAFETY: the instruction is QEMU's.
    let host = unsafe { (api.host_address)(instruction) } as u64;
    guest::set_base(if host == 0 { 0 } else { host.wrapping_sub(addr) });
    // SAFETY: a program runs.
    let entry = unsafe { (api.entry_code)() };
    // SAFETY: as above.
    let start_code = unsafe { (api.start_code)() };
    let mut args = after_options(&own_command()).unwrap_or_default().into_iter().map(OsString::into_vec);
    // `-0`, `argv[0]`, the executable and the other arguments.
    let (name, path) = (args.nth(1).unwrap_or_default(), args.next().unwrap_or_default());
    output::record(&Record::Image(Image {
        pid: std::process::id(),
        parent: std::os::unix::process::parent_id(),
        machine: MACHINE.load(Ordering::Relaxed),
        slot: 0,
        entry,
        start_code,
        stack_top: guest::stack_top(),
        path,
        args: std::iter::once(name).chain(args).collect(),
    }));
    output::flush();
}

/// The command of this process.
fn own_command() -> Vec<OsString> {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut words: Vec<OsString> =
        line.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    words.pop();
    words
}

/// The part of a command from `-0` on.
fn after_options(command: &[OsString]) -> Option<Vec<OsString>> {
    let at = command.iter().position(|word| word == "-0")?;
    Some(command[at..].to_vec())
}

/// The numbers of the calls that the plugin knows: x86-64, arm64.
mod call {
    pub(super) const EXECVE: [i64; 2] = [59, 221];
    /// `clone`, `fork`, `vfork` and `clone3`.
    pub(super) const FORKS: [&[i64]; 2] = [&[56, 57, 58, 435], &[220, 435]];
    /// Arguments that are paths, as bits.
    pub(super) const fn paths(arm: bool, number: i64) -> u8 {
        match (arm, number) {
            // open, stat, lstat, access, execve, truncate, chdir, mkdir, rmdir, creat, unlink,
            // readlink, chmod, chown, statfs, getxattr, lgetxattr, memfd_create
            (false, 2 | 4 | 6 | 21 | 59 | 76 | 80 | 83 | 84 | 85 | 87 | 89 | 90 | 92 | 137 | 191 | 192 | 319) => 1,
            // rename, link, symlink
            (false, 82 | 86 | 88) => 3,
            // openat, mkdirat, newfstatat, unlinkat, readlinkat, fchmodat, faccessat, utimensat,
            // statx, faccessat2
            (false, 257 | 258 | 262 | 263 | 267 | 268 | 269 | 280 | 332 | 439) => 2,
            // renameat, renameat2
            (false, 264 | 316) => 10,
            (true, 8 | 9 | 43 | 45 | 49 | 221 | 279) => 1,
            (true, 34 | 35 | 48 | 53 | 54 | 56 | 78 | 79 | 88 | 291 | 439) => 2,
            (true, 38 | 276) => 10,
            _ => 0,
        }
    }
}

fn is_arm() -> bool {
    MACHINE.load(Ordering::Relaxed) == AARCH64
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn on_syscall(
    _: Id,
    index: c_uint,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    _: u64,
    _: u64,
) {
    let Some(vcpu) = vcpu(index) else { return };
    SLOT.set(vcpu.slot);
    output::runs(vcpu);
    let args = [a, b, c, d, e, f];
    let paths = call::paths(is_arm(), number);
    let text = |at: u8| Some((at, guest::text(args[usize::from(at)])?));
    let texts = (0..6).filter(|at| paths >> at & 1 != 0).filter_map(text).collect();
    output::record(&Record::Call { slot: vcpu.slot, number: number as u32, args, texts });
    // A process that is killed in the call loses nothing.
    output::flush();
    if number == call::EXECVE[usize::from(is_arm())] {
        exec(a, b, c);
    }
    if vcpu.turn == Turn::Held {
        vcpu.turn = Turn::Missing;
        LOCK.release();
    }
    vcpu.turn = Turn::Missing;
}

unsafe extern "C" fn on_return(_: Id, index: c_uint, number: i64, result: i64) {
    let Some(vcpu) = vcpu(index) else { return };
    if result == 0 && call::FORKS[usize::from(is_arm())].contains(&number) {
        // The child of a fork: its parent's other threads do not exist here.
        LOCK.reset();
        vcpu.clear();
        output::reopen();
        let (pid, parent) = (std::process::id(), std::os::unix::process::parent_id());
        output::record(&Record::Child { pid, parent, slot: vcpu.slot });
        // A child that is killed early has a log.
        output::flush();
    }
    // QEMU does not wait for a thread that has returned from its code.
    LOCK.acquire(None);
    vcpu.turn = Turn::Held;
    vcpu.blocks = 0;
    if result != 0 || !call::FORKS[usize::from(is_arm())].contains(&number) {
        output::record(&Record::Return { slot: vcpu.slot, result });
    }
}

unsafe extern "C" fn on_exit(_: Id, _: *mut c_void) {
    output::flush();
}

/// Executes a program under QEMU as this one; returns if that is not possible.
///
/// The kernel then executes the call as it is, which fails, or runs a program that is not recorded.
fn exec(path: u64, args: u64, environment: u64) {
    let Some(path) = guest::text(path) else { return };
    let (Some(args), Some(environment)) = (guest::texts(args), guest::texts(environment)) else { return };
    let own = own_command();
    let Some(rest) = after_options(&own) else { return };
    // QEMU answers the name of its own executable with that of the program.
    let path = if path == b"/proc/self/exe" { rest.get(2).cloned() } else { Some(OsString::from_vec(path)) };
    let Some(path) = path.filter(|path| is_executable(Path::new(path))) else { return };
    let Some(launch) = Launch::of(Path::new(&path), args) else { return };
    if launch.machine != MACHINE.load(Ordering::Relaxed) || !is_executable(&launch.path) {
        return;
    }
    let command = own[..own.len() - rest.len()].iter().cloned().chain(launch.qemu_args()).collect();
    let Ok(qemu) = std::fs::read_link("/proc/self/exe") else { return };
    let qemu = CString::new(qemu.into_os_string().into_vec());
    let (Ok(qemu), Some(command), Some(environment)) = (qemu, guest::c_strings(command), guest::c_strings(environment))
    else {
        return;
    };
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (command, environment) = (pointers(&command), pointers(&environment));
    // SAFETY: both vectors end with a null pointer, and their strings live until after the call.
    unsafe { libc::execve(qemu.as_ptr(), command.as_ptr(), environment.as_ptr()) };
}

fn is_executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a C string.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}
