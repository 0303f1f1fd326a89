//! Spaces that share page tables, and what an edit for all of them must flush.
//!
//! An edit of a shared table holds for every space that reaches the table, so its flush must reach
//! every CPU that runs one of them. A [`Family`] lists these spaces. It may list more: a space
//! stays from the fork by which it began to share until it ends.
//!
//! Key types: [`Family`]; [`FamilyToken`], the permission to edit for all members.
//!
//! **INV-FAMILY-FLUSH** An edit of a shared table is flushed in every space of its family. A space
//! joins before its first entry is shared, and leaves after the flush of the last table that it
//! left. An operation that edits many entries for all sharers waits once for all of them.
//!
//! An editor holds the token from before its edit until the flush is recorded for each member. So
//! no CPU runs a space that reaches the table and is not flushed.
//!
//! Neighbours: `table` edits shared tables; [`crate::Batch`] and [`Debt::settle`] flush.
//!
//! Not guaranteed: that a member shares any particular table.

use crate::context::TlbContext;
use crate::debt::Debt;
use crate::defer::{Batch, LazyBatch};
use crate::detached::IntoDetachedPieces;
use crate::region::{Region, RegionSet};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Arc, Platform, ReadGuard, RwLock, rank::FamilyRank};
use pagewright_types::{Level, PageRange, Pfn, SpaceId};

/// The spaces that may share page tables with each other.
pub struct Family<P: Platform> {
    members: RwLock<Vec<Arc<TlbContext>>, FamilyRank, P::Locks>,
    /// The regions in which an edit of a shared table was ever announced, a bit for each.
    edited: AtomicU64,
    /// Edits that tables of each region have noted for all sharers.
    noted: [AtomicU64; Region::COUNT],
}

impl<P: Platform> Family<P> {
    /// Creates a family without members.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new() -> Result<Arc<Self>, AllocError> {
        Arc::try_new(Self {
            members: RwLock::new(Vec::new()),
            edited: AtomicU64::new(0),
            noted: [const { AtomicU64::new(0) }; Region::COUNT],
        })
    }

    /// Adds a space, before the first entry that it shares.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted; it is no member then.
    pub fn join(&self, context: &Arc<TlbContext>) -> Result<(), AllocError> {
        let mut members = self.members.write();
        members.try_reserve(1).map_err(|_| AllocError { bytes: size_of::<Arc<TlbContext>>() })?;
        members.push(context.clone());
        Ok(())
    }

    /// Removes a space that shares no table any more; no CPU has a translation by one.
    pub fn leave(&self, id: SpaceId) {
        self.members.write().retain(|member| member.id() != id);
    }

    /// The permission to edit shared tables; while it is held, no member joins or leaves.
    pub fn token(&self) -> FamilyToken<'_, P> {
        FamilyToken { family: self, members: self.members.read() }
    }

    /// The regions of all edits for all members that were [announced](FamilyToken::announce_edit).
    ///
    /// After a store to a pointer: a region is not among them only if every later edit for all in
    /// it sees that store.
    pub fn edited(&self) -> RegionSet {
        // Pairs with the fence of an announcement.
        fence(Ordering::SeqCst);
        RegionSet::from_bits(self.edited.load(Ordering::Relaxed))
    }

    /// Counts an edit for all sharers, after its table has noted what it changes.
    pub fn count_noted(&self, region: Region) {
        self.noted[region.index()].fetch_add(1, Ordering::Release);
    }

    /// The edits that tables of a region have noted; what they noted before is visible afterwards.
    pub fn noted(&self, region: Region) -> u64 {
        self.noted[region.index()].load(Ordering::Acquire)
    }
}

/// The permission to edit a shared table for every space that shares it.
///
/// Only [`Family::token`] gives it.
pub struct FamilyToken<'f, P: Platform> {
    family: &'f Family<P>,
    members: ReadGuard<'f, Vec<Arc<TlbContext>>, FamilyRank, P::Locks>,
}

impl<P: Platform> FamilyToken<'_, P> {
    /// The number of members.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Announces edits of entries of `range` for all members, before pointers to them are read.
    pub fn announce_edit(&self, range: PageRange) {
        let (edited, regions) = (&self.family.edited, RegionSet::of(range).bits());
        if regions & !edited.load(Ordering::Relaxed) != 0 {
            edited.fetch_or(regions, Ordering::Relaxed);
        }
        // Either the other side sees the announcement, or this one sees its pointer.
        fence(Ordering::SeqCst);
    }

    /// Adds to `batch` what each member owes of the entries of `table`.
    pub fn absorb_pending(&self, batch: &mut Batch<'_, P>, table: Pfn) {
        batch.absorb_pending_of(&self.members, table);
    }

    /// The members other than the one through which the table was found.
    fn others<'a>(&'a self, context: &TlbContext) -> impl Iterator<Item = &'a Arc<TlbContext>> + Clone + use<'a, P> {
        let me = context.id();
        let told = plant!(FamilyForgotten; 0, self.members.len());
        self.members.iter().take(told).filter(move |member| member.id() != me)
    }
}

/// The debt of an edit of a shared table, which every member of the family owes.
#[must_use = "an edit of a shared table owes a flush in every member of its family"]
pub struct FamilyDebt<'f, 't, P: Platform, T: IntoDetachedPieces> {
    /// None if the space never shared a table, and owes alone.
    token: Option<&'f FamilyToken<'f, P>>,
    /// None once it was taken to be settled.
    debt: Option<Debt<'t, P, T>>,
}

impl<'f, 't, P: Platform, T: IntoDetachedPieces> FamilyDebt<'f, 't, P, T> {
    /// Makes a debt of one member one of all members, or leaves it to a space without a family.
    pub fn new(token: Option<&'f FamilyToken<'f, P>>, debt: Debt<'t, P, T>) -> Self {
        Self { token, debt: Some(debt) }
    }

    /// Takes the debt apart; the caller now owes the flush of each member.
    #[inline]
    fn dissolve(mut self) -> (Option<&'f FamilyToken<'f, P>>, Debt<'t, P, T>) {
        (self.token, self.debt.take().expect("a live debt of a family holds that of a member"))
    }

    /// The value that the edit detached.
    pub fn detached(&self) -> &T {
        self.debt.as_ref().expect("a live debt of a family holds that of a member").detached()
    }

    /// Defers the flush of each member to `batch`, which takes what the edit detached.
    ///
    /// `context` is the space through which the table was found. The caller still holds the lock of
    /// the table. The flush of a huge leaf that several spaces map is not deferred, because gathers
    /// do not meet its table.
    pub fn absorb_into(self, batch: &mut Batch<'_, P>, context: &Arc<TlbContext>) {
        let (token, debt) = self.dissolve();
        match token {
            Some(_) if debt.level().is_some_and(|level| level > Level::PTE) => Self::new(token, debt).settle(),
            Some(token) => batch.absorb_of_family(context, token.others(context), debt),
            None => batch.absorb(context, debt),
        }
    }

    /// Lets the translation linger if it may, and returns whether it does.
    ///
    /// Otherwise as [`absorb_into`](Self::absorb_into).
    pub fn absorb_lazily(self, lazy: &mut LazyBatch<'_, P>, context: &Arc<TlbContext>) -> bool {
        let (token, debt) = self.dissolve();
        match lazy.try_linger(context, token.is_some(), debt) {
            Ok(()) => true,
            Err(debt) => {
                Self::new(token, debt).absorb_into(lazy.batch(), context);
                false
            }
        }
    }

    /// Flushes every member, then frees what was detached.
    pub fn settle(self) {
        let (token, debt) = self.dissolve();
        for member in token.into_iter().flat_map(|token| token.others(debt.context())) {
            debt.also_of(member).settle();
        }
        debt.settle();
    }
}

impl<P: Platform, T: IntoDetachedPieces> Drop for FamilyDebt<'_, '_, P, T> {
    fn drop(&mut self) {
        let (Some(debt), Some(token)) = (&mut self.debt, self.token) else { return };
        plant!(DroppedOfOneMember => return);
        let context = debt.context();
        debt.abandon(token.others(context).map(|member| &**member));
    }
}
