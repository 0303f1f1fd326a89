//! Stores to page tables through pointers, each a scheduling point.
//!
//! [`map_memory`] maps the memory of a machine twice: the machine's own mapping stays writable, and
//! foreign code gets a second one, in which watched frames are read-only.
//!
//! **INV-TRAP-STORE** With `Check::trap_pointer_stores`, a store to a watched frame stops its CPU
//! before it is made; then that instruction alone is executed, and judged before any other. A CPU
//! that spins counts as waiting.
//!
//! - The instruction is executed where it is, by single-stepping, so every form of a store works:
//!   locked, vector, string (one iteration at a time).
//! - Only the frames that the instruction faults on are writable meanwhile, and no other CPU runs
//!   between the two traps, because the scheduler runs in `begin` and `end` only.
//! - The handlers use cells of this thread and `mprotect`, which is safe in a signal handler.
//!
//! A CPU that waits for a lock of foreign code would run forever. A timer of the thread's CPU time
//! redirects code that has made no stop for two ticks and has a `PAUSE` within 64 bytes, which is a
//! spin loop: it holds no lock of the host's allocator there, so other CPUs may run. How long it
//! spins changes nothing in the schedule.
//!
//! Not guaranteed: a wait that blocks the host thread (a futex), or a spin loop without `PAUSE`.

use crate::thunk::Pushed;
use libc::{PROT_READ, PROT_WRITE, c_int, c_void, greg_t};
use pagewright_check::{MapMemory, Pfn, PhysAddr, SecondMapping, TrappedMachine, stops_so_far};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

const PAGE: usize = 4096;
/// RFLAGS.TF: a trap after the next instruction (SDM vol. 3A §17.3.1.4).
const TF: u64 = 1 << 8;
/// Bit 1 of the error code of a page fault: a write.
const WRITE_FAULT: greg_t = 1 << 1;
/// The time between two ticks of the timer.
const TICK_NS: i64 = 2_000_000;
/// How near the next or the last `PAUSE` of a spin loop is.
const NEAR: usize = 64;

/// Why code was redirected to the thunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirected {
    /// For a privileged instruction.
    Privileged,
    /// For a store at this offset in memory.
    Store(usize),
    /// After the stepped store.
    Stored,
    /// From a spin loop.
    Spin,
}

/// What a handler does about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The code goes on in the thunk.
    Redirect,
    /// The code goes on where it is.
    Resume,
    /// The signal is not of this file.
    No,
}

/// A store that is being stepped.
#[derive(Clone, Copy, Debug)]
struct Step {
    rip: u64,
    /// Whether the code is back at the instruction, from the thunk.
    arrived: bool,
    /// The first and the last page that are writable, as indices.
    pages: (usize, usize),
}

/// The addresses of the second mapping.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Where physical address 0 lies.
    base: usize,
    /// The bytes from there that are not mapped.
    skip: usize,
    /// The bytes of memory.
    len: usize,
}

impl Window {
    const NONE: Self = Self { base: 0, skip: 0, len: 0 };

    /// The physical address of `address`, if it is mapped.
    fn offset(self, address: usize) -> Option<usize> {
        let at = address.wrapping_sub(self.base);
        (self.skip..self.len).contains(&at).then_some(at)
    }
}

thread_local! {
    static WINDOW: Cell<Window> = const { Cell::new(Window::NONE) };
    static REDIRECTED: Cell<Redirected> = const { Cell::new(Redirected::Privileged) };
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
    /// The stops at the last tick, and the ticks since they changed.
    static TICKS: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    static MACHINE: RefCell<Option<Rc<dyn TrappedMachine>>> = const { RefCell::new(None) };
    /// By page of the window: whether it is read-only.
    static READ_ONLY: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn redirected_for() -> Redirected {
    REDIRECTED.replace(Redirected::Privileged)
}

/// Changes the protection of pages of the window.
fn protect(pages: (usize, usize), protection: c_int) {
    let Window { base, skip, len } = WINDOW.get();
    let (first, end) = (pages.0 * PAGE, (pages.1 + 1) * PAGE);
    if skip <= first && end <= len {
        // SAFETY: INV-TRAP-STORE: the pages are of the second mapping, which this file owns.
        unsafe { libc::mprotect((base + first) as *mut c_void, end - first, protection) };
    }
}

/// A page fault at `address`.
pub(crate) fn on_fault(address: usize, registers: &mut [greg_t]) -> Handled {
    let is_write = registers[libc::REG_ERR as usize] & WRITE_FAULT != 0;
    let Some(at) = WINDOW.get().offset(address).filter(|_| is_write) else { return Handled::No };
    if let Some(step) = STEP.get() {
        // The instruction crosses into another page.
        let pages = (step.pages.0.min(at / PAGE), step.pages.1.max(at / PAGE));
        protect(pages, PROT_READ | PROT_WRITE);
        STEP.set(Some(Step { pages, ..step }));
        return Handled::Resume;
    }
    REDIRECTED.set(Redirected::Store(at));
    Handled::Redirect
}

/// A trap of a stepped instruction.
pub(crate) fn on_step(registers: &mut [greg_t]) -> Handled {
    let Some(step) = STEP.get() else { return Handled::No };
    if registers[libc::REG_RIP as usize] as u64 == step.rip && !step.arrived {
        STEP.set(Some(Step { arrived: true, ..step }));
        return Handled::Resume;
    }
    registers[libc::REG_EFL as usize] &= !(TF as greg_t);
    REDIRECTED.set(Redirected::Stored);
    Handled::Redirect
}

/// A tick of the timer.
pub(crate) fn on_tick(registers: &mut [greg_t]) -> Handled {
    let Some(stops) = stops_so_far().filter(|_| STEP.get().is_none()) else { return Handled::Resume };
    let (last, ticks) = TICKS.get();
    if stops != last {
        TICKS.set((stops, 0));
    } else if ticks == 0 {
        TICKS.set((stops, 1));
    } else if is_spin_loop(registers[libc::REG_RIP as usize] as usize) {
        REDIRECTED.set(Redirected::Spin);
        return Handled::Redirect;
    }
    Handled::Resume
}

/// Whether there is a `PAUSE` near `rip`.
fn is_spin_loop(rip: usize) -> bool {
    const PAUSE: [u8; 2] = [0xf3, 0x90];
    let mut code = [0_u8; 2 * NEAR];
    // SAFETY: the call has no conditions.
    let process = unsafe { libc::getpid() };
    let halves = code.chunks_exact_mut(NEAR).zip([rip - NEAR, rip]);
    for (half, from) in halves {
        let local = libc::iovec { iov_base: half.as_mut_ptr().cast(), iov_len: NEAR };
        let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: NEAR };
        // SAFETY: the call writes at most NEAR bytes to `half`, and fails where nothing is mapped.
        unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    }
    code.windows(2).any(|bytes| bytes == PAUSE)
}

fn machine() -> Option<Rc<dyn TrappedMachine>> {
    MACHINE.with_borrow(Clone::clone)
}

/// A store is about to be made at offset `at`: other CPUs run, and then it is stepped.
pub(crate) fn begin(pushed: &mut Pushed, at: usize) {
    let (slot, rip) = (PhysAddr::new(at as u64 & !7), pushed.rip as usize);
    let stop = || machine().into_iter().for_each(|machine| machine.before_store(slot, rip));
    // The machine panics for no store; unwinding out of the thunk is not possible.
    let _ = catch_unwind(AssertUnwindSafe(stop));
    let page = at / PAGE;
    protect((page, page), PROT_READ | PROT_WRITE);
    STEP.set(Some(Step { rip: pushed.rip, arrived: false, pages: (page, page) }));
    pushed.flags |= TF;
}

/// The stepped store is made.
pub(crate) fn end() {
    let Some(step) = STEP.take() else { return };
    let traps = |page: &usize| READ_ONLY.with_borrow(|pages| pages.get(*page).copied().unwrap_or(false));
    for page in (step.pages.0..=step.pages.1).filter(traps) {
        protect((page, page), PROT_READ);
    }
    let judge = || machine().into_iter().for_each(|machine| machine.after_store());
    let _ = catch_unwind(AssertUnwindSafe(judge));
}

/// The code spins: other CPUs run.
pub(crate) fn spin() {
    TICKS.set((0, 0));
    let _ = catch_unwind(AssertUnwindSafe(|| machine().into_iter().for_each(|machine| machine.spins())));
}

/// Maps the memory of a machine a second time, for [`Check::trap_pointer_stores`].
///
/// [`Check::trap_pointer_stores`]: pagewright_check::Check::trap_pointer_stores
///
/// # Panics
/// When the host refuses, or memory is not whole pages, or a check runs inside another.
pub fn map_memory(ram: &[AtomicU64], machine: Rc<dyn TrappedMachine>) -> Rc<dyn SecondMapping> {
    const _: MapMemory = map_memory;
    crate::route();
    map_at(None, ram, machine)
}

/// The first frame that [`map_identity`] maps: Linux maps nothing below (`vm.mmap_min_addr`).
pub const FIRST_IDENTITY_FRAME: Pfn = Pfn::new(16);

/// As [`map_memory`], with each frame at its own physical address.
///
/// For code that reaches tables by their physical address. Frames below [`FIRST_IDENTITY_FRAME`]
/// are not mapped, so the test allocates them before all others and leaves them unused.
///
/// # Panics
/// As [`map_memory`], and when something of the process is mapped there.
pub fn map_identity(ram: &[AtomicU64], machine: Rc<dyn TrappedMachine>) -> Rc<dyn SecondMapping> {
    const _: MapMemory = map_identity;
    crate::route();
    map_at(Some(FIRST_IDENTITY_FRAME.index()), ram, machine)
}

/// Maps memory a second time: anywhere, or at its physical address from page `first` on.
fn map_at(first: Option<usize>, ram: &[AtomicU64], machine: Rc<dyn TrappedMachine>) -> Rc<dyn SecondMapping> {
    assert!(WINDOW.get().len == 0, "a check whose stores trap runs inside another");
    let (own, len) = (ram.as_ptr().expose_provenance(), size_of_val(ram));
    assert!(own.is_multiple_of(PAGE) && len.is_multiple_of(PAGE), "memory is not whole pages");
    let window = map_twice(own, len, first);
    WINDOW.set(window);
    MACHINE.set(Some(machine));
    READ_ONLY.set(vec![false; len / PAGE]);
    Rc::new(Mapped { window, timer: Timer::start() })
}

/// Replaces the pages at `own` by those of a new memory file, and maps the file again.
///
/// From page `identity` on at its own offset, if that is given.
fn map_twice(own: usize, len: usize, identity: Option<usize>) -> Window {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"pagewright".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(file >= 0, "the host has no memory file");
    // SAFETY: the file is open.
    assert_eq!(unsafe { libc::ftruncate(file, len as libc::off_t) }, 0, "no host memory for {len} bytes");
    // SAFETY: INV-TRAP-STORE: the memory is zero before and after, is whole pages of one allocation
    // that the allocator has mapped for itself, and no other thread has a reference to it. The
    // allocator unmaps it.
    let first = unsafe {
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        libc::mmap(own as *mut c_void, len, PROT_READ | PROT_WRITE, fixed, file, 0)
    };
    let skip = identity.unwrap_or(0) * PAGE;
    let (at, flags) = match identity {
        Some(_) => (skip as *mut c_void, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE),
        None => (ptr::null_mut(), libc::MAP_SHARED),
    };
    let rest = len.saturating_sub(skip);
    // SAFETY: the kernel maps it where nothing is mapped, or refuses.
    let second = unsafe { libc::mmap(at, rest, PROT_READ | PROT_WRITE, flags, file, skip as libc::off_t) };
    // SAFETY: the file is open, and the mappings keep its pages.
    unsafe { libc::close(file) };
    assert!(first as usize == own && second != libc::MAP_FAILED, "the host cannot map memory twice");
    Window { base: second.expose_provenance() - skip, skip, len }
}

/// The second mapping; it is unmapped when this is dropped.
struct Mapped {
    window: Window,
    timer: Timer,
}

impl SecondMapping for Mapped {
    fn address(&self) -> usize {
        self.window.base
    }

    fn set_trap(&self, frame: Pfn, traps: bool) {
        READ_ONLY.with_borrow_mut(|pages| {
            if let Some(page) = pages.get_mut(frame.index()).filter(|page| **page != traps) {
                *page = traps;
                protect((frame.index(), frame.index()), if traps { PROT_READ } else { PROT_READ | PROT_WRITE });
            }
        });
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.timer.stop();
        WINDOW.set(Window::NONE);
        STEP.set(None);
        MACHINE.take();
        let Window { base, skip, len } = self.window;
        // SAFETY: the mapping is this value's; the code that had pointers into it has ended.
        unsafe { libc::munmap((base + skip) as *mut c_void, len - skip) };
    }
}

/// A timer of the CPU time of this thread.
struct Timer(libc::timer_t);

impl Timer {
    fn start() -> Self {
        // SAFETY: zero is a valid value of every field.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGVTALRM;
        // SAFETY: the call has no conditions.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = ptr::null_mut();
        // SAFETY: both pointers are to values of this function.
        let made = unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut event, &raw mut timer) };
        assert_eq!(made, 0, "the host has no timer of CPU time");
        let tick = libc::timespec { tv_sec: 0, tv_nsec: TICK_NS };
        let spec = libc::itimerspec { it_interval: tick, it_value: tick };
        // SAFETY: the timer is this value's.
        unsafe { libc::timer_settime(timer, 0, &raw const spec, ptr::null_mut()) };
        Self(timer)
    }

    fn stop(&self) {
        // SAFETY: the timer is this value's, and is stopped once.
        unsafe { libc::timer_delete(self.0) };
    }
}
