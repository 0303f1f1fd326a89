//! One mapping of an address space, and its flags.
//!
//! **INV-VMA-INHERITED** A mapping with pages that its process has from its parent does not merge
//! with one that the process made: on Linux its `anon_vma_chain` has more than one entry.

use crate::file::FileObject;
use crate::policy::MemPolicy;
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_arch::LeafFlags;
use pagewright_btree::{Gaps, TreeItem};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_table::Mlocked;
use pagewright_types::{Access, FileId, PageRange, Rights, VirtAddr};

bitflags::bitflags! {
    /// The flags of a mapping, without its rights: `VM_*` of `include/linux/mm.h`.
    ///
    /// The values are Linux's, except that of [`VmFlags::SEALED`], which Linux has above the low 32
    /// bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct VmFlags: u32 {
        /// A shared mapping of a file that was opened for writing, or of shared memory.
        const SHARED = 0x8;
        /// A shared mapping: stores go to the file, not to copies.
        const MAYSHARE = 0x80;
        /// A stack: an access below the mapping grows it.
        const GROWSDOWN = 0x100;
        /// Its pages stay resident (`mlock`).
        const LOCKED = 0x2000;
        /// The program will access the pages in order (`MADV_SEQUENTIAL`).
        const SEQ_READ = 0x8000;
        /// The program will access the pages in random order (`MADV_RANDOM`).
        const RAND_READ = 0x1_0000;
        /// Fork does not copy the mapping (`MADV_DONTFORK`).
        const DONTCOPY = 0x2_0000;
        /// With `LOCKED`: a page is locked when it is first accessed (`MLOCK_ONFAULT`).
        const LOCKONFAULT = 0x8_0000;
        /// The pages are charged, because the mapping is or was private and writable.
        ///
        /// The flag stays if the mapping becomes read-only, and then prevents merges: the read-only
        /// data of a library is not merged with pages that were relocated and then made read-only.
        const ACCOUNT = 0x10_0000;
        /// The mapping was requested with `MAP_NORESERVE`.
        const NORESERVE = 0x20_0000;
        /// The mapping was requested with `MAP_SYNC`.
        const SYNC = 0x80_0000;
        /// Core dumps omit the mapping (`MADV_DONTDUMP`).
        const DONTDUMP = 0x400_0000;
        /// The mapping is empty in a child (`MADV_WIPEONFORK`).
        const WIPEONFORK = 0x200_0000;
        /// All pages count as written since soft-dirty bits were last cleared.
        const SOFTDIRTY = 0x800_0000;
        /// Huge pages where the setting is `madvise` (`MADV_HUGEPAGE`).
        const HUGEPAGE = 0x2000_0000;
        /// No huge pages (`MADV_NOHUGEPAGE`, and a mapping requested with `MAP_STACK`).
        const NOHUGEPAGE = 0x4000_0000;
        /// The mapping cannot be unmapped, moved, replaced or given other rights (`mseal`).
        const SEALED = 0x8000_0000;
    }
}

impl VmFlags {
    /// The flags that `mlock` sets and `munlock` clears (`VM_LOCKED_MASK`).
    pub const LOCK_MASK: Self = Self::LOCKED.union(Self::LOCKONFAULT);
    /// The flags that may differ between neighbours that are merged (`VM_IGNORE_MERGE`).
    ///
    /// The merged mapping has a flag if either neighbour had it.
    pub(crate) const IGNORED_BY_MERGE: Self = Self::SOFTDIRTY;
}

/// One mapping of an address space (`vm_area_struct`).
///
/// Its first page is its key in the [`crate::space::AddressMap`].
///
/// The space's `map` lock protects the fields. Faults set `has_anon` while they hold it for
/// reading.
pub struct Vma<P: Platform> {
    end: u64,
    pgoff: u64,
    linear_index: u64,
    /// Pages of the guard gap below it; 0 unless it grows down.
    guard: u32,
    rights: Rights,
    max_rights: Rights,
    flags: VmFlags,
    /// Its file or shared memory; `None` if it is anonymous: zeroes until written.
    file: Option<Arc<FileObject<P>>>,
    /// On which nodes its pages are allocated (`vm_policy`).
    policy: MemPolicy,
    /// Whether an anonymous page was ever mapped in it (`vma->anon_vma`).
    ///
    /// If so, fork copies its entries; otherwise the child faults its pages in again.
    has_anon: AtomicBool,
    /// The forks that its anonymous pages may be older than; 0 if its process made it.
    ///
    /// On Linux, its `anon_vma_chain` has one element more.
    fork_depth: u32,
}

impl<P: Platform> Vma<P> {
    /// Creates a mapping of the pages `start..end`, which begins at page `pgoff` of its file.
    ///
    /// All its pages count as written (INV-SOFT-DIRTY).
    pub(crate) fn new(
        (start, end): (u64, u64),
        pgoff: u64,
        rights: Rights,
        max_rights: Rights,
        flags: VmFlags,
        file: Option<Arc<FileObject<P>>>,
    ) -> Self {
        let flags = flags | VmFlags::SOFTDIRTY;
        let pgoff = if file.is_none() { start } else { pgoff };
        Self {
            end,
            pgoff,
            linear_index: start,
            guard: 0,
            rights,
            max_rights,
            flags,
            file,
            policy: MemPolicy::DEFAULT,
            has_anon: AtomicBool::new(false),
            fork_depth: 0,
        }
    }

    /// Returns the page index after its last page (`vm_end`).
    pub fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    /// Returns the page of the file at which it begins (`vm_pgoff`).
    ///
    /// In an anonymous mapping, it is the linear page index.
    pub fn pgoff(&self) -> u64 {
        self.pgoff
    }

    /// Returns the index that the reverse map has for an anonymous page at its first address.
    ///
    /// It is the page index that the mapping had when its first anonymous page was mapped. Linux
    /// has it in `vm_pgoff` of anonymous mappings, and uses the file's index in private file
    /// mappings.
    pub fn linear_index(&self) -> u64 {
        self.linear_index
    }

    /// Returns whether its anonymous pages have another index than their present page index.
    pub(crate) fn is_moved(&self, start: u64) -> bool {
        !self.is_shared() && self.linear_index != start
    }

    /// Moves its start down by `pages` pages.
    pub(crate) fn extend_down(&mut self, pages: u64) {
        self.pgoff -= pages;
        self.linear_index -= pages;
    }

    /// Sets the length in pages of the guard gap below it, if it grows down.
    pub(crate) fn set_guard(&mut self, pages: u64) {
        self.guard = if self.grows_down() { pages as u32 } else { 0 };
    }

    /// Returns the rights of the program (`VM_READ`, `VM_WRITE`, `VM_EXEC`).
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Sets the rights, and updates whether its pages are charged.
    pub(crate) fn set_rights(&mut self, rights: Rights) {
        self.flags = self.flags_with(rights);
        self.rights = rights;
    }

    /// Returns the flags that it would have with `rights` (`mprotect_fixup`).
    ///
    /// Its pages are charged from the time when it first becomes writable. They are no longer
    /// charged if it becomes read-only before any page is mapped.
    pub(crate) fn flags_with(&self, rights: Rights) -> VmFlags {
        if rights.contains(Rights::WRITE) {
            let charged = !self.flags.intersects(VmFlags::MAYSHARE | VmFlags::NORESERVE);
            if charged { self.flags | VmFlags::ACCOUNT } else { self.flags }
        } else if self.file.is_none() && !self.has_anon() {
            self.flags - VmFlags::ACCOUNT
        } else {
            self.flags
        }
    }

    /// Returns the rights of a leaf in it that has `flags` (`can_change_pte_writable`).
    ///
    /// The leaf may be writable only if no store must fault first: to copy a page that is not
    /// exclusive, to mark a file page as dirty, or to set the soft-dirty bit where it is tracked.
    pub(crate) fn leaf_rights(&self, flags: LeafFlags) -> Rights {
        let mut known = if self.is_shared() { LeafFlags::DIRTY } else { LeafFlags::EXCLUSIVE };
        known.set(LeafFlags::SOFT_DIRTY, !self.flags.contains(VmFlags::SOFTDIRTY));
        let rights = self.rights.readable();
        if flags.contains(known) { rights } else { rights - Rights::WRITE }
    }

    /// Returns the greatest rights that `mprotect` may give it (`VM_MAY*`).
    pub fn max_rights(&self) -> Rights {
        self.max_rights
    }

    /// Returns its flags.
    pub fn flags(&self) -> VmFlags {
        self.flags
    }

    pub(crate) fn set_flags(&mut self, flags: VmFlags) {
        self.flags = flags;
    }

    /// Returns its memory policy.
    pub fn policy(&self) -> MemPolicy {
        self.policy
    }

    pub(crate) fn set_policy(&mut self, policy: MemPolicy) {
        self.policy = policy;
    }

    /// Returns whether its pages are locked, as the entry layer accounts for them.
    pub(crate) fn mlocked(&self) -> Mlocked {
        Mlocked(self.flags.contains(VmFlags::LOCKED))
    }

    /// Returns whether it is a shared mapping.
    pub fn is_shared(&self) -> bool {
        self.flags.contains(VmFlags::MAYSHARE)
    }

    /// Returns whether stores can go to its file, now or after `mprotect`.
    ///
    /// Linux: `vma_is_shared_maywrite`.
    pub(crate) fn may_store_to_file(&self) -> bool {
        self.is_shared() && self.max_rights.contains(Rights::WRITE)
    }

    /// Returns whether stores can go to private copies, now or after `mprotect` (`is_cow_mapping`).
    pub(crate) fn is_cow(&self) -> bool {
        !self.is_shared() && self.max_rights.contains(Rights::WRITE)
    }

    /// Returns whether a debugger may access it without regard to its rights (`FOLL_FORCE`).
    ///
    /// A forced store is possible only if it goes to a private copy.
    pub(crate) fn may_be_forced(&self, access: Access) -> bool {
        match access {
            Access::Write => self.is_cow(),
            Access::Read | Access::Exec => self.max_rights.contains(Rights::READ),
        }
    }

    /// Returns whether fork copies its page-table entries.
    pub(crate) fn is_copied_with_entries(&self) -> bool {
        self.has_anon() && !self.flags.intersects(VmFlags::DONTCOPY | VmFlags::WIPEONFORK)
    }

    /// Returns whether fork may share the page tables of its range.
    ///
    /// A child does not get it, gets it empty, or has no locked memory.
    pub(crate) fn may_share_tables(&self) -> bool {
        !self.flags.intersects(VmFlags::DONTCOPY | VmFlags::WIPEONFORK | VmFlags::LOCKED)
    }

    /// Returns whether an access below it grows it.
    pub fn grows_down(&self) -> bool {
        self.flags.contains(VmFlags::GROWSDOWN)
    }

    /// Returns its file or shared memory; `None` if it is anonymous.
    pub fn file(&self) -> Option<&Arc<FileObject<P>>> {
        self.file.as_ref()
    }

    pub(crate) fn file_id(&self) -> Option<FileId> {
        self.file().map(|file| file.id())
    }

    /// Returns whether an anonymous page was ever mapped in it.
    pub fn has_anon(&self) -> bool {
        self.has_anon.load(Ordering::Relaxed)
    }

    /// Returns the number of forks that its anonymous pages may be older than.
    pub fn fork_depth(&self) -> u32 {
        self.fork_depth
    }

    /// Records that an anonymous page is about to be mapped in it (`anon_vma_prepare`).
    pub(crate) fn note_anon(&self) {
        if !self.has_anon() {
            self.has_anon.store(true, Ordering::Relaxed);
        }
    }

    /// Returns its part from page `from` on as a separate mapping; `start` is its first page.
    pub(crate) fn tail(&self, start: u64, from: u64) -> Self {
        Self {
            pgoff: self.pgoff + (from - start),
            linear_index: self.linear_index + (from - start),
            ..self.duplicate()
        }
    }

    /// Returns a copy.
    pub(crate) fn duplicate(&self) -> Self {
        Self {
            end: self.end,
            pgoff: self.pgoff,
            linear_index: self.linear_index,
            guard: self.guard,
            rights: self.rights,
            max_rights: self.max_rights,
            flags: self.flags,
            file: self.file.clone(),
            policy: self.policy,
            has_anon: AtomicBool::new(self.has_anon()),
            fork_depth: self.fork_depth,
        }
    }

    /// Returns the copy that a child gets: without locks, and without pages if they are wiped.
    pub(crate) fn duplicate_for_child(&self) -> Self {
        let has_anon = self.has_anon() && !self.flags.contains(VmFlags::WIPEONFORK);
        Self {
            flags: self.flags - VmFlags::LOCK_MASK,
            has_anon: AtomicBool::new(has_anon),
            fork_depth: if has_anon { self.fork_depth + 1 } else { 0 },
            ..self.duplicate()
        }
    }

    /// Returns the mapping that its part from page `from` on becomes when it moves to page `to`.
    ///
    /// The new mapping has `pages` pages; `start` is the first page of the present one. If no
    /// anonymous page was ever mapped, the reverse map knows the new mapping by its new address.
    ///
    /// Linux: `copy_vma`.
    pub(crate) fn moved(&self, start: u64, from: u64, to: u64, pages: u64) -> Self {
        let mut moved = Self { end: to + pages, ..self.tail(start, from) };
        if !self.has_anon() {
            moved.linear_index = to;
            if self.file.is_none() {
                moved.pgoff = to;
            }
        }
        moved
    }

    /// Records that it has no anonymous pages (`unlink_anon_vmas`).
    pub(crate) fn forget_anon(&mut self) {
        *self.has_anon.get_mut() = false;
        self.fork_depth = 0;
    }

    /// Returns whether it can be merged with `next`, which starts at its end.
    ///
    /// `start` is its own first page. Linux: `can_vma_merge_after`.
    ///
    /// INV-VMA-INHERITED: a mapping with pages of a parent stays apart from those that its process
    /// made (`is_mergeable_anon_vma`). INV-POLICY-VMA: a mapping with another policy stays apart
    /// (`mpol_equal`).
    pub(crate) fn can_merge_with(&self, start: u64, next: &Self) -> bool {
        let pages = self.end - start;
        self.rights == next.rights
            && plant!(MergeIgnoresMaxRights; true, self.max_rights == next.max_rights)
            && (self.flags ^ next.flags) - VmFlags::IGNORED_BY_MERGE == VmFlags::empty()
            && self.guard == next.guard
            && plant!(MergeIgnoresPolicy; true, self.policy == next.policy)
            && plant!(MergeWithInherited; true, self.fork_depth == next.fork_depth)
            && self.file_id() == next.file_id()
            && self.pgoff + pages == next.pgoff
            && (self.is_shared() || self.linear_index + pages == next.linear_index)
    }

    /// Returns its address range; `start` is its first page.
    pub fn range(&self, start: u64) -> PageRange {
        PageRange::new(VirtAddr::from_page_index(start), VirtAddr::from_page_index(self.end))
    }
}

impl<P: Platform> TreeItem for Vma<P> {
    type Key = u64;
    type Summary = Gaps;

    fn summary(&self, _start: u64) -> Gaps {
        Gaps::until(self.end)
    }

    fn guard(&self) -> u64 {
        u64::from(self.guard)
    }
}
