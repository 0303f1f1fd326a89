//! One step of a captured program.
//!
//! [`TraceEvent`] is 24 bytes, so that a batch of the common kind, [`AccessRun`], is a flat array; the rare
//! kinds sit behind a box.

use super::call::MemCall;
use super::ids::{FileId, PageNo, Pid, Prot, Tid, UserAddr};
use super::wire::{wire_enum, wire_struct};

/// Which of a thread's two access streams a run belongs to; each has a current page of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessStream {
    /// Instruction fetches: the instruction TLB.
    Fetch,
    /// Loads and stores: the data TLB.
    Data,
}

/// On whose behalf an access happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessOrigin {
    /// An instruction of the program.
    User,
    /// A system call that copies from or to user memory: it faults pages in, but through the
    /// kernel's instructions.
    Kernel,
}

/// A run of accesses of the current thread to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessRun {
    /// The page.
    pub page: PageNo,
    /// Loads, or fetches in the [`AccessStream::Fetch`] stream.
    pub reads: u32,
    /// Stores.
    ///
    /// `reads + writes` is at least 1.
    pub writes: u32,
    /// Fetches or data.
    pub stream: AccessStream,
    /// Program or kernel.
    pub origin: AccessOrigin,
    /// Whether the first access was a store: it decides which fault the page takes.
    ///
    /// A read-modify-write is a load, then a store.
    pub write_first: bool,
}

impl AccessRun {
    /// Accesses in the run.
    pub const fn accesses(&self) -> u64 {
        self.reads as u64 + self.writes as u64
    }
}

/// One step of the program.
///
/// See the [module documentation](super) for the order in which steps stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// Accesses of the current thread to one page.
    Run(AccessRun),
    /// What follows belongs to this thread.
    Switch {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// Birth, exec, death or reaping.
    Task(Box<TaskEvent>),
    /// A memory call of the current thread that has returned.
    Call(Box<MemCall>),
    /// A file that later events name.
    File(Box<CapturedFile>),
}

const _: () = assert!(size_of::<TraceEvent>() == 24, "a batch of runs must stay a flat array");

wire_enum! {
    /// Life of threads and processes.
    ///
    /// The actor is the current thread.
    pub enum TaskEvent {
        /// The root process and its first thread come to be, with an empty address space.
        1 => Begin {
            /// The process.
            pid: Pid,
            /// Its first thread.
            tid: Tid,
        },
        /// The current thread's process is replaced by a new image; its other threads end.
        2 => Exec {
            /// What `execve` maps.
            image: ExecImage,
        },
        /// The current process gets another thread.
        3 => CloneThread {
            /// The new thread.
            tid: Tid,
        },
        /// The current process is copied, its memory copy-on-write.
        4 => Fork {
            /// The child.
            child: Pid,
            /// The child's only thread, a copy of the current one.
            tid: Tid,
            /// The program asked for `CLONE_VM | CLONE_VFORK`: natively parent and child share
            /// memory, and the parent sleeps, until the child execs or exits. (The tool gives the
            /// child a copy.)
            vfork: bool,
        },
        /// The current thread ends; others of its process live on.
        5 => ExitThread {},
        /// The current process ends with all its threads.
        6 => ExitProcess {
            /// Exit status, or 128 + signal.
            status: u32,
        },
        /// The current process has waited for this child.
        7 => Reaped {
            /// The child.
            child: Pid,
        },
    }
}

wire_struct! {
    /// What `execve` maps before the program's first instruction, as Linux's `load_elf_binary`
    /// does.
    pub struct ExecImage {
        /// The executable.
        pub executable: FileId,
        /// Its arguments, the zeroth included.
        pub args: Vec<String>,
        /// The mappings, in ascending order, disjoint.
        ///
        /// All are private.
        pub mappings: Vec<ImageMapping>,
        /// Where the heap starts (`mm->start_brk`); it is empty.
        pub brk: UserAddr,
        /// One past the stack's last byte; the stack grows down from here.
        pub stack_top: UserAddr,
        /// `RLIMIT_STACK` in bytes; the stack may grow to this size.
        pub stack_limit: u64,
    }
}

wire_struct! {
    /// One mapping of a new image.
    pub struct ImageMapping {
        /// First byte, page-aligned.
        pub start: UserAddr,
        /// Bytes, a multiple of the page size.
        pub len: u64,
        /// Rights.
        pub prot: Prot,
        /// What is behind it.
        pub backing: ImageBacking,
    }
}

wire_enum! {
    /// What is behind a mapping of a new image.
    pub enum ImageBacking {
        /// Pages of a file, private.
        1 => File {
            /// The file.
            file: FileId,
            /// Byte offset of the mapping's start in the file, page-aligned.
            offset: u64,
        },
        /// Zeroes: bss.
        2 => Anonymous {},
        /// The growing stack (`VM_GROWSDOWN`).
        3 => Stack {},
        /// The kernel's data for the vdso; read-only, never counted in RSS.
        4 => Vvar {},
        /// The kernel's code in user space; never counted in RSS.
        ///
        /// The tool hides it from the program, so no trace accesses it.
        5 => Vdso {},
    }
}

wire_struct! {
    /// A file that the program mapped or ran.
    pub struct CapturedFile {
        /// How events name it.
        pub id: FileId,
        /// Its absolute path, links resolved where that was possible; a name in brackets for what
        /// has none (`[memfd]`, `[deleted]`).
        pub path: String,
        /// Its size in bytes when the trace was made; `None` when it was gone by then.
        pub size: Option<u64>,
    }
}
