//! Draws the operations of programs of the theme `Lingering`.
//!
//! All CPUs read one page, which moves or is reclaimed, so that TLBs keep what its entry no longer
//! says. Then something must end that: a store, a call that takes rights, a truncation.

use super::generator::Generator;
use super::kernel_operation::KernelOperation;
use super::operation::Operation;
use pagewright_model::spec::RangeCall;
use pagewright_types::{Access, PAGE_SIZE, Rights};

impl Generator {
    pub(super) fn step_of_lingering(&mut self) -> Operation {
        let (addr, len) = (self.hot, PAGE_SIZE);
        match self.below(32) {
            0..13 => Operation::Access { va: addr, access: Access::Read },
            13..17 => self.access_hot(),
            17..22 => self.move_hot(),
            22..25 => Operation::Range(RangeCall::Mprotect { addr, len, rights: Rights::READ }),
            25 => Operation::Range(RangeCall::Mprotect { addr, len, rights: Rights::RW }),
            26 | 27 => Operation::Fork,
            28 => self.access(),
            29 => self.switch(),
            _ => self.call(),
        }
    }

    /// Moves the page to a node, or reclaims it.
    fn move_hot(&mut self) -> Operation {
        let (addr, len) = (self.hot, PAGE_SIZE);
        let node = self.below(self.nodes.max(1) as u64) as u8;
        let reclaims = self.nodes < 2 || self.once_in(4);
        Operation::Kernel(match reclaims {
            true => KernelOperation::Reclaim { pages: 8 },
            false => KernelOperation::MovePages { addr, len, node },
        })
    }
}
