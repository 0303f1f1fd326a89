//! The cost model's vocabulary: what takes time, declared once.
//!
//! Values come from a profile ([`crate::profile`]), each with its source. The model is additive: what a CPU does costs the sum of its
//! parts, and only waiting for another CPU overlaps ([`crate::machine`]).

use crate::time::Picos;
use pagewright_arch::IsaKind;

/// Which machines have a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Both,
    Only(IsaKind),
}

macro_rules! costs {
    ($($variant:ident = $name:literal, $on:expr, $meaning:literal;)*) => {
        /// Something that takes time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Cost {
            $(#[doc = $meaning] $variant,)*
        }

        impl Cost {
            /// Every cost, in the order of the profile files.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Number of costs.
            pub const COUNT: usize = Self::ALL.len();

            /// The key in a profile file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it is the price of.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }

            const fn on(self) -> On {
                match self {
                    $(Self::$variant => $on,)*
                }
            }
        }
    };
}

costs! {
    Access = "access", On::Both, "One load, store or fetch that hits the first-level TLB, its share of all other instructions included.";
    L2TlbHit = "l2_tlb_hit", On::Both, "A first-level miss that the second-level TLB answers.";
    WalkStart = "walk_start", On::Both, "Starting a walk and filling the TLBs from it, the reads apart.";
    WalkCacheHit = "walk_cache_hit", On::Both, "Finding in a walk cache where to start.";
    WalkRead = "walk_read", On::Both, "One page-table entry read by a walk.";
    WalkUpdate = "walk_update", On::Both, "Setting accessed or dirty in an entry by the walker.";
    EntryLoad = "entry_load", On::Both, "One page-table entry read by the kernel.";
    EntryStore = "entry_store", On::Both, "One page-table entry stored by the kernel.";
    EntrySwap = "entry_swap", On::Both, "One page-table entry exchanged atomically by the kernel.";
    Exception = "exception", On::Both, "Entering the kernel by a page fault and returning.";
    Syscall = "syscall", On::Both, "Entering the kernel by a system call and returning.";
    MinorFault = "minor_fault", On::Both, "The kernel's own work in a minor fault, allocation included, clearing and copying apart.";
    ZeroPage = "zero_page", On::Both, "Clearing 4 KiB.";
    CopyPage = "copy_page", On::Both, "Copying 4 KiB.";
    ContextSwitch = "context_switch", On::Both, "Switching from one thread to another, the root apart.";
    SwitchRoot = "switch_root", On::Both, "Installing a root table (MOV CR3; TTBR0_EL1 and ISB).";
    IpiSend = "ipi_send", On::Both, "Preparing an interrupt to other CPUs.";
    IpiSendEach = "ipi_send_each", On::Both, "Sending it, for each target.";
    IpiDelivery = "ipi_delivery", On::Both, "From sending until the target leaves what it was doing.";
    IpiHandler = "ipi_handler", On::Both, "Entering and leaving the handler on the target, its flushes apart.";
    IpiAck = "ipi_ack", On::Both, "From the handler's answer until the sender sees it.";
    FlushPage = "flush_page", On::Only(IsaKind::X86_64), "INVLPG, or INVPCID of one address.";
    FlushAll = "flush_all", On::Only(IsaKind::X86_64), "Dropping a tag or everything but globals on this CPU, the refills apart.";
    Tlbi = "tlbi", On::Only(IsaKind::Aarch64), "Issuing one TLBI.";
    DsbLocal = "dsb_local", On::Only(IsaKind::Aarch64), "A DSB with nothing outstanding on other CPUs.";
    DsbWait = "dsb_wait", On::Only(IsaKind::Aarch64), "A DSB that completes broadcast invalidations, whatever the number of CPUs.";
    DsbWaitEach = "dsb_wait_each", On::Only(IsaKind::Aarch64), "The same, for each other CPU of the machine.";
}

impl Cost {
    /// Whether a machine of `isa` has this cost; its profiles must then give it.
    pub fn applies_to(self, isa: IsaKind) -> bool {
        match self.on() {
            On::Both => true,
            On::Only(only) => only == isa,
        }
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
