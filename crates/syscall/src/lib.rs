//! Linux's memory calls over Pagewright's memory manager.
//!
//! One decoder for every user: the bare-metal kernel, and the comparison with Linux, which thereby
//! compares what the kernel runs.
//!
//! ```text
//!   number, registers ── LinuxCall::from_number, decode ──▶ DecodedCall ─┬─ MemoryRequest::serve ──▶ Mm
//!                                   │                                     └─ CloneRequest, FutexRequest,
//!                                   └─▶ errno of a call that is refused      SwapRequest: the kernel serves them
//! ```
//!
//! - [`LinuxCall`] – the calls, and their numbers on both instruction sets.
//! - [`DecodedCall`], [`MemoryRequest`] – a call with its arguments as types.
//! - [`CallingProcess`] – what a kernel supplies: the caller's memory, its descriptors, its limits
//!   and other processes.
//! - [`LINUX_CALLS`] – every memory call of Linux with every flag that it takes, and how much of it
//!   is supported. `docs/linux-calls.md` is generated from it, and tests hold each row against the
//!   memory manager.
//! - [`KnownDifference`] – where results differ from Linux's on purpose. A test shows each of them
//!   beside the Linux that runs.
//!
//! # Refused calls
//!
//! A call is refused with the errno that Linux returns, at the first of these steps that fails:
//!
//! 1. [`LinuxCall::decode`], which looks at the arguments alone;
//! 2. [`CallingProcess`], for pointers, descriptors and processes;
//! 3. the memory manager ([`MmError::errno`](pagewright_mm::MmError::errno)).
//!
//! # Example
//!
//! ```
//! use pagewright_mm::LockFlags;
//! use pagewright_syscall::{CallRange, DecodedCall, LinuxCall, MemoryRequest};
//! use pagewright_types::{Errno, IsaKind, VirtAddr};
//!
//! // mlock2(0x10000, 4096, MLOCK_ONFAULT) of a program on x86-64.
//! let call = LinuxCall::from_number(IsaKind::X86_64, 325).expect("a memory call");
//! let range = CallRange { addr: VirtAddr::new(0x10000), len: 4096 };
//! let request = MemoryRequest::Mlock(range, LockFlags::ONFAULT);
//! assert_eq!(call.decode(IsaKind::X86_64, [0x10000, 4096, 1, 0, 0, 0]), Ok(DecodedCall::Memory(request)));
//!
//! // Linux refuses an offset within a page before it looks at the file.
//! let mmap = LinuxCall::Mmap.decode(IsaKind::X86_64, [0, 4096, 3, 2, 0, 1]);
//! assert_eq!(mmap, Err(Errno::EINVAL));
//! ```
//!
//! Neighbours: uses `mm`. A kernel calls it with the registers of a program.
//!
//! Not guaranteed: permission. [`CallingProcess`] decides which process may act on which.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod caller;
mod decode;
mod known_difference;
mod move_pages;
mod number;
mod request;
mod serve;
mod support;
mod supported_calls;
mod user_memory;

pub use caller::{CallingProcess, FileUse};
pub use decode::CallArguments;
pub use known_difference::KnownDifference;
pub use number::LinuxCall;
pub use request::{
    AdvisedProcess, CallRange, CloneRequest, DecodedCall, FutexRequest, GetMempolicyRequest, MbindRequest,
    MemoryRequest, MigratePagesRequest, MmapRequest, MovePagesRequest, PrlimitRequest, ProcessMadviseRequest,
    ProcessVmRequest, RemoteCopy, SwapRequest, UserIoVecs, UserNodes,
};
pub use support::{CallSupport, FlagSupport, Support, call_support};
pub use supported_calls::LINUX_CALLS;
