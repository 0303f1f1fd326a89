//! What `/proc/cpuinfo` says of a CPU.

use aarch64_cpu::registers::{MIDR_EL1, Readable};
use core::fmt::{self, Write};

/// Writes the lines after the number of the CPU (`c_show`).
///
/// The features are those of `AT_HWCAP`.
pub(crate) fn show(out: &mut dyn Write) -> fmt::Result {
    let midr = MIDR_EL1.get();
    writeln!(out, "Features\t: fp asimd\nCPU implementer\t: {:#04x}", midr >> 24 & 0xff)?;
    writeln!(out, "CPU architecture: 8\nCPU variant\t: {:#x}", midr >> 20 & 0xf)?;
    writeln!(out, "CPU part\t: {:#05x}\nCPU revision\t: {}\n", midr >> 4 & 0xfff, midr & 0xf)
}
