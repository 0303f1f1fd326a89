//! The entries that each TLB invalidation removes, by instruction (INV-SIM-INVALIDATE).
//!
//! | target | x86-64 (SDM vol. 3A §4.10.4.1) | arm64 (Arm ARM D8.16.5) |
//! | --- | --- | --- |
//! | `Page`, tag installed | `INVLPG`: the page, globals too; **all** walk caches of the tag | `TLBI VAE1[IS]`, `VALE1[IS]` if `last_level` |
//! | `Page`, another tag | `INVPCID` type 0: the page, no globals; the walk caches on the way to it | the same |
//! | `Range` | does not exist | `TLBI RVAE1[IS]`, `RVALE1[IS]` (FEAT_TLBIRANGE) |
//! | `PageOfAllTags` | does not exist | `TLBI VAAE1[IS]`, `VAALE1[IS]` if `last_level` |
//! | `Tag` | `INVPCID` type 1, or `MOV CR3` | `TLBI ASIDE1[IS]` |
//! | `AllTags` | `INVPCID` type 3 | `TLBI VMALLE1[IS]`, globals too |
//! | `Everything` | `INVPCID` type 2, `MOV CR4` that changes PGE: globals too | the same |
//!
//! With [`crate::MachineConfig::invlpgb`], an x86-64 broadcast removes the same as the local forms,
//! a range or a page of all tags too, on every CPU; of walk caches only those on the way, and
//! global entries only by `PageOfAllTags` and `Everything`. `complete` is TLBSYNC.
//!
//! On arm64 the last-level form leaves the walk caches alone. As FEAT_TTL permits, it removes only
//! entries of the named level: a wrong level removes nothing. The other form removes translations
//! of any level, as Linux requests (by the level hint "unknown") when tables may have been freed.
//!
//! A broadcast takes effect at once here, and takes time to complete: `Cost::TlbiComplete`, after
//! the broadcasts that its CPU issued before. A DSB therefore costs more the more of them are
//! outstanding. A limit on their number would change where the CPU waits, at a TLBI or at the DSB,
//! and not for how long.
//!
//! **INV-SIM-INVALIDATE** An invalidation removes what its manual guarantees, and nothing that
//! `sim::invalidate` does not name. A machine that removes more would hide a missing flush.
//!
//! **INV-SIM-TLBI-QUEUE** Broadcast TLBIs of one CPU complete one after the other, and its DSB
//! waits for the last, so a DSB costs more the more of them are outstanding. Work between the last
//! TLBI and the DSB hides what completes meanwhile.

use crate::core::Core;
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::machine::Sim;
use crate::tlb::{Key, Pattern, Tlbs};
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget, Isa};
use pagewright_types::{IsaKind, Level, PageRange, Tag, VirtAddr};

/// The longest range, in entries, that is looked up entry by entry.
///
/// A longer range sweeps the arrays once.
const SWEEP_ABOVE: u64 = 64;

impl<I: Isa> Sim<I> {
    /// Executes `op` on the current CPU.
    pub(crate) fn execute_invalidate(&self, op: Invalidate) {
        let target = self.untagged(op.target);
        match I::KIND {
            IsaKind::X86_64 => match op.scope {
                InvalidateScope::Local => self.invalidate_x86_64(target),
                InvalidateScope::Broadcast => self.invlpgb(target),
            },
            IsaKind::Aarch64 => self.invalidate_aarch64(op.scope, target),
        }
    }

    /// The tag under which the machine caches `tag`: without tags, 0 for all.
    pub(crate) fn tag_in_use(&self, tag: Tag) -> Tag {
        if self.0.caps.tagged { tag } else { Tag::new(0) }
    }

    fn untagged(&self, target: InvalidateTarget) -> InvalidateTarget {
        match target {
            InvalidateTarget::Page { tag, va, level, last_level } => {
                InvalidateTarget::Page { tag: self.tag_in_use(tag), va, level, last_level }
            }
            InvalidateTarget::Range { tag, range, level, last_level } => {
                InvalidateTarget::Range { tag: self.tag_in_use(tag), range, level, last_level }
            }
            InvalidateTarget::Tag(tag) => InvalidateTarget::Tag(self.tag_in_use(tag)),
            same @ (InvalidateTarget::PageOfAllTags { .. }
            | InvalidateTarget::AllTags
            | InvalidateTarget::Everything) => same,
        }
    }

    /// `target` with its level in the tree of this machine.
    ///
    /// A TLBI names the granule of its level hint and of its range (TTL and TG, Arm ARM D8.16.5),
    /// which is taken to be that of the machine. So a range is one of whole pages.
    pub(crate) fn of_own_tree(&self, target: InvalidateTarget) -> InvalidateTarget {
        let own = |level: Level| self.0.config.last_level().of_same_tree(level.raw());
        match target {
            InvalidateTarget::Page { tag, va, level, last_level } => {
                InvalidateTarget::Page { tag, va, level: own(level), last_level }
            }
            InvalidateTarget::Range { tag, range, level, last_level } => {
                let page = self.0.config.granule.bytes();
                let whole = range.start().is_aligned(page) && range.end().is_aligned(page);
                assert!(whole, "an invalidation of {range}, which is not whole pages of {page} bytes");
                InvalidateTarget::Range { tag, range, level: own(level), last_level }
            }
            InvalidateTarget::PageOfAllTags { va, level, last_level } => {
                InvalidateTarget::PageOfAllTags { va, level: own(level), last_level }
            }
            same @ (InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything) => same,
        }
    }

    fn invalidate_x86_64(&self, target: InvalidateTarget) {
        // All of these instructions serialise.
        self.drain_local_stores();
        self.cancel_local_walks(target);
        let core = self.here();
        let current = core.root.get().map_or(Tag::new(0), |root| root.kernel_tag);
        let mut tlbs = core.tlbs.borrow_mut();
        let (lost, cost, event) = match target {
            InvalidateTarget::Page { tag, va, .. } if tag == current => {
                tlbs.drop_walk_caches(Pattern::tag(tag));
                (tlbs.drop_page(tag, va, None, true), Cost::FlushPage, MachineEvent::PageFlushes)
            }
            InvalidateTarget::Page { tag, va, .. } => {
                tlbs.drop_walk_caches_of(tag, va);
                (tlbs.drop_page(tag, va, None, false), Cost::FlushPage, MachineEvent::PageFlushes)
            }
            InvalidateTarget::Range { .. } => panic!("no range invalidation on x86-64: {target:?}"),
            InvalidateTarget::Tag(tag) => {
                (drop_pattern(&mut tlbs, Pattern::tag(tag)), Cost::FlushAll, MachineEvent::FullFlushes)
            }
            InvalidateTarget::AllTags => {
                (drop_pattern(&mut tlbs, Pattern::NOT_GLOBAL), Cost::FlushAll, MachineEvent::FullFlushes)
            }
            InvalidateTarget::Everything => {
                (drop_pattern(&mut tlbs, Pattern::ALL), Cost::FlushAll, MachineEvent::FullFlushes)
            }
            InvalidateTarget::PageOfAllTags { .. } => {
                panic!("no invalidation of a page under all tags on x86-64: {target:?}")
            }
        };
        drop(tlbs);
        core.count_flush(lost);
        core.events.add(event, 1);
        core.pay(&self.profile().costs, cost);
    }

    /// Executes INVLPGB (AMD APM vol. 3), which TLBSYNC completes ([`Effects::complete`]).
    ///
    /// It is taken to follow the earlier stores of its CPU, and costs nothing, for lack of a
    /// figure.
    ///
    /// [`Effects::complete`]: pagewright_arch::Effects::complete
    fn invlpgb(&self, target: InvalidateTarget) {
        assert!(self.0.config.invlpgb, "no broadcast invalidation on this x86-64 machine: {target:?}");
        self.drain_local_stores();
        if self.0.exploring.get() {
            self.issue_broadcast(target);
        } else {
            self.online_cores().for_each(|core| drop_invlpgb(core, target));
        }
        let core = self.here();
        core.incomplete_tlbis.set(core.incomplete_tlbis.get() + 1);
    }

    fn invalidate_aarch64(&self, scope: InvalidateScope, target: InvalidateTarget) {
        let core = self.here();
        let costs = &self.profile().costs;
        core.events.add(MachineEvent::TlbisIssued, 1);
        core.pay(costs, Cost::Tlbi);
        assert!(
            self.0.caps.range_invalidate || !matches!(target, InvalidateTarget::Range { .. }),
            "no FEAT_TLBIRANGE on this machine: {target:?}"
        );
        match scope {
            InvalidateScope::Local => {
                drop_aarch64(core, target);
                self.cancel_local_walks(target);
                self.drain_local_stores();
                core.events.add(if is_full(target) { MachineEvent::FullFlushes } else { MachineEvent::PageFlushes }, 1);
                core.events.add(MachineEvent::Dsbs, 1);
                core.pay(costs, Cost::DsbLocal);
            }
            InvalidateScope::Broadcast => {
                if self.0.exploring.get() {
                    self.issue_broadcast(target);
                } else {
                    self.online_cores().for_each(|core| drop_aarch64(core, target));
                }
                core.incomplete_tlbis.set(core.incomplete_tlbis.get() + 1);
                // INV-SIM-TLBI-QUEUE: one completes after the other.
                let begins = core.clock().max(core.tlbis_complete_at.get());
                core.tlbis_complete_at.set(begins + costs.of(Cost::TlbiComplete));
            }
        }
    }

    /// Drops the entries of `tag` on the current CPU, except global ones, when a root is installed.
    pub(crate) fn drop_tag_here(&self, tag: Tag) {
        let core = self.here();
        let lost = drop_pattern(&mut core.tlbs.borrow_mut(), Pattern::tag(tag));
        core.count_flush(lost);
        core.events.add(MachineEvent::FullFlushes, 1);
    }
}

fn is_full(target: InvalidateTarget) -> bool {
    match target {
        InvalidateTarget::Page { .. } | InvalidateTarget::Range { .. } | InvalidateTarget::PageOfAllTags { .. } => {
            false
        }
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
    }
}

fn drop_pattern(tlbs: &mut Tlbs, pattern: Pattern) -> u64 {
    tlbs.drop_walk_caches(pattern);
    tlbs.drop_all(pattern)
}

/// Removes from one CPU the entries that a TLBI names.
pub(crate) fn drop_aarch64(core: &Core, target: InvalidateTarget) {
    let mut tlbs = core.tlbs.borrow_mut();
    let lost = match target {
        InvalidateTarget::Page { tag, va, level, last_level } => {
            drop_page_aarch64(&mut tlbs, tag, va, level, last_level)
        }
        InvalidateTarget::Range { tag, range, level, last_level }
            if range.len() >> stride(level, last_level) <= SWEEP_ABOVE =>
        {
            let shift = stride(level, last_level);
            let entries = range.start().raw() >> shift..range.end().raw().div_ceil(1 << shift);
            let mut drop_entry =
                |entry: u64| drop_page_aarch64(&mut tlbs, tag, VirtAddr::new(entry << shift), level, last_level);
            entries.map(&mut drop_entry).sum()
        }
        InvalidateTarget::Range { tag, range, level, last_level } => {
            if !last_level {
                tlbs.drop_walk_caches_where(|key| covers(key, tag, range));
            }
            tlbs.drop_where(|key| covers(key, tag, range) && (!last_level || key.level() == level))
        }
        InvalidateTarget::Tag(tag) => drop_pattern(&mut tlbs, Pattern::tag(tag)),
        InvalidateTarget::PageOfAllTags { va, level, last_level } => {
            if !last_level {
                tlbs.drop_walk_caches_where(|key| translates(key, va));
            }
            tlbs.drop_where(|key| translates(key, va) && (!last_level || key.level() == level))
        }
        InvalidateTarget::AllTags | InvalidateTarget::Everything => drop_pattern(&mut tlbs, Pattern::ALL),
    };
    drop(tlbs);
    core.count_flush(lost);
}

/// Removes from one CPU the entries that an INVLPGB names.
pub(crate) fn drop_invlpgb(core: &Core, target: InvalidateTarget) {
    let mut tlbs = core.tlbs.borrow_mut();
    let lost = match target {
        InvalidateTarget::Page { tag, va, last_level, .. } => {
            if !last_level {
                tlbs.drop_walk_caches_of(tag, va);
            }
            tlbs.drop_page(tag, va, None, false)
        }
        InvalidateTarget::Range { tag, range, last_level, .. } => {
            let named = |key: Key| !key.is_global() && covers(key, tag, range);
            if !last_level {
                tlbs.drop_walk_caches_where(named);
            }
            tlbs.drop_where(named)
        }
        InvalidateTarget::PageOfAllTags { va, last_level, .. } => {
            if !last_level {
                tlbs.drop_walk_caches_where(|key| translates(key, va));
            }
            tlbs.drop_where(|key| translates(key, va))
        }
        InvalidateTarget::Tag(tag) => drop_pattern(&mut tlbs, Pattern::tag(tag)),
        InvalidateTarget::AllTags => drop_pattern(&mut tlbs, Pattern::NOT_GLOBAL),
        InvalidateTarget::Everything => drop_pattern(&mut tlbs, Pattern::ALL),
    };
    drop(tlbs);
    core.count_flush(lost);
}

fn drop_page_aarch64(tlbs: &mut Tlbs, tag: Tag, va: VirtAddr, level: Level, last_level: bool) -> u64 {
    if !last_level {
        tlbs.drop_walk_caches_of(tag, va);
    }
    tlbs.drop_page(tag, va, last_level.then_some(level), true)
}

/// The shift of the step between the addresses of a range that may each have a translation.
fn stride(level: Level, last_level: bool) -> u32 {
    if last_level { level.shift() } else { level.of_same_tree(Level::PTE.raw()).shift() }
}

/// Whether the entry of `key` translates `va`, under whatever tag.
fn translates(key: Key, va: VirtAddr) -> bool {
    key.start() == va.align_down(key.level().span())
}

fn covers(key: Key, tag: Tag, range: PageRange) -> bool {
    let end = key.start().add(key.level().span());
    key.is_valid_under(tag) && key.start() < range.end() && range.start() < end
}
