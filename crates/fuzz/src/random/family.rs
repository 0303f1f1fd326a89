//! Draws the operations of programs of the theme `Families`.
//!
//! Each CPU runs a process of one family, so that breaks and leaves of shared tables meet the
//! lockless walks of a CPU that runs another of its spaces. Without roles, they rarely would.

use super::generator::Generator;
use super::kernel_operation::KernelOperation;
use super::operation::{Operation, ProgramStep};
use pagewright_model::spec::PinMode;
use pagewright_types::{Access, CpuId};

impl Generator {
    /// Operation `index` after every CPU runs the first process, for a family.
    ///
    /// The process stores to each page of the window and forks for each other CPU, which runs the
    /// child. Then all read each page, so that all have walked the tables that they share.
    pub(super) fn setup_of_family(&mut self, index: usize) -> ProgramStep {
        let (cpus, pages) = (usize::from(self.shape.cpus), self.window.pages as usize);
        let (cpu, operation) = if index < pages {
            (0, self.access_page(index, Access::Write))
        } else if index < pages + cpus - 1 {
            (0, Operation::Fork)
        } else if index < pages + 2 * (cpus - 1) {
            let child = index - pages - (cpus - 1) + 1;
            (child, Operation::Switch { to: child })
        } else {
            let index = index - pages - 2 * (cpus - 1);
            (index % cpus, self.access_page(index / cpus % pages, Access::Read))
        };
        ProgramStep { cpu: CpuId::new(cpu as u16), operation }
    }

    fn pin(&mut self) -> Operation {
        if self.once_in(3) {
            return Operation::Kernel(KernelOperation::Unpin { device: 0 });
        }
        let mode = PinMode { write: self.once_in(2), longterm: false, fast: !self.once_in(3) };
        Operation::Kernel(KernelOperation::Pin { addr: self.page(), pages: 1, mode })
    }

    fn access_page(&self, index: usize, access: Access) -> Operation {
        Operation::Access { va: self.window.page(index as u64), access }
    }

    /// CPU 0 mostly breaks what its process shares, and the last CPU leaves.
    ///
    /// The others reclaim pages, and read them again for all sharers. Each CPU pins pages, too.
    pub(super) fn step_of_family(&mut self, cpu: CpuId) -> Operation {
        let is_last = cpu.index() + 1 == usize::from(self.shape.cpus);
        match self.below(16) {
            0..9 if cpu == CpuId::new(0) => Operation::Access { va: self.page(), access: Access::Write },
            0..9 if is_last => Operation::Exit { lazily: self.once_in(2) },
            0..4 => Operation::Kernel(KernelOperation::Reclaim { pages: 8 }),
            4..9 => Operation::Access { va: self.page(), access: Access::Read },
            9 => self.pin(),
            10 => self.page_out(),
            11 => self.access(),
            12 | 13 => Operation::Fork,
            14 => self.switch(),
            _ => self.call(),
        }
    }
}
