//! The events of a captured program.
//!
//! [`TraceEvent`] has 24 bytes: the common event, [`AccessRun`], is stored inline, so a batch is a
//! flat array. The rare events are boxed.

use super::call::MemCall;
use super::ids::{FileId, PageNo, Pid, Prot, Tid, UserAddr};
use super::wire::{wire_enum, wire_struct};

/// The two access streams of a thread; each has a current page of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessStream {
    /// Instruction fetches, through the instruction TLB.
    Fetch,
    /// Loads and stores, through the data TLB.
    Data,
}

/// The code that made an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessOrigin {
    /// An instruction of the program.
    User,
    /// The kernel, in a system call that copies from or to user memory.
    ///
    /// Such an access faults pages in, but it is not a fetch, load or store of the program.
    Kernel,
}

/// Consecutive accesses of the current thread to one page, in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessRun {
    /// The page.
    pub page: PageNo,
    /// Number of loads, or of fetches in the stream [`AccessStream::Fetch`].
    pub reads: u32,
    /// Number of stores.
    ///
    /// `reads + writes` is at least 1.
    pub writes: u32,
    /// The stream of the accesses.
    pub stream: AccessStream,
    /// The code that made the accesses.
    pub origin: AccessOrigin,
    /// Whether the first access is a store; the first access decides the type of the fault.
    ///
    /// A read-modify-write counts as a load followed by a store.
    pub write_first: bool,
}

impl AccessRun {
    /// Number of accesses in the run.
    pub const fn accesses(&self) -> u64 {
        self.reads as u64 + self.writes as u64
    }
}

/// An event of a captured program.
///
/// The [module documentation](super) defines the order of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// Accesses of the current thread to one page.
    Run(AccessRun),
    /// The events that follow belong to this thread.
    Switch {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// The creation, exec, exit or reaping of a task.
    Task(Box<TaskEvent>),
    /// A memory call of the current thread, at its return.
    Call(Box<MemCall>),
    /// A file that later events name.
    File(Box<CapturedFile>),
}

const _: () = assert!(size_of::<TraceEvent>() == 24, "a batch of runs must stay a flat array");

wire_enum! {
    /// The creation, exec, exit or reaping of a thread or process by the current thread.
    pub enum TaskEvent {
        /// The root process and its first thread begin, with an empty address space.
        1 => Begin {
            /// The process.
            pid: Pid,
            /// Its first thread.
            tid: Tid,
        },
        /// A new image replaces that of the current process, whose other threads exit.
        2 => Exec {
            /// The mappings of the new image.
            image: ExecImage,
        },
        /// The current thread creates a thread in its process.
        3 => CloneThread {
            /// The new thread.
            tid: Tid,
        },
        /// The current thread forks its process.
        4 => Fork {
            /// The child.
            child: Pid,
            /// The child's only thread, a copy of the current one.
            tid: Tid,
            /// Whether the program passed `CLONE_VM | CLONE_VFORK`.
            ///
            /// On Linux parent and child then share memory, and the parent sleeps, until the child
            /// execs or exits. (The capturing tool gives the child a copy.)
            vfork: bool,
        },
        /// The current thread exits; other threads of its process remain.
        5 => ExitThread {},
        /// The current process exits, with all its threads.
        6 => ExitProcess {
            /// The exit status, or 128 plus the number of the signal that killed the process.
            status: u32,
        },
        /// A `wait` of the current thread has returned this child.
        7 => Reaped {
            /// The child.
            child: Pid,
        },
    }
}

wire_struct! {
    /// The memory of a program before its first instruction, as `load_elf_binary` maps it.
    pub struct ExecImage {
        /// The executable.
        pub executable: FileId,
        /// The arguments, from `argv[0]`.
        pub args: Vec<String>,
        /// The mappings, disjoint and in ascending order.
        ///
        /// All are private.
        pub mappings: Vec<ImageMapping>,
        /// The start of the heap (`mm->start_brk`), which is empty.
        pub brk: UserAddr,
        /// The first address above the stack, which grows downwards from it.
        pub stack_top: UserAddr,
        /// `RLIMIT_STACK`, in bytes: the size up to which the stack may grow.
        pub stack_limit: u64,
    }
}

wire_struct! {
    /// A mapping of a new image.
    pub struct ImageMapping {
        /// The first address, page-aligned.
        pub start: UserAddr,
        /// Length in bytes, a multiple of the page size.
        pub len: u64,
        /// `PROT_*`.
        pub prot: Prot,
        /// The contents.
        pub backing: ImageBacking,
    }
}

wire_enum! {
    /// The contents of a mapping of a new image.
    pub enum ImageBacking {
        /// Private pages of a file.
        1 => File {
            /// The file.
            file: FileId,
            /// Offset of the mapping in the file, in bytes, page-aligned.
            offset: u64,
        },
        /// Zeroes: the bss.
        2 => Anonymous {},
        /// The stack, which grows downwards (`VM_GROWSDOWN`).
        3 => Stack {},
        /// The kernel's read-only data for the vdso; not counted in RSS.
        4 => Vvar {},
        /// The kernel's code in user space; not counted in RSS.
        ///
        /// The capturing tool hides it from the program, so no trace accesses it.
        5 => Vdso {},
    }
}

wire_struct! {
    /// A file that the program mapped or executed.
    pub struct CapturedFile {
        /// Its number in the trace.
        pub id: FileId,
        /// Its absolute path, with links resolved if possible.
        ///
        /// A file without a path has a name in brackets, such as `[memfd:name:1]`.
        pub path: String,
        /// Its size in bytes when the trace was written; `None` if it no longer existed.
        pub size: Option<u64>,
    }
}
