//! The registers of a CPU that one instruction set has: TTBR1_EL1, and x86-64's by raw value.
//!
//! The raw values are for code that writes them by instructions. Code that is written for the
//! harness uses [`Cpu::load_root`], [`Cpu::invalidate`] and [`Cpu::without_interrupts`].
//!
//! Intel SDM vol. 3A §2.5, §4.5 and §4.10.4.1.

use crate::cpu::Cpu;
use pagewright_arch::{Aarch64, Effects, Invalidate, InvalidateScope, InvalidateTarget, X86_64};
use pagewright_sim::MachineConfig;
use pagewright_types::{Pfn, PhysAddr, Tag};

/// Bits 51 to 12 of CR3: the address of the root.
const ROOT: u64 = 0x000f_ffff_ffff_f000;
/// Bits 11 to 0 of CR3: the PCID, if CR4.PCIDE is set.
const PCID: u64 = 0xfff;
/// Bit 63 of a value written to CR3: nothing is flushed.
const KEEP: u64 = 1 << 63;
/// CR4.PGE: global entries are used.
const PGE: u64 = 1 << 7;
/// CR4.PCIDE.
const PCIDE: u64 = 1 << 17;

/// CR4.LA57.
const LA57: u64 = 1 << 12;

/// CR4 after power-on: PAE, PGE and OSFXSR, PCIDE with tags, and LA57 with five levels.
pub(crate) fn first_cr4(config: &MachineConfig) -> u64 {
    let tags = if config.tagged { PCIDE } else { 0 };
    1 << 5 | PGE | 1 << 9 | tags | if config.five_levels { LA57 } else { 0 }
}

impl Cpu<Aarch64> {
    /// Loads `root` for the upper half: a write of `TTBR1_EL1`.
    ///
    /// Nothing is invalidated. What is translated by it has the ASID of [`Cpu::load_root`], unless
    /// it is global (Arm ARM D8.16.3). Accesses need [`crate::Check::kernel_range`].
    #[track_caller]
    pub fn load_kernel_root(&self, root: Pfn) {
        self.harness.state().kernel_roots[self.id().index()].set(Some(root));
        self.on(|sim| sim.install_kernel_root(root));
    }
}

impl Cpu<X86_64> {
    /// The value of CR3; 0 before a root is loaded.
    pub fn read_cr3(&self) -> u64 {
        let loaded = self.harness.state().roots[self.id().index()].get();
        loaded.map_or(0, |(root, tag)| root.base().raw() | u64::from(tag.raw()))
    }

    /// Executes `MOV CR3`: loads a root, and flushes its PCID unless bit 63 of `value` is set.
    #[track_caller]
    pub fn write_cr3(&self, value: u64) {
        let root = Pfn::containing(PhysAddr::new(value & ROOT));
        let tagged = self.sim().config().tagged;
        let tag = Tag::new(if tagged { (value & PCID) as u16 } else { 0 });
        self.harness.state().roots[self.id().index()].set(Some((root, tag)));
        self.on(|sim| sim.install_root(root, tag, value & KEEP != 0));
    }

    /// The value of CR4.
    pub fn read_cr4(&self) -> u64 {
        self.harness.state().cr4[self.id().index()].get()
    }

    /// Executes `MOV CR4`: a change of PGE, or of PCIDE to 0, flushes everything.
    ///
    /// It has no other effect on the machine.
    #[track_caller]
    pub fn write_cr4(&self, value: u64) {
        let before = self.harness.state().cr4[self.id().index()].replace(value);
        if (before ^ value) & PGE != 0 || before & !value & PCIDE != 0 {
            self.invalidate(Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::Everything });
        }
    }

    /// Executes `STI` or `CLI`: lets this CPU take interrupts, or not.
    #[track_caller]
    pub fn set_interrupts(&self, enabled: bool) {
        self.on(|sim| sim.set_interrupts(enabled));
    }
}
