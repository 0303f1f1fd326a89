//! The TLB engine of one machine: flushes by whichever means the machine has.
//!
//! **INV-TLB-WAIT** A flush that waits for other CPUs begins only where waiting is allowed. With
//! interrupts disabled, two CPUs would wait for each other.

mod broadcast;
mod ipi;

use crate::context::TlbContext;
use crate::ledger::Ledger;
use crate::secondary::Secondaries;
use crate::tags::{Asids, PcidSlots};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget, ShootdownKind};
use pagewright_frame::{ClearExtent, FrameAllocator, FrameRequest, Frames, NoFrames};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Arc, Backend, LineRef, LineUse, Mailbox, PerCpu, Platform, SpinLock, rank};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, CpuMask, DebtFloor, Level, Order, PageRange, Pfn, SpaceId, VirtAddr};
use thiserror::Error;

/// What a flush must remove (Linux's `flush_tlb_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushInfo {
    /// The pages, or `None` for the whole space.
    pub range: Option<PageRange>,
    /// The smallest level at which an entry was edited.
    pub level: Level,
    /// Whether tables were unhooked, so that walk caches and lazy CPUs must be flushed, too.
    pub freed_tables: bool,
}

/// When a [`crate::Batch`] defers flushes.
///
/// Never where each invalidation must be repeated ([`pagewright_arch::Caps::repeat_invalidate`]):
/// the first of each pair is waited for, so deferring the second saves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchPolicy {
    /// Never: each entry is flushed when it is absorbed.
    Never,
    /// Where another CPU would have to be waited for (`should_defer_flush`).
    ///
    /// That is never on a machine with one CPU online, and on x86 only if another CPU runs the
    /// space.
    Auto,
    /// Always, for measurements.
    Always,
}

/// Settings of the engine.
#[derive(Clone, Copy, Debug)]
pub struct TlbConfig {
    /// Pages above which an x86 flush takes the whole tag.
    ///
    /// Linux's `tlb_single_page_flush_ceiling`, 33 there.
    pub single_page_flush_ceiling: u32,
    /// When a batch defers flushes.
    pub batch: BatchPolicy,
}

impl Default for TlbConfig {
    fn default() -> Self {
        Self { single_page_flush_ceiling: 33, batch: BatchPolicy::Auto }
    }
}

/// What one CPU knows about its own TLB, and its side of shootdowns.
pub(crate) struct CpuState<P: Platform> {
    /// The space whose root is loaded; 0 for none.
    ///
    /// Written by this CPU only.
    pub(crate) loaded: AtomicU64,
    /// The loaded space's context.
    ///
    /// Taken by this CPU only, with interrupts closed.
    pub(crate) context: SpinLock<Option<Arc<TlbContext>>, rank::LoadedRank, P::Locks>,
    /// x86: whether a kernel thread runs on the loaded root.
    ///
    /// The CPU then reads the generation before it returns to user mode.
    pub(crate) lazy: AtomicBool,
    pub(crate) pcids: PcidSlots,
    /// Lockless walks begun and ended on this CPU: odd while one is in progress.
    ///
    /// Written by this CPU only.
    pub(crate) walks: AtomicU64,
}

/// The number of the first space; 0 is no space's.
const FIRST_SPACE: u64 = 1;

/// Tags that no space gets: that of the empty root.
const KEPT_TAGS: usize = 1;

/// Everything about translations on one machine, and the frames they lead to.
pub struct Tlb<P: Platform> {
    fx: P,
    frames: FrameAllocator<P>,
    ledger: Ledger<P>,
    pub(crate) cpus: PerCpu<CpuState<P>>,
    /// x86: what CPUs ask of each other.
    pub(crate) mailbox: Mailbox<{ ipi::WORDS }, P::Locks>,
    pub(crate) asids: Option<Asids<P>>,
    /// An empty root, loaded while no user space is.
    pub(crate) kernel_root: Pfn,
    next_space: AtomicU64,
    ceiling: AtomicU32,
    pub(crate) batch: BatchPolicy,
    pub(crate) secondaries: Secondaries<P>,
    /// See [`Tlb::may_have_lingered`].
    pub(crate) has_lingered: AtomicBool,
}

/// Why the engine of a machine could not be set up.
#[derive(Debug, Error)]
pub enum TlbSetupError {
    /// Kernel memory ran out.
    #[error(transparent)]
    OutOfMemory(#[from] AllocError),
    /// No frame for the empty root.
    #[error(transparent)]
    NoFrames(NoFrames),
    /// The machine has fewer tags than it needs for all CPUs to run a space at once.
    #[error("{tags} TLB tags are too few for {cpus} CPUs")]
    TooFewTags {
        /// Tags of the machine.
        tags: u32,
        /// CPUs of the machine.
        cpus: u32,
    },
}

impl<P: Platform> Tlb<P> {
    /// Creates the engine of the machine behind `fx`, over its frames.
    ///
    /// It has room for the CPUs of the frames' nodes, also if they come online later, and for those
    /// that are online now.
    ///
    /// # Errors
    /// [`TlbSetupError`]; `frames` is dropped.
    pub fn try_new(fx: P, frames: FrameAllocator<P>, config: TlbConfig) -> Result<Self, TlbSetupError> {
        let online = fx.online().iter().last().unwrap_or_else(|| fx.cpu()).index() + 1;
        let cpus = online.max(plant!(RoomForOnline; 0, frames.cpus()));
        let caps = *fx.caps();
        let asids = match caps.shootdown {
            ShootdownKind::Ipi => None,
            ShootdownKind::Broadcast if Asids::<P>::spaces(&caps) as usize <= cpus + KEPT_TAGS => {
                return Err(TlbSetupError::TooFewTags { tags: caps.tags, cpus: cpus as u32 });
            }
            ShootdownKind::Broadcast => Some(Asids::try_new(cpus, &caps)?),
        };
        let states = PerCpu::try_new(cpus, |_| CpuState {
            loaded: AtomicU64::new(0),
            context: SpinLock::new(None),
            lazy: AtomicBool::new(false),
            pcids: PcidSlots::default(),
            walks: AtomicU64::new(0),
        })?;
        let (mailbox, ledger) = (Mailbox::try_new(cpus)?, Ledger::try_new(cpus)?);
        let request = FrameRequest::new(Order::ZERO, frames.node_of_cpu(fx.cpu()));
        // Nothing has run yet, so no TLB holds anything: whatever key the block has is settled.
        let root = frames.alloc(request, || DebtFloor::NONE).map_err(TlbSetupError::NoFrames)?.settle(|_| {});
        let root = frames.pin_cpu().clear(root, ClearExtent::PAGE).fence().into_block();
        fx.declare(Fact::FrameReused { pfn: root.pfn(), order: root.order() });
        let kernel_root = frames.new_table(root, Level::PGD, SpaceId::default());
        let (ceiling, batch) = (AtomicU32::new(config.single_page_flush_ceiling), config.batch);
        let (next_space, secondaries) = (AtomicU64::new(FIRST_SPACE), Secondaries::new());
        Ok(Self {
            fx,
            frames,
            ledger,
            cpus: states,
            mailbox,
            asids,
            kernel_root,
            next_space,
            ceiling,
            batch,
            secondaries,
            has_lingered: AtomicBool::new(false),
        })
    }

    /// The effects of the machine.
    pub fn fx(&self) -> &P {
        &self.fx
    }

    /// The frames of the machine.
    ///
    /// They cannot be allocated by this reference; [`Tlb::alloc`] allocates and settles.
    pub fn frames(&self) -> &Frames<P> {
        &self.frames
    }

    /// The right to allocate frames that may owe a debt.
    pub(crate) fn frame_allocator(&self) -> &FrameAllocator<P> {
        &self.frames
    }

    /// The empty root, which a CPU loads when it runs no user space.
    pub fn kernel_root(&self) -> Pfn {
        self.kernel_root
    }

    /// The ledger: the epoch, and each CPU's clock of full flushes.
    pub fn ledger(&self) -> &Ledger<P> {
        &self.ledger
    }

    /// Adds `n` to a counter of the calling CPU.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        self.frames.counters().add(self.fx.cpu(), counter, n);
    }

    /// Does `act`, and adds the remote flushes that it sends to `cause`, too.
    ///
    /// A flush of this CPU alone sends none. So the counters of causes add up to no more than
    /// `nr_tlb_remote_flush`.
    pub(crate) fn attribute_flushes<T>(&self, cause: Counter, act: impl FnOnce() -> T) -> T {
        let me = self.fx.cpu();
        let sent = || self.frames().counters().of(me, Counter::NrTlbRemoteFlush);
        let before = sent();
        let done = act();
        self.count(cause, sent().wrapping_sub(before));
        done
    }

    /// Pages above which an x86 flush takes the whole tag.
    pub fn single_page_flush_ceiling(&self) -> u32 {
        self.ceiling.load(Ordering::Relaxed)
    }

    /// Reports a use of the line of a space's CPU mask, generation and pending flushes.
    #[inline]
    pub(crate) fn use_context(&self, context: &TlbContext, used: LineUse) {
        P::Locks::line(LineRef::Word(context.id().raw()), "TLB context", used);
    }

    /// Creates the context of a new space whose root table is `root`.
    ///
    /// # Errors
    /// [`AllocError`] when there is no kernel memory for it.
    pub fn open_context(&self, root: Pfn) -> Result<Arc<TlbContext>, AllocError> {
        if !self.fx.permit_allocation() {
            return Err(AllocError { bytes: size_of::<TlbContext>() });
        }
        P::Locks::line(LineRef::Word(0), "space ids", LineUse::Store);
        let id = SpaceId::new(self.next_space.fetch_add(1, Ordering::Relaxed));
        Arc::try_new(TlbContext::new(id, root))
    }

    /// Flushes what `flush` names on every CPU, and waits until no CPU can use it.
    ///
    /// # Panics
    /// In debug builds when the caller may not wait for other CPUs.
    pub fn flush(&self, context: &TlbContext, flush: FlushInfo) {
        debug_assert!(self.fx.may_wait(), "INV-TLB-WAIT: a flush by a caller that may not wait");
        plant!(NoFlush => return);
        plant!(NoPublish; (), self.fx.publish());
        self.tell_secondaries(context, flush.range);
        match self.fx.caps().shootdown {
            ShootdownKind::Ipi => self.flush_ipi(context, flush),
            ShootdownKind::Broadcast => self.flush_broadcast(context, flush),
        }
    }

    /// Flushes, on this CPU, an entry of `level` for `va` that refused what the tables allow.
    ///
    /// Another CPU that still holds the entry faults once more and calls this itself (Linux's
    /// `flush_tlb_fix_spurious_fault`). If `tables` is set, pointers to tables on the way may allow
    /// more than before, too, and the walk caches are flushed for `va`.
    pub fn fix_spurious_fault(&self, context: &TlbContext, va: VirtAddr, level: Level, tables: bool) {
        if !self.fx.caps().keeps_faulting_entry {
            return;
        }
        self.fx.publish();
        let tag = context.asid_tag();
        self.invalidate_local(InvalidateTarget::Page { tag, va, level, last_level: !tables });
    }

    /// Flushes `target` on this CPU, under both tags of the space if user mode has one of its own.
    pub(crate) fn invalidate_local(&self, target: InvalidateTarget) {
        self.under_each_tag(target, |target| self.fx.invalidate(Invalidate { scope: InvalidateScope::Local, target }));
    }

    /// Calls `invalidate` for each tag of the space whose kernel tag `target` names.
    ///
    /// Those are that tag, and the one under which user mode runs while it is installed.
    pub(crate) fn under_each_tag(&self, target: InvalidateTarget, invalidate: impl Fn(InvalidateTarget)) {
        invalidate(target);
        let user = |tag| self.fx.caps().user_tag(tag);
        let twin = match target {
            InvalidateTarget::Page { tag, va, level, last_level } => {
                user(tag).map(|tag| InvalidateTarget::Page { tag, va, level, last_level })
            }
            InvalidateTarget::Range { tag, range, level, last_level } => {
                user(tag).map(|tag| InvalidateTarget::Range { tag, range, level, last_level })
            }
            InvalidateTarget::Tag(tag) => user(tag).map(InvalidateTarget::Tag),
            InvalidateTarget::PageOfAllTags { .. } | InvalidateTarget::AllTags | InvalidateTarget::Everything => None,
        };
        if let Some(twin) = twin {
            plant!(UserTagForgotten; (), invalidate(twin));
        }
    }

    /// Makes the CPUs in `owing` forget everything but global entries, and advances their clocks.
    pub(crate) fn flush_everything(&self, owing: &CpuMask) {
        debug_assert!(self.fx.may_wait(), "INV-TLB-WAIT: a flush by a caller that may not wait");
        match self.fx.caps().shootdown {
            ShootdownKind::Ipi => self.everything_ipi(owing),
            ShootdownKind::Broadcast => self.everything_broadcast(),
        }
    }
}
