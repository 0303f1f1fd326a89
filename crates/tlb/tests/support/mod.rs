//! A machine on host threads for the tests of `tlb` and `table`.
//!
//! It has real words of memory, TLBs that keep translations, and a log of every effect.
//!
//! - [`Host`] – the machine. A test thread is whatever CPU [`run_on`] last said; CPUs on threads of
//!   their own poll for interrupts in [`Effects::relax`] and while they wait for locks
//!   ([`Delivery::Polled`]).
//! - [`Step`] – one effect, with what the test's probe saw when it happened: how a test learns what
//!   was free at which moment.
//! - [`Tlb`](pagewright_tlb::Tlb) under test, made by [`engine`].
//!
//! A TLB here forgets nothing unless it is told to: no evictions, and no fills but those that
//! [`Host::access`] makes. A broadcast invalidation does nothing before its issuer waits for it.
//! Not modelled: walk caches, store buffers, time.

// Each test file uses its own part of this.
#![allow(dead_code)]

use pagewright_arch::{
    Caps, Effects, Entry, Invalidate, InvalidateScope, InvalidateTarget, Isa, Leaf, Pte, PteSlot, ShootdownKind,
    TableWords,
};
use pagewright_sync::host::{HostLocks, keep_report, on_cpu, run_as};
use pagewright_sync::{Backend, LineRef, LineUse, Platform};
use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{Tlb, TlbConfig};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuId, CpuMask, FrameRange, Level, NodeId, Order, Pfn, PhysAddr, Tag, VirtAddr};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

thread_local! {
    static CLOSED: Cell<u32> = const { Cell::new(0) };
    /// What a waiting lock does: polls for interrupts on machines that deliver them so.
    static POLL: RefCell<Option<Arc<dyn Fn()>>> = const { RefCell::new(None) };
}

thread_local! {
    static DECLARED: RefCell<Vec<Fact>> = const { RefCell::new(Vec::new()) };
    /// Whether machines made on this thread offer their tables as words.
    static AS_WORDS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, whose machines offer their tables as words, as a kernel does.
///
/// The log then has no store of an entry through them.
pub(crate) fn as_words<T>(body: impl FnOnce() -> T) -> T {
    AS_WORDS.set(true);
    let result = body();
    AS_WORDS.set(false);
    result
}

/// What `body` returns, and the facts that it declares on this thread.
pub(crate) fn declared<T>(body: impl FnOnce() -> T) -> (T, Vec<Fact>) {
    DECLARED.take();
    (body(), DECLARED.take())
}

/// Makes the calling thread run on a CPU.
pub(crate) fn run_on(cpu: u16) {
    run_as(CpuId::new(cpu));
}

/// Does something on another CPU and comes back.
pub(crate) fn on<T>(cpu: u16, body: impl FnOnce() -> T) -> T {
    on_cpu(CpuId::new(cpu), body)
}

/// Locks that spin; the CPU is the thread's.
pub(crate) struct PollingLocks;

impl Backend for PollingLocks {
    type Line = ();

    fn pause() {
        let poll = POLL.with_borrow(Clone::clone);
        if let Some(poll) = poll {
            poll();
        }
        HostLocks::pause();
    }

    fn line(line: LineRef<'_, ()>, name: &'static str, used: LineUse) {
        keep_report(line, name, used);
    }

    pagewright_sync::locks_of_threads!();
}

/// When an interrupt runs its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// At once, inside `send_ipi`, on the sender's thread.
    AtOnce,
    /// When the target's thread next looks, with interrupts open.
    Polled,
}

/// One effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Store(PteSlot, Pte),
    Publish,
    Invalidate(Invalidate),
    Complete,
    SendIpi(CpuMask),
    /// The handler has run on this CPU.
    Answered,
    Root {
        root: Pfn,
        tag: Tag,
        keep: bool,
    },
}

/// An effect, the CPU that had it, and what the probe saw just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) cpu: CpuId,
    pub(crate) effect: Effect,
    pub(crate) probe: u64,
}

/// What a TLB knows about one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cached {
    root: Pfn,
    level: Level,
    leaf: Leaf,
}

#[derive(Default)]
struct Core {
    root: Option<(Pfn, Tag)>,
    /// In lazy mode a CPU makes no user access.
    lazy: bool,
    /// By tag and first address of the entry.
    tlb: HashMap<(Tag, VirtAddr), Cached>,
    /// Broadcast invalidations that this CPU has issued and not waited for.
    outstanding: Vec<InvalidateTarget>,
}

type Handler = Box<dyn Fn() + Send + Sync>;
type Probe = Box<dyn Fn() -> u64 + Send + Sync>;

struct Machine {
    caps: Caps,
    as_words: bool,
    /// Stores to entries.
    stores: AtomicU64,
    online: Mutex<CpuMask>,
    words: Vec<AtomicU64>,
    cores: Vec<Mutex<Core>>,
    log: Mutex<Vec<Step>>,
    logging: AtomicBool,
    probe: Mutex<Option<Probe>>,
    handler: OnceLock<Handler>,
    delivery: Delivery,
    interrupted: Vec<AtomicBool>,
    may_wait: AtomicBool,
    permitted: AtomicU64,
}

/// The machine.
pub(crate) struct Host<I>(Arc<Machine>, PhantomData<fn() -> I>);

impl<I> Clone for Host<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

/// No limit on allocations.
const UNLIMITED: u64 = u64::MAX;

impl<I: Isa> Host<I> {
    pub(crate) fn new(cpus: usize, frames: u32, caps: Caps, delivery: Delivery) -> Self {
        let words = (0..frames as usize * 512).map(|_| AtomicU64::new(0)).collect();
        Self(
            Arc::new(Machine {
                caps,
                as_words: AS_WORDS.get(),
                stores: AtomicU64::new(0),
                online: Mutex::new(CpuMask::first(cpus)),
                words,
                cores: (0..cpus).map(|_| Mutex::default()).collect(),
                log: Mutex::default(),
                logging: AtomicBool::new(false),
                probe: Mutex::default(),
                handler: OnceLock::new(),
                delivery,
                interrupted: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
                may_wait: AtomicBool::new(true),
                permitted: AtomicU64::new(UNLIMITED),
            }),
            PhantomData,
        )
    }

    /// Refuses every allocation after the next `n`.
    pub(crate) fn permit(&self, n: u64) {
        self.0.permitted.store(n, Ordering::Relaxed);
    }

    /// Permits every allocation.
    pub(crate) fn permit_all(&self) {
        self.permit(UNLIMITED);
    }

    /// The number of stores to entries, through words and others.
    pub(crate) fn stores(&self) -> u64 {
        self.0.stores.load(Ordering::Relaxed)
    }

    /// Says whether callers may wait for other CPUs.
    pub(crate) fn allow_waiting(&self, allowed: bool) {
        self.0.may_wait.store(allowed, Ordering::Relaxed);
    }

    /// What `probe` returns stands in each step of the log from now on.
    pub(crate) fn watch(&self, probe: impl Fn() -> u64 + Send + Sync + 'static) {
        *self.0.probe.lock().expect("no test panicked here") = Some(Box::new(probe));
    }

    /// The effects of `body`.
    pub(crate) fn log<T>(&self, body: impl FnOnce() -> T) -> (T, Vec<Step>) {
        self.0.logging.store(true, Ordering::Relaxed);
        let result = body();
        self.0.logging.store(false, Ordering::Relaxed);
        (result, std::mem::take(&mut *self.0.log.lock().expect("no test panicked here")))
    }

    fn note(&self, effect: Effect) {
        if self.0.logging.load(Ordering::Relaxed) {
            let probe = self.0.probe.lock().expect("no test panicked here").as_ref().map_or(0, |probe| probe());
            let step = Step { cpu: HostLocks::cpu(), effect, probe };
            self.0.log.lock().expect("no test panicked here").push(step);
        }
    }

    fn word(&self, addr: PhysAddr) -> &AtomicU64 {
        &self.0.words[addr.raw() as usize / 8]
    }

    fn here(&self) -> std::sync::MutexGuard<'_, Core> {
        self.core(HostLocks::cpu())
    }

    fn core(&self, cpu: CpuId) -> std::sync::MutexGuard<'_, Core> {
        self.0.cores[cpu.index()].lock().expect("no test panicked here")
    }

    /// The root and tag in force on this CPU.
    pub(crate) fn root(&self) -> Option<(Pfn, Tag)> {
        self.here().root
    }

    /// What the tables under `root` say about `va`, by the codec and nothing else of ours.
    pub(crate) fn walk(&self, root: Pfn, va: VirtAddr) -> Option<(Level, Leaf)> {
        let mut table = root;
        for raw in (0..Level::COUNT as u8).rev() {
            let level = Level::new(raw);
            let slot = PteSlot { table, index: level.index_of(va) as u16 };
            match I::decode(level, Pte::from_raw(self.word(slot.addr()).load(Ordering::Acquire))) {
                Entry::Table(next) => table = next.pfn,
                Entry::Leaf(leaf) => return Some((level, leaf)),
                Entry::Empty | Entry::Soft(_) => return None,
            }
        }
        None
    }

    /// One access of user mode on this CPU; `None` is a fault.
    ///
    /// It uses the TLB if that has the page, else a walk, whose result the TLB keeps.
    ///
    /// # Panics
    /// When the TLB has the page under the current tag from another space's tables.
    pub(crate) fn access(&self, va: VirtAddr, access: Access) -> Option<Leaf> {
        self.access_and(va, access, |_| {})
    }

    /// As [`Host::access`]; `look` sees the leaf before any invalidation can be waited for.
    pub(crate) fn access_and(&self, va: VirtAddr, access: Access, look: impl FnOnce(Leaf)) -> Option<Leaf> {
        let mut core = self.here();
        let leaf = self.translate(&mut core, va, access)?;
        look(leaf);
        Some(leaf)
    }

    /// Whether the calling CPU is in lazy mode.
    pub(crate) fn is_lazy(&self) -> bool {
        self.here().lazy
    }

    fn translate(&self, core: &mut Core, va: VirtAddr, access: Access) -> Option<Leaf> {
        assert!(!core.lazy, "{access} of {va} in lazy mode");
        let (root, tag) = core.root?;
        for raw in 0..Level::PGD.raw() {
            let level = Level::new(raw);
            if let Some(cached) = core.tlb.get(&(tag, va.align_down(level.span()))).filter(|c| c.level == level) {
                assert_eq!(cached.root, root, "INV-TLB-ROLLOVER: {tag:?} still has translations of another space");
                if cached.leaf.rights.allow(access) {
                    return Some(cached.leaf);
                }
            }
        }
        let (level, leaf) = self.walk(root, va)?;
        if !leaf.rights.allow(access) {
            return None;
        }
        core.tlb.insert((tag, va.align_down(level.span())), Cached { root, level, leaf });
        Some(leaf)
    }

    /// Asserts that a CPU holds nothing stale under its current tag.
    ///
    /// What it holds is its current space's, and allows no more than the tables do.
    pub(crate) fn assert_fresh(&self, cpu: CpuId) {
        let core = self.core(cpu);
        let Some((root, current)) = core.root else { return };
        for ((_, va), cached) in core.tlb.iter().filter(|((tag, _), _)| *tag == current) {
            assert_eq!(cached.root, root, "CPU {cpu} runs with {current:?}, which has {va} of another space");
            let now = self.walk(root, *va);
            let good = now.is_some_and(|(level, leaf)| {
                level == cached.level && leaf.pfn == cached.leaf.pfn && leaf.rights.contains(cached.leaf.rights)
            });
            assert!(good, "CPU {cpu} has {cached:?} at {va}, and the tables say {now:?}");
        }
    }

    /// Takes a CPU out of reach of broadcasts and interrupts, or brings it back.
    ///
    /// Its TLB then holds what it held before.
    pub(crate) fn plug(&self, cpu: u16, there: bool) {
        let mut online = self.0.online.lock().expect("no test panicked here");
        if there {
            online.insert(CpuId::new(cpu));
        } else {
            online.remove(CpuId::new(cpu));
        }
    }

    /// Whether an interrupt waits for a CPU (with [`Delivery::Polled`]).
    pub(crate) fn is_interrupted(&self, cpu: u16) -> bool {
        self.0.interrupted[usize::from(cpu)].load(Ordering::SeqCst)
    }

    /// Pages in a CPU's TLB.
    pub(crate) fn cached(&self, cpu: u16) -> usize {
        self.core(CpuId::new(cpu)).tlb.len()
    }

    fn forget(&self, core: &mut Core, target: InvalidateTarget) {
        let broadcast = self.0.caps.shootdown == ShootdownKind::Broadcast;
        core.tlb.retain(|&(tag, start), cached| {
            let end = start.add(cached.level.span());
            // A level in the hint removes entries of that level alone, where hints exist
            // (FEAT_TTL).
            let of_level = |level, last_level: bool| !broadcast || !last_level || cached.level == level;
            !match target {
                InvalidateTarget::Page { tag: of, va, level, last_level } => {
                    of == tag && start <= va && va < end && of_level(level, last_level)
                }
                InvalidateTarget::Range { tag: of, range, level, last_level } => {
                    of == tag && start < range.end() && range.start() < end && of_level(level, last_level)
                }
                InvalidateTarget::Tag(of) => of == tag,
                InvalidateTarget::PageOfAllTags { va, level, last_level } => {
                    start <= va && va < end && of_level(level, last_level)
                }
                InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
            }
        });
    }

    fn interrupt_here(&self) {
        let handler = self.0.handler.get().expect("a handler is bound");
        let closed = CLOSED.replace(1);
        handler();
        CLOSED.set(closed);
        self.note(Effect::Answered);
    }

    /// Runs the handler if this CPU was interrupted and interrupts are open.
    pub(crate) fn poll(&self) {
        if CLOSED.get() == 0 && self.0.interrupted[HostLocks::cpu().index()].swap(false, Ordering::SeqCst) {
            self.interrupt_here();
        }
    }

    /// Makes the calling thread a CPU that polls for interrupts while it waits for locks.
    pub(crate) fn start_cpu(&self, cpu: u16) {
        run_on(cpu);
        let host = self.clone();
        POLL.set(Some(Arc::new(move || host.poll())));
    }
}

impl<I: Isa> Effects for Host<I> {
    type Isa = I;

    fn set_lazy(&self, lazy: bool) {
        self.here().lazy = lazy;
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn cpu(&self) -> CpuId {
        HostLocks::cpu()
    }

    fn online(&self) -> CpuMask {
        *self.0.online.lock().expect("no test panicked here")
    }

    fn load(&self, slot: PteSlot) -> Pte {
        Pte::from_raw(self.word(slot.addr()).load(Ordering::Acquire))
    }

    fn table_words(&self, table: Pfn) -> Option<TableWords<'_>> {
        let words = self.0.words[table.index() * 512..].first_chunk().expect("a frame of the machine");
        self.0.as_words.then_some(TableWords(words))
    }

    fn note_stores(&self, entries: u32) {
        assert_ne!(entries, 0, "there is nothing to note");
        self.0.stores.fetch_add(u64::from(entries), Ordering::Relaxed);
    }

    fn store(&self, slot: PteSlot, pte: Pte) {
        self.note_stores(1);
        self.note(Effect::Store(slot, pte));
        self.word(slot.addr()).store(pte.raw(), Ordering::Release);
    }

    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        self.note_stores(1);
        self.note(Effect::Store(slot, pte));
        Pte::from_raw(self.word(slot.addr()).swap(pte.raw(), Ordering::AcqRel))
    }

    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        self.note(Effect::Store(slot, new));
        let word = self.word(slot.addr());
        let done = word.compare_exchange(current.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire);
        done.map(|_| self.note_stores(1)).map_err(Pte::from_raw)
    }

    fn publish(&self) {
        self.note(Effect::Publish);
    }

    fn invalidate(&self, op: Invalidate) {
        self.note(Effect::Invalidate(op));
        match op.scope {
            InvalidateScope::Local => self.forget(&mut self.here(), op.target),
            InvalidateScope::Broadcast => {
                assert_eq!(self.0.caps.shootdown, ShootdownKind::Broadcast, "no such instruction here: {op:?}");
                self.here().outstanding.push(op.target);
            }
        }
    }

    fn complete(&self) {
        self.note(Effect::Complete);
        let outstanding = std::mem::take(&mut self.here().outstanding);
        for cpu in self.online().iter() {
            let mut core = self.core(cpu);
            outstanding.iter().for_each(|target| self.forget(&mut core, *target));
        }
    }

    fn send_ipi(&self, targets: &CpuMask) {
        self.note(Effect::SendIpi(*targets));
        assert!(!targets.contains(HostLocks::cpu()), "a CPU interrupts itself");
        for target in targets.iter() {
            assert!(self.online().contains(target), "an interrupt to CPU {target}, which has gone, is lost");
            match self.0.delivery {
                Delivery::AtOnce => on(target.raw(), || self.interrupt_here()),
                Delivery::Polled => self.0.interrupted[target.index()].store(true, Ordering::SeqCst),
            }
        }
    }

    fn relax(&self) {
        assert_eq!(CLOSED.get(), 0, "a CPU waits with interrupts closed");
        self.poll();
        std::thread::yield_now();
    }

    fn install_root(&self, root: Pfn, tag: Tag, keep: bool) {
        self.note(Effect::Root { root, tag, keep });
        let mut core = self.here();
        // Accesses are those of user mode; the kernel makes none here.
        let user = self.0.caps.user_tag(tag).unwrap_or(tag);
        if !keep || !self.0.caps.tagged {
            self.forget(&mut core, InvalidateTarget::Tag(tag));
            self.forget(&mut core, InvalidateTarget::Tag(user));
        }
        core.root = Some((root, user));
    }

    fn without_interrupts<T>(&self, body: impl FnOnce() -> T) -> T {
        let before = CLOSED.get();
        CLOSED.set(before + 1);
        let result = body();
        CLOSED.set(before);
        result
    }

    fn may_wait(&self) -> bool {
        CLOSED.get() == 0 && self.0.may_wait.load(Ordering::Relaxed)
    }

    fn permit_allocation(&self) -> bool {
        let permitted = &self.0.permitted;
        permitted.load(Ordering::Relaxed) == UNLIMITED
            || permitted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Asserts that no CPU reaches frames that are declared as handed out.
    ///
    /// Their debt is settled then, and not before. Only the tag that a CPU uses counts. Where CPUs
    /// are threads, nothing is asserted: one may be lazy, or between its switch and its catching
    /// up.
    fn declare(&self, fact: Fact) {
        DECLARED.with_borrow_mut(|facts| facts.push(fact));
        let (Fact::FrameReused { pfn, order }, Delivery::AtOnce) = (fact, self.0.delivery) else { return };
        let frames = FrameRange::new(pfn, pfn.add(order.frames()));
        for cpu in self.online().iter() {
            let core = self.core(cpu);
            let Some((_, current)) = core.root else { continue };
            let reached =
                core.tlb.iter().find(|((tag, _), cached)| *tag == current && frames.contains(cached.leaf.pfn));
            assert!(reached.is_none(), "{pfn} is handed out and CPU {cpu} has {reached:?}");
        }
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        let first = pfn.index() * 512;
        for word in &self.0.words[first..first + order.frames() as usize * 512] {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn copy(&self, _: Pfn, _: Pfn, _: Order) {
        unreachable!("neither crate copies contents")
    }

    pagewright_arch::no_access_to_bytes!();
}

impl<I: Isa> Platform for Host<I> {
    type Locks = PollingLocks;
}

/// The engine of a machine with `frames` frames and no watermarks, bound to its interrupt.
pub(crate) fn engine<I: Isa>(host: &Host<I>, frames: u32) -> Arc<Tlb<Host<I>>> {
    engine_with(host, frames, TlbConfig::default())
}

/// As [`engine`], with settings.
pub(crate) fn engine_with<I: Isa>(host: &Host<I>, frames: u32, config: TlbConfig) -> Arc<Tlb<Host<I>>> {
    let ranges = [FrameRange::new(Pfn::new(1), Pfn::new(frames))];
    let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: host.online() }];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    let frames = FrameAllocator::try_new(host.clone(), &layout).expect("a possible machine");
    let tlb = Arc::new(Tlb::try_new(host.clone(), frames, config).expect("a possible machine"));
    let handler = Arc::downgrade(&tlb);
    let bound = host.0.handler.set(Box::new(move || {
        if let Some(tlb) = handler.upgrade() {
            tlb.handle_ipi();
        }
    }));
    assert!(bound.is_ok(), "one engine for one machine");
    tlb
}
