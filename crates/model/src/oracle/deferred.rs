//! O2: what a deferred loss of a right excuses, and what must not happen meanwhile.
//!
//! A mechanism may keep read-only translations of a page in TLBs after their entry is gone
//! ([`Fact::RightDeferred`](pagewright_types::judge::Fact::RightDeferred)). That opens a window for
//! this page at these addresses. No declaration closes it. It is over once no TLB has such a
//! translation, and each of these events requires that it is:
//!
//! - a store to the page, by a program or the kernel, through whatever mapping, once the page has
//!   another frame, too: before that, the translation shows what was stored;
//! - an entry in the range that maps another frame, unless that is a copy and has equal contents;
//! - truncation of the page, or another page in its place
//!   ([`Fact::PageReplaced`](pagewright_types::judge::Fact::PageReplaced));
//! - the return of a call that takes rights in the range, other than the call that opened it, if a
//!   TLB has more than the rights that it leaves; and of any call that leaves the address empty or
//!   maps the same frame: then it is munmap, mremap, mprotect or madvise, whose effect a program
//!   relies on when they return. A window that another CPU opened during the call is not judged:
//!   the page may have come after what the call removed;
//! - the allocation of the frame, which O1 judges. When the frame of the copy is allocated, the
//!   window stays open, and that frame is not the page any more.
//!
//! A page may move again while a window of it is open, if the second window is declared before the
//! entry of the second copy is stored. The two are linked, by their page and a frame: both accept
//! either copy, a store to any of the frames ends both, and the return of the second move ends
//! neither.
//!
//! A translation that no CPU can use at the event is condemned.

use super::Oracle;
use super::condemned::{Stale, StaleReason};
use super::windows::{Taken, Window, WindowId};
use crate::tally::Antecedent;
use crate::violation::{CpuStep, DeferralEnd, Reduction, Rule, ViolationKind};
use crate::walk::{self, PathRights};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, MemoryAccess, Witness};
use pagewright_types::{Access, FrameRange, PAGE_SIZE, PageRange, Pfn, PhysAddr, Rights, VirtAddr};

/// What the tables map in the range of a window.
enum MappedPage {
    /// Nothing, the frame of the window, or its copy with equal contents.
    Expected,
    /// A copy that a later move has made, with equal contents.
    LaterCopy,
    /// Another page, or a copy that differs.
    Other,
}

impl Oracle {
    /// Opens a window, and judges that no CPU can store through what it excuses.
    pub(super) fn right_deferred(&mut self, witness: &dyn Witness, window: Window) {
        let mut held = Vec::new();
        witness.cached_in(window.range, &mut |cached| {
            if cached.root == window.root {
                held.push(cached);
            }
        });
        if window.page.is_some() && held.iter().any(|cached| self.keeps(witness, &window, cached)) {
            self.tally.note(Antecedent::RightDeferred);
        }
        held.retain(|cached| self.lets_store(witness, &window, cached));
        // A call took the right from what is condemned, or is taking it; the CPU must invalidate it
        // before it can use it.
        let condemned = |cached: &CachedEntry| cached.state == CachedEntryState::Condemned;
        if let Some(writer) = held.iter().find(|cached| !condemned(cached)) {
            self.report_deferred(window, *writer, DeferralEnd::Opened);
            return;
        }
        held.retain(|cached| !self.condemned.is_watched_for_stores(cached));
        held.into_iter().for_each(|held| self.watch_deferred(&window, held, Rights::RX));
        let id = self.windows.open(window);
        self.judge_mapped(witness, id);
    }

    fn report_deferred(&mut self, window: Window, held: CachedEntry, end: DeferralEnd) {
        let Window { frame, copy, by, .. } = window;
        self.step += 1;
        self.report(held.cpu, Rule::Rights, ViolationKind::DeferredTooLong { held, frame, copy, opened: by, end });
    }

    /// Whether `held` is a translation to the page that the tables do not grant.
    fn keeps(&self, witness: &dyn Witness, window: &Window, held: &CachedEntry) -> bool {
        let CachedEntryKind::Translation { pfn, rights } = held.kind else { return false };
        held.root == window.root
            && held.range().intersect(window.range).is_some_and(|pages| {
                pages.iter().any(|page| {
                    let frame = walk::frame_under(pfn, held.level, page);
                    frame == window.frame_of(window.frame, page)
                        && !self.tables_allow(witness, window.root, page, frame, rights)
                })
            })
    }

    /// Whether a store through `held`, or through a walk from it, reaches the page.
    fn lets_store(&self, witness: &dyn Witness, window: &Window, held: &CachedEntry) -> bool {
        let (table, allows, level) = match held.kind {
            CachedEntryKind::Translation { rights, .. } => {
                return rights.contains(Rights::WRITE) && self.keeps(witness, window, held);
            }
            CachedEntryKind::Table { table, allows } => match held.level.down() {
                Some(level) => (table, allows, level),
                None => return false,
            },
            CachedEntryKind::Walk { table, allows } => (table, allows, held.level),
        };
        let Some(range) = held.range().intersect(window.range) else { return false };
        let below = (table, level, PathRights::ROOT.limited_to(allows));
        walk::leaves_below(self.isa, below, range, &|at| witness.word(at), &mut |leaf| {
            let pages = leaf.range().intersect(range)?;
            let reaches = |page: &VirtAddr| leaf.frame_at(*page) == window.frame_of(window.frame, *page);
            (leaf.rights.contains(Rights::WRITE) && pages.iter().any(|page| reaches(&page))).then_some(())
        })
        .is_some()
    }

    /// Ends windows: no TLB may have what they excused.
    fn end_windows(&mut self, witness: &dyn Witness, end: DeferralEnd, ids: impl IntoIterator<Item = WindowId>) {
        let ended: Vec<Window> = ids.into_iter().filter_map(|id| self.windows.close(id)).collect();
        for window in ended {
            if window.page.is_some() {
                ended_by(&end).into_iter().for_each(|by| self.note_ended(by));
            }
            let mut held = Vec::new();
            witness.cached_in(window.range, &mut |cached| held.push(cached));
            held.retain(|cached| self.keeps(witness, &window, cached));
            let usable = |cached: &&CachedEntry| cached.state == CachedEntryState::Usable;
            if let Some(cached) = held.iter().find(usable) {
                self.report_deferred(window, *cached, end);
                continue;
            }
            held.into_iter().for_each(|held| self.watch_deferred(&window, held, Rights::empty()));
        }
    }

    /// Watches what no CPU can use yet: it must not allow more than `left` once one can.
    fn watch_deferred(&mut self, window: &Window, held: CachedEntry, left: Rights) {
        let Window { root, range, by, .. } = *window;
        let reduction = Reduction { root, range, left, by };
        let returned = CpuStep { cpu: by.cpu, step: self.step };
        self.condemned.watch(Stale { held, reason: StaleReason::Reduced { reduction, returned } });
    }

    fn note_ended(&mut self, by: Antecedent) {
        self.tally.note(Antecedent::DeferralEnded);
        self.tally.note(by);
    }

    #[cold]
    pub(super) fn deferred_access(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        let frame = Pfn::containing(made.at);
        if !self.windows.has_frame(frame) {
            return;
        }
        if made.access == Access::Write {
            let stored = self.windows.outdated_by(FrameRange::new(frame, frame.add(1)));
            self.end_windows(witness, DeferralEnd::Stored(made), stored);
        } else if made.cached {
            let page = PageRange::page(made.va).start();
            if self.windows.excuse_moved(made.root, page, frame)
                && !self.tables_allow(witness, made.root, page, frame, made.access.needs())
            {
                self.tally.note(Antecedent::StaleHit);
            }
        }
    }

    pub(super) fn deferred_written(&mut self, witness: &dyn Witness, frames: FrameRange) {
        self.end_windows(witness, DeferralEnd::Written, self.windows.outdated_by(frames));
        // A table may be among them.
        self.windows.below(frames).into_iter().for_each(|id| self.judge_mapped(witness, id));
    }

    pub(super) fn deferred_replaced(&mut self, witness: &dyn Witness, ids: BTreeSet<WindowId>) {
        self.end_windows(witness, DeferralEnd::Replaced, ids);
    }

    /// An entry was stored: ends the windows in whose range another page is mapped now.
    #[cold]
    pub(super) fn deferred_stored(&mut self, witness: &dyn Witness, at: PhysAddr) {
        self.windows.served_by(at).into_iter().for_each(|id| self.judge_mapped(witness, id));
    }

    /// The window was opened, or the tables of its addresses have changed.
    fn judge_mapped(&mut self, witness: &dyn Witness, id: WindowId) {
        let Some(window) = self.windows.get(id) else { return };
        let lost = self.windows.set_entries(id, self.entries_read(witness, &window));
        self.note_unhooked(witness, &window, lost);
        match self.mapped_page(witness, id, &window) {
            MappedPage::Expected => {}
            MappedPage::LaterCopy if window.page.is_some() && self.is_held(witness, &window) => {
                self.tally.note(Antecedent::MovedAgain);
            }
            MappedPage::LaterCopy => {}
            MappedPage::Other => self.end_windows(witness, DeferralEnd::Mapped, [id]),
        }
    }

    /// Where the entries are that walks of the addresses of a window read.
    fn entries_read(&self, witness: &dyn Witness, window: &Window) -> Vec<PhysAddr> {
        let read = |at| witness.stored(at);
        let each = window.range.iter().flat_map(|page| walk::entries_read(self.format(), window.root, page, &read));
        let mut entries: Vec<PhysAddr> = each.collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }

    fn mapped_page(&self, witness: &dyn Witness, id: WindowId, window: &Window) -> MappedPage {
        let mut mapped = MappedPage::Expected;
        for page in window.range.iter() {
            let leaf = walk::lookup(self.format(), window.root, page, &|at| witness.stored(at));
            let Some(frame) = leaf.map(|leaf| leaf.frame_at(page)) else { continue };
            let old = window.frame_of(window.frame, page);
            if frame == old {
                continue;
            }
            if !self.windows.holds(id, page, frame) || !same_contents(witness, PAGE_SIZE, old, frame) {
                return MappedPage::Other;
            }
            if window.copy.is_none_or(|copy| window.frame_of(copy, page) != frame) {
                mapped = MappedPage::LaterCopy;
            }
        }
        mapped
    }

    /// Whether a TLB has the translation that the window lets it keep.
    pub(super) fn is_held(&self, witness: &dyn Witness, window: &Window) -> bool {
        let mut held = false;
        witness.cached_in(window.range, &mut |cached| held = held || self.keeps(witness, window, &cached));
        held
    }

    /// The call of `returned` is about to return, and took `reduction`.
    pub(super) fn deferred_returned(&mut self, witness: &dyn Witness, reduction: &Reduction, returned: CpuStep) {
        for id in self.windows.in_range(reduction.root, reduction.range) {
            let Some(window) = self.windows.get(id).filter(|window| window.page.is_some()) else { continue };
            // Another call takes the page from the program, and is judged when it returns.
            let reads = |page| self.reductions.excuses(reduction.root, page, Rights::READ, Some(returned.cpu));
            if window.range.iter().any(reads) {
                continue;
            }
            // The call that took this reduction opened the window, or has moved the page again.
            let own = self.windows.opened_since(id, returned.cpu, reduction.by.step);
            // The page may have been mapped after this call had done its part there.
            let later = window.by.step >= reduction.by.step;
            let permitted = || reduction.left.contains(Rights::READ) && !self.exceeds(witness, &window, reduction.left);
            if !own && later || (own || permitted()) && !self.is_visible(witness, &window) {
                continue;
            }
            self.end_windows(witness, DeferralEnd::Returned(returned), [id]);
        }
    }

    /// Whether a CPU can use more than the rights `left` to the page, where the window lets it.
    ///
    /// What is condemned is judged by the call that took its rights.
    fn exceeds(&self, witness: &dyn Witness, window: &Window, left: Rights) -> bool {
        let mut exceeds = false;
        witness.cached_in(window.range, &mut |cached| {
            let CachedEntryKind::Translation { rights, .. } = cached.kind else { return };
            let is_usable = cached.state != CachedEntryState::Condemned;
            exceeds |= is_usable && !left.contains(rights) && self.keeps(witness, window, &cached);
        });
        exceeds
    }

    /// Whether a program can rely on the loss of the right: the address is empty, or has the frame.
    fn is_visible(&self, witness: &dyn Witness, window: &Window) -> bool {
        window.range.iter().any(|page| {
            let (raw, level) = walk::entry(self.format(), window.root, page, &|at| witness.stored(at));
            raw == 0 || walk::frame_field(self.isa, level, raw) == Some(window.frame_of(window.frame, page))
        })
    }

    /// The frames were allocated; O1 has judged them.
    pub(super) fn deferred_taken(&mut self, witness: &dyn Witness, frames: FrameRange) {
        let Taken { over, left } = self.windows.take(frames);
        for _ in over.iter().filter(|window| window.page.is_some()) {
            self.note_ended(Antecedent::DeferralTaken);
            if frames.frames() > 1 {
                self.tally.note(Antecedent::LargeTaken);
            }
        }
        for window in left.iter().filter(|window| window.page.is_some()) {
            if self.is_held(witness, window) {
                self.tally.note(Antecedent::CopyTaken);
            }
        }
    }
}

/// The count of windows that `end` ends; `None` if the window did not open.
fn ended_by(end: &DeferralEnd) -> Option<Antecedent> {
    match end {
        DeferralEnd::Opened => None,
        DeferralEnd::Stored(_) => Some(Antecedent::DeferralStored),
        DeferralEnd::Written => Some(Antecedent::DeferralWritten),
        DeferralEnd::Mapped => Some(Antecedent::DeferralMapped),
        DeferralEnd::Replaced => Some(Antecedent::DeferralReplaced),
        DeferralEnd::Returned(_) => Some(Antecedent::DeferralReturned),
    }
}

/// Whether `bytes` bytes from one frame on are the same as from another one on.
pub(super) fn same_contents(witness: &dyn Witness, bytes: u64, one: Pfn, other: Pfn) -> bool {
    let word = |frame: Pfn, offset: u64| witness.stored(PhysAddr::new(frame.base().raw() + offset));
    (0..bytes).step_by(8).all(|offset| word(one, offset) == word(other, offset))
}
