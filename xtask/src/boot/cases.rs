//! The programs that run on the kernel, and the machines that they run on.
//!
//! Not guaranteed: that a machine is there; [`Machine::lacks`] says what of it is not.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::setup::{self, on_path};
use crate::toolchain::BareTarget;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An instruction set, its C compiler and its QEMU.
pub(crate) struct Machine {
    pub(crate) isa: &'static str,
    pub(crate) target: BareTarget,
    compiler: &'static str,
    qemu: &'static str,
}

pub(crate) const MACHINES: [Machine; 2] = [
    Machine { isa: "x86-64", target: BareTarget::X86_64, compiler: "gcc", qemu: "qemu-system-x86_64" },
    Machine {
        isa: "arm64",
        target: BareTarget::Aarch64,
        compiler: "aarch64-linux-gnu-gcc",
        qemu: "qemu-system-aarch64",
    },
];

impl Machine {
    /// What is missing to run anything on it.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        [self.compiler, self.qemu].into_iter().find(|program| !on_path(program))
    }

    /// A program for it, compiled into `folder`.
    pub(crate) fn compile(&self, root: &Path, folder: &Path, source: &str) -> Result<PathBuf, Error> {
        let name = source.strip_suffix(".c").unwrap_or(source);
        let compiled = folder.join(format!("{name}-{}", self.isa));
        let mut compile = Command::new(self.compiler);
        compile.args(["-O2", "-static", "-pthread", "-w", "-o"]).arg(&compiled);
        cargo::status(compile.arg(root.join("kernel/programs").join(source)))?;
        Ok(compiled)
    }
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A source in `kernel/programs`.
    C(&'static str),
    /// Debian's static busybox.
    Busybox,
}

/// What a machine has to swap to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    Nothing,
    /// A device that the program may swap to.
    Device,
    /// One of this size that is swapped to from the beginning.
    On(&'static str),
}

impl Swap {
    /// What `pagewright` is told.
    pub(crate) fn option(self) -> Option<String> {
        match self {
            Self::Nothing | Self::Device => None,
            Self::On(size) => Some(format!("--swap={size}")),
        }
    }
}

/// A program, with what it must answer.
///
/// What it must print lies in `kernel/programs/expected`.
pub(crate) struct Case {
    /// Its name, and that of the file with what it prints.
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) memory: &'static str,
    /// What Linux needs, whose own memory is larger.
    pub(crate) memory_on_linux: &'static str,
    pub(crate) swap: Swap,
    /// Seconds.
    pub(crate) limit: &'static str,
    pub(crate) status: i32,
    /// Whether Linux has what it asks for, so that what it prints can be recorded there.
    pub(crate) on_linux: bool,
}

const SHELL: &str = "for i in 1 2 3; do echo $i; done | cat | sort -r; (sleep 1; echo background) & echo foreground; wait; \
                     seq 1 1000 | grep 7 | wc -l; false || echo status $?; exit 7";
/// The counts are judged while something else runs, twice.
const COUNTS: &str = "for i in 1 2 3; do seq 1 3000 | sort -n; done > /dev/null & f=/sys/kernel/debug/page_counts; \
                      grep -o sound $f; grep -o sound $f; wait";
/// What `mkswap` calls the device is chosen at random.
const SWAP: &str = "d=/dev/zram0; echo 16M > /sys/block/zram0/disksize; mkswap $d | grep -v UUID; swapon -d $d; cat /proc/swaps; swapon $d 2>&1; \
                    swapoff $d; swapoff $d 2>&1; cat /proc/swaps; echo 1 > /sys/block/zram0/reset; cat /sys/block/zram0/disksize";

const fn c(name: &'static str, source: &'static str, limit: &'static str, status: i32) -> Case {
    Case {
        name,
        program: Program::C(source),
        arguments: &[],
        memory: "256M",
        memory_on_linux: "256M",
        swap: Swap::Nothing,
        limit,
        status,
        on_linux: true,
    }
}

const fn shell(name: &'static str, words: &'static [&'static str], status: i32, on_linux: bool) -> Case {
    Case {
        name,
        program: Program::Busybox,
        arguments: words,
        memory: "256M",
        memory_on_linux: "256M",
        swap: Swap::Nothing,
        limit: "60",
        status,
        on_linux,
    }
}

/// The longest come first, so that nothing long runs alone at the end.
pub(crate) const CASES: [Case; 15] = [
    Case { arguments: &["64", "256"], memory: "1G", memory_on_linux: "1G", ..c("fork", "fork.c", "240", 0) },
    Case { arguments: &["10"], ..c("threads", "threads.c", "120", 0) },
    c("cow", "cow.c", "60", 0),
    c("bad", "bad.c", "60", 5),
    c("calls", "calls.c", "60", 0),
    c("signals", "signals.c", "60", 0),
    c("hostile", "hostile.c", "60", 0),
    c("last", "last.c", "60", 3),
    Case { swap: Swap::Device, ..c("disk", "disk.c", "60", 0) },
    c("moves", "moves.c", "60", 0),
    Case { arguments: &["8"], swap: Swap::On("64M"), ..c("pageout", "pageout.c", "60", 0) },
    Case { memory: "64M", swap: Swap::Device, ..c("swap", "swap.c", "120", 0) },
    Case { swap: Swap::Device, ..shell("mkswap", &["sh", "-c", SWAP], 0, true) },
    shell("shell", &["sh", "-c", SHELL], 7, true),
    shell("counts", &["sh", "-c", COUNTS], 0, false),
];

impl Case {
    /// The program for a machine; `None` if it is not to be had there.
    pub(crate) fn program(
        &self,
        machine: &Machine,
        workspace: &Workspace,
        folder: &Path,
    ) -> Result<Option<PathBuf>, Error> {
        match self.program {
            Program::C(source) => machine.compile(&workspace.workspace_root, folder, source).map(Some),
            Program::Busybox if machine.target == BareTarget::X86_64 => Ok(setup::program("busybox")),
            Program::Busybox => Ok(setup::arm_busybox(workspace)),
        }
    }

    /// Where it stands what it must print.
    pub(crate) fn expected(&self, machine: &Machine, root: &Path) -> PathBuf {
        root.join(format!("kernel/programs/expected/{}-{}", self.name, machine.isa))
    }
}
