//! Programs whose pages are few of some blocks of 2 MiB: their settings, ranges and operations.
//!
//! A block is mapped by a huge page, by smaller folios in pieces, or by single pages, as the
//! settings that the seed chooses say. Calls on parts of a block split what maps it, calls on whole
//! blocks keep it.

use super::generator::Generator;
use super::kernel_operation::KernelOperation;
use super::operation::Operation;
use super::program::{ProgramMode, ProgramShape, Theme};
use super::syscall::Syscall;
use super::window::{BLOCK, Window};
use pagewright_mm::{Advice, MmSetting, MmSettings, ThpDisabled};
use pagewright_model::spec::{ExclusiveCall, PinMode, RangeCall};
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};

/// The settings of the sizes that are mapped in pieces, of which each program enables some.
const PIECES: [MmSetting; 3] = [MmSetting::ThpEnabled16k, MmSetting::ThpEnabled32k, MmSetting::ThpEnabled64k];
/// The values of `MADV_HUGEPAGE` and `MADV_NOHUGEPAGE`.
const ADVICE: [u32; 4] = [14, 14, 14, 15];

/// Sets the sizes of huge pages of the program with this seed, beside all others.
pub(super) fn set_huge_pages(to: &MmSettings, shape: ProgramShape, seed: u64) {
    if !shape.is_huge() {
        return;
    }
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let mut draw = |values: u64| {
        let drawn = bits % values;
        bits /= values;
        drawn
    };
    // Programs with a hot page give no advice.
    let hot = [Theme::Hot, Theme::Copies, Theme::Moving, Theme::Families, Theme::Lingering];
    let always = matches!(shape.mode, ProgramMode::Explore(theme) if hot.contains(&theme));
    let enabled = if draw(3) == 0 && !always { 1 } else { 0 };
    let mut settings = vec![
        (MmSetting::ThpEnabled, enabled),
        (MmSetting::ThpUseZeroPage, draw(2)),
        (MmSetting::ThpDefrag, draw(5)),
        // In one program of four, pieces alone.
        (MmSetting::ThpEnabled2048k, if draw(4) == 0 { 3 } else { 1 }),
    ];
    settings.extend(PIECES.map(|setting| (setting, [3, 3, 1, 0][draw(4) as usize])));
    settings.iter().for_each(|(setting, value)| to.set(*setting, *value).expect("an accepted value"));
}

impl Generator {
    /// The start and length of a range of a huge window: blocks, or a part of one.
    pub(super) fn range_of_huge(&mut self) -> (VirtAddr, u64) {
        let window = self.window;
        let block = self.block();
        let page = window.page(self.below(window.pages));
        let (start, end) = match self.below(12) {
            0..3 => (block, block.add(BLOCK)),
            3 => (block, window.start.add(window.bytes())),
            4 => (block, page.max(block).add(PAGE_SIZE)),
            5 => (page, page.align_down(BLOCK).add(BLOCK)),
            6 => {
                let other = window.page(self.below(window.pages));
                (page.min(other), page.max(other).add(PAGE_SIZE))
            }
            _ => (page, page.add((1 + self.below(4)) * PAGE_SIZE)),
        };
        let part = if self.once_in(6) { self.below(PAGE_SIZE) } else { 0 };
        (start, end.since(start) - part)
    }

    /// The start of a block.
    fn block(&mut self) -> VirtAddr {
        let Window { start, .. } = self.window;
        start.add(self.below(self.window.blocks()) * BLOCK)
    }

    /// `mremap` of a block or a part of one to where another is, or behind the window.
    pub(super) fn remap_of_huge(&mut self) -> Syscall {
        let (maymove, fixed, dontunmap) = (1, 2, 4);
        let flags = self.one_of(&[maymove | fixed, maymove | fixed, maymove | fixed | dontunmap]);
        let new_block = self.window.start.add(self.below(self.window.blocks() + 2) * BLOCK);
        let (addr, old_len, new_addr) = if self.once_in(2) {
            (self.block(), BLOCK, new_block)
        } else {
            let (addr, len) = self.range();
            let same = new_block.add(addr.align_down(PAGE_SIZE).since(addr.align_down(BLOCK)));
            (addr, len, if self.once_in(2) { same } else { new_block })
        };
        Syscall::Exclusive(ExclusiveCall::Remap { addr, old_len, new_len: old_len, flags, new_addr })
    }

    /// `MADV_HUGEPAGE` for the whole window.
    pub(super) fn advise_huge_everywhere(&self) -> Operation {
        let (addr, len, advice) = (self.window.start, self.window.bytes(), Advice::HugePage);
        if self.follows_exclusive_calls() {
            return Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice: advice.raw() }));
        }
        Operation::Kernel(KernelOperation::Advise { addr, len, advice })
    }

    /// An operation that concerns huge pages alone; none is drawn for other windows.
    pub(super) fn seldom_of_huge(&mut self) -> Option<Operation> {
        if !self.window.is_huge || !self.once_in(10) {
            return None;
        }
        let (addr, len) = self.range();
        if self.follows_exclusive_calls() && self.once_in(2) {
            let advice = self.one_of(&ADVICE);
            return Some(Operation::Syscall(Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice })));
        }
        if self.runs_on_linux() {
            return None;
        }
        Some(Operation::Kernel(match self.below(12) {
            8..10 => self.pin_of_huge(),
            10 => KernelOperation::Unpin { device: self.below(4) as usize },
            11 => KernelOperation::DeviceAccess { device: self.below(4) as usize },
            0..3 => KernelOperation::SplitHuge { addr, len },
            3 => {
                let disabled = [ThpDisabled::No, ThpDisabled::No, ThpDisabled::Yes, ThpDisabled::ExceptAdvised];
                KernelOperation::ForbidHuge { disabled: disabled[self.below(4) as usize] }
            }
            4..6 if self.nodes > 1 => KernelOperation::MigratePages { from: self.node(), to: self.node() },
            _ => KernelOperation::Advise { addr, len, advice: Advice::Cold },
        }))
    }

    fn pin_of_huge(&mut self) -> KernelOperation {
        let mode = PinMode { write: self.once_in(2), longterm: false, fast: self.once_in(2) };
        KernelOperation::Pin { addr: self.page(), pages: 1, mode }
    }

    fn node(&mut self) -> u8 {
        self.below(self.nodes as u64) as u8
    }

    /// Whether the calls of the program's processes do not overlap.
    fn follows_exclusive_calls(&self) -> bool {
        !matches!(self.shape.mode, ProgramMode::Explore(_))
    }

    /// The next operation of a program of the theme `Huge`.
    pub(super) fn step_of_huge(&mut self) -> Operation {
        let (addr, len) = self.range();
        match self.below(32) {
            0..8 => self.access(),
            8..11 => Operation::Access { va: self.page(), access: Access::Write },
            11 => Operation::Kernel(KernelOperation::Advise { addr, len, advice: self.huge_advice() }),
            12..14 => Operation::Fork,
            14 => self.switch(),
            15 => Operation::Exit { lazily: self.once_in(2) },
            16..18 => Operation::Range(RangeCall::Munmap { addr, len }),
            18..20 => {
                let rights = if self.once_in(2) { Rights::READ } else { Rights::RW };
                Operation::Range(RangeCall::Mprotect { addr, len, rights })
            }
            20..23 => Operation::Range(RangeCall::DontNeed { addr, len }),
            23 | 24 => self.page_out(),
            25 | 26 => Operation::Kernel(self.pin_of_huge()),
            27 => Operation::Kernel(KernelOperation::Unpin { device: 0 }),
            28 => Operation::Kernel(KernelOperation::SplitHuge { addr, len }),
            29 => Operation::RunKernelThread,
            _ => self.call(),
        }
    }

    fn huge_advice(&mut self) -> Advice {
        if self.once_in(4) { Advice::NoHugePage } else { Advice::HugePage }
    }
}
