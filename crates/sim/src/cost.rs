//! The cost model's vocabulary: what takes time, declared once.
//!
//! Values come from a profile ([`crate::profile`]), each with its source. The model is additive:
//! what a CPU does costs the sum of its parts, and only waiting for another CPU overlaps
//! ([`crate::machine`]).

use crate::time::Picos;
use pagewright_types::IsaKind;

/// Which machines have a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Both,
    Only(IsaKind),
}

pagewright_types::named_table! {
    /// Something that takes time.
    pub enum Cost {
        Access = "access", "One load, store or fetch that hits the first-level TLB, its share of all other instructions included.";
        L2TlbHit = "l2_tlb_hit", "A first-level miss that the second-level TLB answers.";
        WalkStart = "walk_start", "Starting a walk and filling the TLBs from it, the reads apart.";
        WalkCacheHit = "walk_cache_hit", "Finding in a walk cache where to start.";
        WalkRead = "walk_read", "One page-table entry read by a walk.";
        WalkUpdate = "walk_update", "Setting accessed or dirty in an entry by the walker.";
        EntryLoad = "entry_load", "One page-table entry read by the kernel.";
        EntryStore = "entry_store", "One page-table entry stored by the kernel.";
        EntrySwap = "entry_swap", "One page-table entry exchanged atomically by the kernel.";
        Exception = "exception", "Entering the kernel by a page fault and returning.";
        Syscall = "syscall", "Entering the kernel by a system call and returning.";
        MinorFault = "minor_fault", "The kernel's own work in a minor fault, allocation included, clearing and copying apart.";
        ZeroPage = "zero_page", "Clearing 4 KiB.";
        CopyPage = "copy_page", "Copying 4 KiB.";
        SwapOut = "swap_out", "The kernel's own work in writing 4 KiB to compressed memory, entries and their flush apart.";
        SwapIn = "swap_in", "The same in reading them back, the fault apart.";
        ContextSwitch = "context_switch", "Switching from one thread to another, the root apart.";
        SwitchRoot = "switch_root", "Installing a root table (MOV CR3; TTBR0_EL1 and ISB).";
        IpiSend = "ipi_send", "Preparing an interrupt to other CPUs.";
        IpiSendEach = "ipi_send_each", "Sending it, for each target.";
        IpiDelivery = "ipi_delivery", "From sending until the target leaves what it was doing.";
        IpiHandler = "ipi_handler", "Entering and leaving the handler on the target, its flushes apart.";
        IpiAck = "ipi_ack", "From the handler's answer until the sender sees it.";
        FlushPage = "flush_page", "INVLPG, or INVPCID of one address.";
        FlushAll = "flush_all", "Dropping a tag or everything but globals on this CPU, the refills apart.";
        Tlbi = "tlbi", "Issuing one TLBI.";
        DsbLocal = "dsb_local", "A DSB with nothing outstanding on other CPUs.";
        DsbWait = "dsb_wait", "A DSB that completes broadcast invalidations, whatever the number of CPUs.";
        DsbWaitEach = "dsb_wait_each", "The same, for each other CPU of the machine.";
    }
}

impl Cost {
    /// Which machines have it, and whether it is paid so that translations are forgotten.
    const fn nature(self) -> (On, bool) {
        match self {
            Self::FlushPage | Self::FlushAll => (On::Only(IsaKind::X86_64), true),
            Self::Tlbi | Self::DsbLocal | Self::DsbWait | Self::DsbWaitEach => (On::Only(IsaKind::Aarch64), true),
            Self::IpiSend | Self::IpiSendEach | Self::IpiDelivery | Self::IpiHandler | Self::IpiAck => (On::Both, true),
            Self::Access
            | Self::L2TlbHit
            | Self::WalkStart
            | Self::WalkCacheHit
            | Self::WalkRead
            | Self::WalkUpdate
            | Self::EntryLoad
            | Self::EntryStore
            | Self::EntrySwap
            | Self::Exception
            | Self::Syscall
            | Self::MinorFault
            | Self::ZeroPage
            | Self::CopyPage
            | Self::SwapOut
            | Self::SwapIn
            | Self::ContextSwitch
            | Self::SwitchRoot => (On::Both, false),
        }
    }

    /// Whether a machine of `isa` has this cost; its profiles must then give it.
    pub fn applies_to(self, isa: IsaKind) -> bool {
        match self.nature().0 {
            On::Both => true,
            On::Only(only) => only == isa,
        }
    }

    /// Whether it is paid so that translations are forgotten.
    pub fn is_of_flush(self) -> bool {
        self.nature().1
    }

    /// The cost called `name` in profile files.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cost| cost.name() == name)
    }
}

/// The price of everything on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Costs(pub(crate) [Picos; Cost::COUNT]);

impl Costs {
    #[inline]
    pub(crate) fn of(&self, cost: Cost) -> Picos {
        self.0[cost as usize]
    }
}
