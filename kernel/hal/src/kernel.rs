//! The interface between the machine and the kernel above it.
//!
//! [`kernel!`](crate::kernel!) names the kernel of an image. `hal` calls [`KernelCallbacks::boot`]
//! on CPU 0, then [`KernelCallbacks::run`] on every CPU. The kernel calls `hal` for everything
//! else.
//!
//! Not guaranteed: a return from [`KernelCallbacks::run`]; the machine runs until [`power_off`].

use crate::arch;
use crate::boot::BootInfo;
use crate::managed;
use crate::smp;
use crate::time;
use pagewright_types::{Access, CpuId, VirtAddr};
use spin::Once;

/// The entry points of the kernel that `hal` calls.
pub trait KernelCallbacks: Sync {
    /// Initialises the kernel.
    ///
    /// Runs on CPU 0 with interrupts disabled, while the other CPUs wait.
    fn boot(&self, info: &'static BootInfo);

    /// The main loop of each CPU; runs with interrupts enabled.
    fn run(&self) -> !;

    /// Handles an IPI to this CPU ([`pagewright_arch::Effects::send_ipi`]).
    ///
    /// Runs with interrupts disabled.
    fn handle_ipi(&self);

    /// Returns at least `bytes` bytes of frames for the heap, which keeps them.
    ///
    /// Returns `None` if no block is free.
    fn more_memory(&self, bytes: usize) -> Option<&'static mut [u8]>;
}

/// Names the kernel of an image.
///
/// The argument is an expression of a type that implements [`KernelCallbacks`].
#[macro_export]
macro_rules! kernel {
    ($kernel:expr) => {
        /// The kernel of this image; `pagewright-hal` finds it by its name.
        // SAFETY: no other crate of the image has a symbol of this name, and `hal` declares it with
        // this type.
        #[unsafe(no_mangle)]
        pub static PAGEWRIGHT_KERNEL: &dyn $crate::KernelCallbacks = &$kernel;
    };
}

unsafe extern "Rust" {
    safe static PAGEWRIGHT_KERNEL: &'static dyn KernelCallbacks;
}

/// The kernel of this image.
pub(crate) fn kernel() -> &'static dyn KernelCallbacks {
    PAGEWRIGHT_KERNEL
}

/// Why user mode stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// A system call; its number and arguments are in the context.
    Syscall,
    /// A page fault.
    Fault {
        /// The address.
        va: VirtAddr,
        /// Load, store or fetch.
        access: Access,
    },
    /// Another exception.
    Exception(Exception),
    /// The timer tick, or a kick by another CPU.
    Interrupt,
}

/// An exception of user mode other than a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// Undefined instruction, and on arm64 a privileged one: `SIGILL`.
    Undefined,
    /// Integer division by zero: `SIGFPE`.
    Division,
    /// A floating-point exception that the program unmasked: `SIGFPE`.
    FloatingPoint(FloatingException),
    /// The instruction for breakpoints: `SIGTRAP`.
    Breakpoint,
    /// Single step: `SIGTRAP`.
    SingleStep,
    /// Misaligned access, at this address if the CPU reports one: `SIGBUS`.
    Misaligned(VirtAddr),
    /// Non-canonical address or privileged instruction of x86-64 (#GP): `SIGSEGV`.
    Protection,
    /// Non-canonical stack address or missing segment of x86-64 (#SS, #NP): `SIGBUS`.
    Segment,
}

/// What a floating-point exception reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of IEEE 754")]
pub enum FloatingException {
    Invalid,
    DivisionByZero,
    Overflow,
    Underflow,
    Inexact,
    /// The CPU does not say.
    Unknown,
}

static BOOT: Once<BootInfo> = Once::new();

/// Firmware's description of the machine.
///
/// # Panics
/// Before [`KernelCallbacks::boot`].
pub fn boot_info() -> &'static BootInfo {
    BOOT.get().expect("set before the kernel starts")
}

/// Starts the other CPUs, boots the kernel, and lets all CPUs run; on CPU 0, with a heap.
pub(crate) fn start(info: BootInfo) -> ! {
    let info = BOOT.call_once(|| info);
    managed::manage(&info.nodes);
    arch::smp::start_others(info);
    kernel().boot(info);
    smp::release_others();
    run()
}

/// Runs the kernel on this CPU, once it has booted.
pub(crate) fn run() -> ! {
    time::start_ticking();
    arch::interrupts::enable();
    kernel().run()
}

/// The running CPU; nothing migrates the caller to another one.
pub fn this_cpu() -> CpuId {
    arch::cpu()
}

/// Waits for an interrupt, unless `stay_awake` returns true.
///
/// No interrupt is lost between the check and the wait.
pub fn idle(stay_awake: impl FnOnce() -> bool) {
    arch::interrupts::disable();
    if stay_awake() {
        arch::interrupts::enable();
    } else {
        arch::interrupts::wait();
        // The caller looks for work after it has slept.
        arch::local().need_resched.set(false);
    }
}

/// Interrupts another CPU, which then leaves user mode or wakes up.
pub fn kick(cpu: CpuId) {
    arch::kick(cpu);
}

/// Switches the machine off; the host gets `status`.
pub fn power_off(status: u8) -> ! {
    arch::io::power_off(status)
}

/// The CPU's features for the auxiliary vector (`AT_HWCAP`).
pub fn hardware_capabilities() -> u64 {
    arch::context::hardware_capabilities()
}

/// Writes what `/proc/cpuinfo` says of a CPU after its number; all CPUs are alike.
///
/// # Errors
/// Those of `out`.
pub fn describe_cpu(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    arch::description::show(out)
}
