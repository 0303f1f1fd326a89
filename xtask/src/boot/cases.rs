//! The programs that run on the kernel, and the machines that they run on.
//!
//! Not guaranteed: that a machine's programs are installed. [`Machine::lacks`] names a missing one.

use super::CPUS;
use crate::cargo::{self, Workspace};
use crate::debian::Archive;
use crate::error::Error;
use crate::setup::{self, on_path};
use crate::watch;
use pagewright_types::IsaKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An instruction set, its C compiler and its QEMU.
pub(crate) struct Machine {
    pub(crate) isa: IsaKind,
    compiler: &'static str,
    qemu: &'static str,
}

pub(crate) const MACHINES: [Machine; 2] = [
    Machine { isa: IsaKind::X86_64, compiler: "gcc", qemu: "qemu-system-x86_64" },
    Machine { isa: IsaKind::Aarch64, compiler: "aarch64-linux-gnu-gcc", qemu: "qemu-system-aarch64" },
];

impl Machine {
    /// The machine of an instruction set.
    ///
    /// # Errors
    /// [`Error::NoPackage`], if its compiler or its emulator is not installed.
    pub(crate) fn installed(isa: IsaKind) -> Result<&'static Self, Error> {
        let package = match isa {
            IsaKind::X86_64 => "qemu-system-x86",
            IsaKind::Aarch64 => "qemu-system-arm",
        };
        let machine = MACHINES.iter().find(|machine| machine.isa == isa && machine.lacks().is_none());
        machine.ok_or_else(|| Error::NoPackage(package.to_owned()))
    }

    /// The compiler or the emulator, if one of them is not installed.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        [self.compiler, self.qemu].into_iter().find(|program| !on_path(program))
    }

    /// Debian's packages for this machine.
    pub(super) fn archive<'a>(&self, workspace: &'a Workspace) -> Archive<'a> {
        let architecture = match self.isa {
            IsaKind::X86_64 => "amd64",
            IsaKind::Aarch64 => "arm64",
        };
        Archive { workspace, architecture, suite: None }
    }

    /// Compiles a static program for this machine into `folder`.
    pub(crate) fn compile(&self, root: &Path, folder: &Path, source: &str) -> Result<PathBuf, Error> {
        self.link(root, folder, source, "-static")
    }

    /// Compiles a program, with the compiler's option for how it is linked.
    fn link(&self, root: &Path, folder: &Path, source: &str, links: &str) -> Result<PathBuf, Error> {
        let name = source.strip_suffix(".c").unwrap_or(source);
        let compiled = folder.join(format!("{name}-{}", self.isa));
        let mut compile = Command::new(self.compiler);
        compile.args(["-O2", links, "-pthread", "-w", "-o"]).arg(&compiled);
        cargo::status(compile.arg(root.join("kernel/programs").join(source)))?;
        Ok(compiled)
    }
}

/// The source of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A C file in `kernel/programs`, linked statically.
    C(&'static str),
    /// A C file, linked dynamically.
    Dynamic(&'static str),
    /// Debian's static busybox.
    Busybox,
    /// The program at this path of a package of Debian, with the packages that it depends on.
    Debian(&'static str, &'static str),
}

/// The swap device of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// None.
    Nothing,
    /// A device that is not active; the program may call `swapon`.
    Device,
    /// A device of this size that is active from boot.
    On(&'static str),
}

impl Swap {
    /// The option of `pagewright`.
    pub(crate) fn option(self) -> Option<String> {
        match self {
            Self::Nothing | Self::Device => None,
            Self::On(size) => Some(format!("--swap={size}")),
        }
    }
}

/// A program and its exit status; its expected output is in `kernel/programs/expected`.
pub(crate) struct Case {
    /// The name.
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) memory: &'static str,
    /// The memory on Linux, whose kernel needs more.
    pub(crate) memory_on_linux: &'static str,
    /// Options for several nodes, in place of `memory`.
    pub(crate) nodes: &'static [&'static str],
    /// The numbers of CPUs of its boots; the first one is that on Linux.
    pub(crate) cpus: &'static [&'static str],
    pub(crate) swap: Swap,
    /// Settings and their values, of our kernel only.
    pub(crate) set: &'static [&'static str],
    /// Counters that may not be 0 at power-off, of our kernel only.
    pub(crate) counted: &'static [&'static str],
    pub(crate) status: i32,
    /// The time that a boot may spend before the watchdog ends it.
    pub(crate) allowed: Duration,
    /// Whether it also runs on Linux, where its expected output can be recorded.
    pub(crate) on_linux: bool,
}

/// The setting under which the programs in C and one shell fork, small as they are.
///
/// The other shells fork as by default, which is `auto`.
const SHARED: &[&str] = &["cow_page_tables=always"];
/// A node with all CPUs, and one without; firmware gives no distances.
const SLOW_TIER: [&str; 2] = ["--node=0:160M", "--node=1:96M"];
/// Two nodes with CPUs.
const TWO_NODES: [&str; 3] = ["--node=0:128M,cpus=0-1", "--node=1:128M,cpus=2-3", "--distance=0,1:17"];
/// Read-only translations linger, also while page tables are shared.
const LINGERING: &[&str] = &["tlb_linger=unmap", "cow_page_tables=always"];
/// What must be counted while they do.
const WHILE_LINGERING: &[&str] =
    &["pw_linger_pages", "pgpromote_success", "pgdemote_kswapd", "pswpout", "pw_tlb_batch_flushed", "pw_table_shared"];
const SHELL: &str = "for i in 1 2 3; do echo $i; done | cat | sort -r; (sleep 1; echo background) & echo foreground; wait; \
                     seq 1 1000 | grep 7 | wc -l; false || echo status $?; exit 7";
/// Has the counts judged twice while other processes run.
const COUNTS: &str = "for i in 1 2 3; do seq 1 3000 | sort -n; done > /dev/null & f=/sys/kernel/debug/page_counts; \
                      grep -o sound $f; grep -o sound $f; wait";
/// Without the UUID that `mkswap` chooses at random.
const SWAP: &str = "d=/dev/zram0; echo 16M > /sys/block/zram0/disksize; mkswap $d | grep -v UUID; swapon -d $d; cat /proc/swaps; swapon $d 2>&1; \
                    swapoff $d; swapoff $d 2>&1; cat /proc/swaps; echo 1 > /sys/block/zram0/reset; cat /sys/block/zram0/disksize";

pub(super) const fn c(name: &'static str, source: &'static str, status: i32) -> Case {
    Case {
        name,
        program: Program::C(source),
        arguments: &[],
        memory: "256M",
        memory_on_linux: "256M",
        nodes: &[],
        cpus: &CPUS,
        swap: Swap::Nothing,
        set: SHARED,
        counted: &[],
        status,
        allowed: watch::SHORT,
        on_linux: true,
    }
}

pub(super) const fn shell(name: &'static str, words: &'static [&'static str], status: i32, on_linux: bool) -> Case {
    Case {
        name,
        program: Program::Busybox,
        arguments: words,
        memory: "256M",
        memory_on_linux: "256M",
        nodes: &[],
        cpus: &CPUS,
        swap: Swap::Nothing,
        set: &[],
        counted: &[],
        status,
        allowed: watch::SHORT,
        on_linux,
    }
}

const HUGE_SPLICES: Case =
    Case { arguments: &["2048"], swap: Swap::On("64M"), ..c("splices-huge", "splices_huge.c", 0) };

/// The cases, the longest first, so that none of them runs alone at the end.
pub(crate) const CASES: [Case; 46] = [
    Case { arguments: &["64", "32"], memory: "1G", memory_on_linux: "1G", ..c("fork", "fork.c", 0) },
    Case { arguments: &["4000"], ..c("threads", "threads.c", 0) },
    Case { nodes: &SLOW_TIER, cpus: &["1"], arguments: &["0", "10 20"], ..c("slow-tier", "nodes.c", 0) },
    Case { nodes: &TWO_NODES, cpus: &["4"], arguments: &["0-1", "10 17"], ..c("two-nodes", "nodes.c", 0) },
    Case { nodes: &TWO_NODES, cpus: &["4"], ..c("migrate", "migrate.c", 0) },
    Case {
        nodes: &SLOW_TIER,
        cpus: &["4"],
        arguments: &["2048", "100000", "800", "all", "16", "16"],
        swap: Swap::On("64M"),
        set: LINGERING,
        counted: WHILE_LINGERING,
        ..c("linger", "linger.c", 0)
    },
    c("tables", "tables.c", 0),
    c("cow", "cow.c", 0),
    Case { set: &["cow_page_tables=prctl"], on_linux: false, ..c("prctl", "prctl.c", 0) },
    c("bad", "bad.c", 5),
    c("calls", "calls.c", 0),
    c("arguments", "arguments.c", 0),
    Case { swap: Swap::On("64M"), ..c("files", "files.c", 0) },
    Case { swap: Swap::On("64M"), ..c("splices", "splices.c", 0) },
    Case { swap: Swap::On("64M"), set: &["cow_page_tables=never"], ..c("splices-classic", "splices.c", 0) },
    HUGE_SPLICES,
    Case { name: "splices-huge-classic", set: &["cow_page_tables=never"], ..HUGE_SPLICES },
    // Linux 6.1 has no folios of this size.
    Case { name: "splices-64k", arguments: &["64"], on_linux: false, ..HUGE_SPLICES },
    c("signals", "signals.c", 0),
    c("timers", "timers.c", 0),
    c("names", "names.c", 0),
    c("policy", "policy.c", 0),
    c("users", "users.c", 0),
    c("processes", "processes.c", 0),
    c("ipc", "ipc.c", 0),
    c("sockets", "sockets.c", 0),
    c("proc", "proc.c", 0),
    c("looks", "looks.c", 0),
    Case { swap: Swap::On("64M"), ..c("seldom", "seldom.c", 0) },
    c("descriptors", "descriptors.c", 0),
    c("hostile", "hostile.c", 0),
    Case { arguments: &["1", "2000"], swap: Swap::On("64M"), on_linux: false, ..c("random", "random.c", 0) },
    c("last", "last.c", 3),
    c("exec", "exec.c", 0),
    Case { on_linux: false, ..c("thp", "thp.c", 0) },
    Case { on_linux: false, ..c("frames", "frames.c", 0) },
    c("split", "split.c", 0),
    Case { arguments: &["40"], ..c("futex", "futex.c", 0) },
    Case { swap: Swap::Device, ..c("disk", "disk.c", 0) },
    c("moves", "moves.c", 0),
    Case { program: Program::Dynamic("dynamic.c"), ..c("dynamic", "dynamic.c", 0) },
    Case { arguments: &["8"], swap: Swap::On("64M"), ..c("pageout", "pageout.c", 0) },
    Case { memory: "64M", swap: Swap::Device, ..c("swap", "swap.c", 0) },
    Case { swap: Swap::Device, ..shell("mkswap", &["sh", "-c", SWAP], 0, true) },
    Case { set: SHARED, ..shell("shell", &["sh", "-c", SHELL], 7, true) },
    shell("counts", &["sh", "-c", COUNTS], 0, false),
];

impl Case {
    /// The options of `pagewright boot` for CPUs and memory; on one node it has `memory`.
    pub(crate) fn size<'a>(&self, memory: &'a str, cpus: &'a str) -> Vec<&'a str> {
        let memory = if self.nodes.is_empty() { &["--mem", memory][..] } else { self.nodes };
        [memory, &["--cpus", cpus]].concat()
    }

    /// The program for a machine; `None` if it is not available.
    pub(crate) fn program(
        &self,
        machine: &Machine,
        workspace: &Workspace,
        folder: &Path,
    ) -> Result<Option<PathBuf>, Error> {
        match self.program {
            Program::C(source) => machine.compile(&workspace.workspace_root, folder, source).map(Some),
            Program::Dynamic(source) => machine.link(&workspace.workspace_root, folder, source, "-pie").map(Some),
            Program::Busybox if machine.isa == IsaKind::X86_64 => Ok(setup::program("busybox")),
            Program::Busybox => Ok(setup::arm_busybox(workspace)),
            Program::Debian(package, path) => {
                machine.archive(workspace).fetch_all(package).map(|root| Some(root.join(path)))
            }
        }
    }

    /// The folder with the libraries of a program of Debian.
    pub(crate) fn sysroot(&self, machine: &Machine, workspace: &Workspace) -> Option<PathBuf> {
        match self.program {
            Program::Debian(package, _) => Some(machine.archive(workspace).place(package)),
            Program::C(_) | Program::Dynamic(_) | Program::Busybox => None,
        }
    }

    /// The file with the expected output, which does not depend on the settings of our kernel.
    pub(crate) fn expected(&self, machine: &Machine, root: &Path) -> PathBuf {
        let name = match self.program {
            Program::C(source) | Program::Dynamic(source) => source.trim_end_matches(".c"),
            Program::Debian(package, _) => package,
            Program::Busybox => self.name,
        };
        root.join(format!("kernel/programs/expected/{name}-{}", machine.isa))
    }
}
