//! The costs of the cost model, declared once.
//!
//! A profile ([`crate::profile`]) gives their values, each with its source. The model is additive:
//! the work of a CPU costs the sum of its parts. Two things overlap with it: waiting for other CPUs
//! overlaps with their work ([`crate::machine`]), and broadcast invalidations complete one after
//! the other while their CPU goes on ([`crate::invalidate`]).

use crate::time::Picos;
use pagewright_types::IsaKind;

/// The machines that have a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Both,
    Only(IsaKind),
}

/// How often a flush pays a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushShare {
    /// It is no cost of flushing.
    None,
    /// Once for each entry or invalidation.
    PerEntry,
    /// Once for each wait, however many invalidations it completes.
    PerWait,
}

pagewright_types::named_table! {
    /// An operation that takes time.
    pub enum Cost {
        Access = "access", "One load, store or fetch that hits the first-level TLB, with its share of all other instructions.";
        DramLatency = "dram_latency", "One load or store of memory at its own CPUs, on a machine with several nodes.";
        SlowTierLatency = "slow_tier_latency", "One load or store of a node without CPUs, from its nearest CPUs.";
        L2TlbHit = "l2_tlb_hit", "A first-level miss that hits the second-level TLB.";
        WalkStart = "walk_start", "Starting a walk and filling the TLBs from it, without its reads.";
        WalkCacheHit = "walk_cache_hit", "Finding the start of a walk in a walk cache.";
        WalkRead = "walk_read", "One page-table entry read by a walk.";
        WalkUpdate = "walk_update", "One accessed or dirty bit set by a walk.";
        EntryLoad = "entry_load", "One page-table entry read by the kernel.";
        EntryStore = "entry_store", "One page-table entry stored by the kernel.";
        EntrySwap = "entry_swap", "One page-table entry exchanged atomically by the kernel.";
        Exception = "exception", "Entering the kernel by a page fault, and returning.";
        Syscall = "syscall", "Entering the kernel by a system call, and returning.";
        MinorFault = "minor_fault", "The kernel's work in a minor fault with its allocation, without clearing and copying.";
        ZeroPage = "zero_page", "Clearing 4 KiB.";
        CopyPage = "copy_page", "Copying 4 KiB.";
        SwapOut = "swap_out", "The kernel's work to write 4 KiB to compressed memory, without entries and their flush.";
        SwapIn = "swap_in", "The kernel's work to read 4 KiB back from compressed memory, without the fault.";
        ContextSwitch = "context_switch", "Switching from one thread to another, without the switch of the root.";
        SwitchRoot = "switch_root", "Installing a root table (MOV CR3; TTBR0_EL1 and ISB).";
        LineNear = "line_near", "A cache line that another CPU of the same cluster stored to last.";
        LineFar = "line_far", "A cache line that a CPU of another cluster stored to last.";
        IpiSend = "ipi_send", "Preparing an IPI.";
        IpiSendEach = "ipi_send_each", "Sending an IPI, for each target.";
        IpiDelivery = "ipi_delivery", "From sending an IPI until its target is interrupted.";
        IpiHandler = "ipi_handler", "Entering and leaving the IPI handler on the target, without its flushes.";
        IpiAck = "ipi_ack", "From the acknowledgement of an IPI until the sender sees it.";
        FlushPage = "flush_page", "INVLPG, or INVPCID of one address.";
        FlushAll = "flush_all", "Flushing a tag, or everything but globals, on this CPU, without the refills.";
        Tlbi = "tlbi", "Issuing one TLBI.";
        TlbiComplete = "tlbi_complete", "The completion of one broadcast TLBI at every CPU, after those that its CPU issued before.";
        DsbLocal = "dsb_local", "A DSB without broadcast invalidations to complete.";
        DsbWait = "dsb_wait", "A DSB after broadcast TLBIs have completed, for any number of CPUs.";
        DsbWaitEach = "dsb_wait_each", "A DSB after broadcast TLBIs have completed, for each other CPU of the machine.";
    }
}

impl Cost {
    /// The machines that have it, and how often a flush pays it.
    const fn kind(self) -> (On, FlushShare) {
        let (x86_64, aarch64) = (On::Only(IsaKind::X86_64), On::Only(IsaKind::Aarch64));
        match self {
            Self::FlushPage | Self::FlushAll => (x86_64, FlushShare::PerEntry),
            Self::Tlbi | Self::TlbiComplete | Self::DsbLocal => (aarch64, FlushShare::PerEntry),
            Self::DsbWait | Self::DsbWaitEach => (aarch64, FlushShare::PerWait),
            Self::IpiSend | Self::IpiSendEach | Self::IpiDelivery | Self::IpiHandler | Self::IpiAck => {
                (On::Both, FlushShare::PerWait)
            }
            Self::Access
            | Self::DramLatency
            | Self::SlowTierLatency
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
            | Self::SwitchRoot
            | Self::LineNear
            | Self::LineFar => (On::Both, FlushShare::None),
        }
    }

    /// Whether a machine of `isa` has this cost; its profiles must then give it.
    pub fn applies_to(self, isa: IsaKind) -> bool {
        match self.kind().0 {
            On::Both => true,
            On::Only(only) => only == isa,
        }
    }

    /// Whether it has a band: costs of flushing, of moving lines, and of memory.
    pub fn has_band(self) -> bool {
        self.flush_share() != FlushShare::None
            || matches!(self, Self::LineNear | Self::LineFar | Self::DramLatency | Self::SlowTierLatency)
    }

    /// How often a flush pays it.
    pub fn flush_share(self) -> FlushShare {
        self.kind().1
    }
}

/// The value of every cost on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Costs(pub(crate) [Picos; Cost::COUNT]);

impl Costs {
    #[inline]
    pub(crate) fn of(&self, cost: Cost) -> Picos {
        self.0[cost as usize]
    }
}
