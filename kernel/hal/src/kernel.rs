//! What the machine and the kernel above it are to each other.
//!
//! [`kernel!`](crate::kernel!) names the kernel of an image. `hal` calls [`Kernel::boot`] on CPU 0,
//! then [`Kernel::run`] on every CPU. The kernel calls back for everything else.
//!
//! Not guaranteed: a return from [`Kernel::run`]; the machine goes on until [`power_off`].

use crate::arch;
use crate::boot::BootInfo;
use pagewright_types::{Access, CpuId, VirtAddr};
use spin::Once;

/// A kernel on this machine.
pub trait Kernel: Sync {
    /// Sets everything up.
    ///
    /// Runs on CPU 0 with interrupts closed, while the other CPUs wait.
    fn boot(&self, info: &'static BootInfo);

    /// What each CPU does from then on; interrupts are open.
    fn run(&self) -> !;

    /// Somebody asked for this CPU's attention ([`pagewright_arch::Effects::send_ipi`]).
    ///
    /// Interrupts are closed.
    fn handle_ipi(&self);

    /// A block of frames, as linear memory, that the heap may have for good.
    fn more_memory(&self, bytes: usize) -> Option<&'static mut [u8]>;
}

/// Names the kernel of an image: an expression of a type that implements [`Kernel`].
#[macro_export]
macro_rules! kernel {
    ($kernel:expr) => {
        /// The kernel of this image; `pagewright-hal` finds it by its name.
        // SAFETY: no other crate of the image has a symbol of this name, and `hal` declares it with
        // this type.
        #[unsafe(no_mangle)]
        pub static PAGEWRIGHT_KERNEL: &dyn $crate::Kernel = &$kernel;
    };
}

unsafe extern "Rust" {
    safe static PAGEWRIGHT_KERNEL: &'static dyn Kernel;
}

/// The kernel of this image.
pub(crate) fn kernel() -> &'static dyn Kernel {
    PAGEWRIGHT_KERNEL
}

/// Why user mode stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// A system call; number and arguments are in the context.
    Syscall,
    /// An access that the tables do not allow.
    Fault {
        /// The address.
        va: VirtAddr,
        /// What was tried.
        access: Access,
    },
    /// An instruction that can't be executed.
    Exception(Exception),
    /// Time is up, or somebody poked this CPU.
    Interrupt,
}

/// What an instruction did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// There is no such instruction, or not in user mode: `SIGILL`.
    Illegal,
    /// Division by zero and the like: `SIGFPE`.
    Arithmetic,
    /// A breakpoint or a single step: `SIGTRAP`.
    Breakpoint,
    /// A misaligned access where that is not allowed: `SIGBUS`.
    Misaligned,
    /// An address that can't be one, or an access that needs privileges: `SIGSEGV`.
    Protection,
}

static BOOT: Once<BootInfo> = Once::new();

/// What firmware said.
///
/// # Panics
/// Before it has said anything.
pub fn boot_info() -> &'static BootInfo {
    BOOT.get().expect("set before the kernel starts")
}

/// CPU 0, with a heap: start the other CPUs, boot the kernel, let everybody run.
pub(crate) fn start(info: BootInfo) -> ! {
    let info = BOOT.call_once(|| info);
    arch::smp::start_others(info);
    kernel().boot(info);
    arch::smp::release_others();
    run()
}

/// Any CPU, once the kernel has booted.
pub(crate) fn run() -> ! {
    time::start_ticking();
    arch::interrupts::open();
    kernel().run()
}

use crate::time;

/// The CPU that runs.
///
/// Nothing moves the caller to another one.
pub fn this_cpu() -> CpuId {
    arch::cpu()
}

/// Waits for an interrupt, unless `stay_awake` says that there is work; no interrupt can come
/// between the two.
pub fn idle(stay_awake: impl FnOnce() -> bool) {
    arch::interrupts::close();
    if stay_awake() {
        arch::interrupts::open();
    } else {
        arch::interrupts::wait();
        // Who has slept looks around anyway.
        arch::local().attention.set(false);
    }
}

/// Interrupts another CPU: it leaves user mode, or wakes up.
pub fn poke(cpu: CpuId) {
    arch::poke(cpu);
}

/// Switches the machine off; whoever started it sees `status`.
pub fn power_off(status: u8) -> ! {
    arch::io::power_off(status)
}

/// What the CPU can do, as `AT_HWCAP` tells programs.
pub fn hardware_capabilities() -> u64 {
    arch::context::hardware_capabilities()
}
