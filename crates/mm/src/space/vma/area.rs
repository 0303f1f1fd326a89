//! One mapping.

use crate::file::FileObject;
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_btree::{Gaps, TreeItem};
use pagewright_sync::{Arc, Platform};
use pagewright_types::{Access, FileId, PageRange, Rights, VirtAddr};

bitflags::bitflags! {
    /// What a mapping is, beside its rights: `VM_*` with Linux's values (`include/linux/mm.h`), but
    /// for [`VmFlags::SEALED`], which Linux has above the low 32 bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct VmFlags: u32 {
        /// Stores go to the object, which was opened for writing.
        const SHARED = 0x8;
        /// Shows the object itself, and no copies.
        const MAYSHARE = 0x80;
        /// Grows down when touched below its start.
        const GROWSDOWN = 0x100;
        /// Its pages stay resident (`mlock`).
        const LOCKED = 0x2000;
        /// Pages will be touched in order (`MADV_SEQUENTIAL`).
        const SEQ_READ = 0x8000;
        /// Pages will be touched in no order (`MADV_RANDOM`).
        const RAND_READ = 0x1_0000;
        /// Not there in a child (`MADV_DONTFORK`).
        const DONTCOPY = 0x2_0000;
        /// With `LOCKED`: pages are locked as they are touched (`MLOCK_ONFAULT`).
        const LOCKONFAULT = 0x8_0000;
        /// Was writable and private once, so that its pages are charged.
        ///
        /// It stays when the right to write goes, and keeps neighbours apart that look alike: of a
        /// library, its read-only data and what was relocated and then made read-only.
        const ACCOUNT = 0x10_0000;
        /// Asked for with `MAP_NORESERVE`.
        const NORESERVE = 0x20_0000;
        /// Asked for with `MAP_SYNC`.
        const SYNC = 0x80_0000;
        /// Not in a core dump (`MADV_DONTDUMP`).
        const DONTDUMP = 0x400_0000;
        /// Empty in a child (`MADV_WIPEONFORK`).
        const WIPEONFORK = 0x200_0000;
        /// All of it counts as written to since soft-dirty bits were last cleared.
        const SOFTDIRTY = 0x800_0000;
        /// May not be unmapped, moved, replaced or given other rights (`mseal`).
        const SEALED = 0x8000_0000;
    }
}

impl VmFlags {
    /// What locked memory has.
    pub const LOCK_MASK: Self = Self::LOCKED.union(Self::LOCKONFAULT);
    /// What may differ between neighbours that become one, and what the one then has if either had
    /// it (`VM_IGNORE_MERGE`).
    pub(crate) const IGNORED_BY_MERGE: Self = Self::SOFTDIRTY;
}

/// What a mapping shows.
pub enum VmaBacking<P: Platform> {
    /// Zeroes, until written.
    Anon,
    /// A file, or shared memory.
    File(Arc<FileObject<P>>),
}

impl<P: Platform> Clone for VmaBacking<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Anon => Self::Anon,
            Self::File(file) => Self::File(file.clone()),
        }
    }
}

/// One mapping of a space (`vm_area_struct`).
///
/// Its first page is its key in the [`crate::space::AddressMap`].
///
/// Fields are protected by the space's `map` lock; `has_anon` alone is set by faults, under its
/// read side.
pub struct Vma<P: Platform> {
    end: u64,
    pgoff: u64,
    linear: u64,
    /// Pages kept free below it; a mapping that doesn't grow down has none.
    guard: u32,
    rights: Rights,
    most: Rights,
    flags: VmFlags,
    backing: VmaBacking<P>,
    /// Whether an anonymous page was ever made under it: then fork copies its entries, and
    /// otherwise leaves them to be faulted in again (`vma->anon_vma`).
    has_anon: AtomicBool,
}

impl<P: Platform> Vma<P> {
    /// A mapping of the pages from `start` up to `end` that shows its file from page `pgoff` on.
    ///
    /// All of it counts as stored to (INV-SOFT-DIRTY).
    pub(crate) fn new(
        (start, end): (u64, u64),
        pgoff: u64,
        rights: Rights,
        most: Rights,
        flags: VmFlags,
        backing: VmaBacking<P>,
    ) -> Self {
        let flags = flags | VmFlags::SOFTDIRTY;
        let pgoff = if matches!(backing, VmaBacking::Anon) { start } else { pgoff };
        Self { end, pgoff, linear: start, guard: 0, rights, most, flags, backing, has_anon: AtomicBool::new(false) }
    }

    /// Page index past its last page.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    /// Page of the file that its first page shows.
    ///
    /// Of a mapping without a file, its linear page index.
    pub fn pgoff(&self) -> u64 {
        self.pgoff
    }

    /// The page index by which the reverse map knows an anonymous page at its first page: where the
    /// mapping was when the first of its own pages was made (Linux has this in `vm_pgoff`, for
    /// private mappings of files, too).
    pub fn linear(&self) -> u64 {
        self.linear
    }

    /// Whether its own pages are known by another index than where they are now.
    pub(crate) fn is_moved(&self, start: u64) -> bool {
        !self.is_shared() && self.linear != start
    }

    /// It begins `pages` pages further down from now on.
    pub(crate) fn extend_down(&mut self, pages: u64) {
        self.pgoff -= pages;
        self.linear -= pages;
    }

    /// Sets the pages kept free below it, if it grows down.
    pub(crate) fn set_guard(&mut self, pages: u64) {
        self.guard = if self.grows_down() { pages as u32 } else { 0 };
    }

    /// What accesses it allows.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Changes the rights, and with them whether its pages are charged.
    pub(crate) fn set_rights(&mut self, rights: Rights) {
        self.flags = self.flags_with(rights);
        self.rights = rights;
    }

    /// Its flags if it had other rights (`mprotect_fixup`): its pages are charged from the first
    /// right to write on, and no longer when that goes before any page was made.
    pub(crate) fn flags_with(&self, rights: Rights) -> VmFlags {
        let anonymous = matches!(self.backing, VmaBacking::Anon);
        if rights.contains(Rights::WRITE) {
            let charged = !self.flags.intersects(VmFlags::MAYSHARE | VmFlags::NORESERVE);
            if charged { self.flags | VmFlags::ACCOUNT } else { self.flags }
        } else if anonymous && !self.has_anon() {
            self.flags - VmFlags::ACCOUNT
        } else {
            self.flags
        }
    }

    /// What `mprotect` may make of its rights (`VM_MAY*`).
    pub fn most(&self) -> Rights {
        self.most
    }

    /// What it is.
    pub fn flags(&self) -> VmFlags {
        self.flags
    }

    pub(crate) fn set_flags(&mut self, flags: VmFlags) {
        self.flags = flags;
    }

    /// Whether stores go to the object.
    pub fn is_shared(&self) -> bool {
        self.flags.contains(VmFlags::MAYSHARE)
    }

    /// Whether its file could be written through it, now or after `mprotect`
    /// (`vma_is_shared_maywrite`).
    pub(crate) fn may_store_to_file(&self) -> bool {
        self.is_shared() && self.most.contains(Rights::WRITE)
    }

    /// Whether stores through it go, or could go after an `mprotect`, to copies (`is_cow_mapping`).
    pub(crate) fn is_cow(&self) -> bool {
        !self.is_shared() && self.most.contains(Rights::WRITE)
    }

    /// Whether a debugger may read it, or store to it, whatever its rights are: a store goes to a
    /// copy, or nowhere.
    pub(crate) fn may_be_forced(&self, access: Access) -> bool {
        match access {
            Access::Write => self.is_cow(),
            Access::Read | Access::Exec => self.most.contains(Rights::READ),
        }
    }

    /// Whether fork copies its entries.
    pub(crate) fn is_copied_with_entries(&self) -> bool {
        self.has_anon() && !self.flags.intersects(VmFlags::DONTCOPY | VmFlags::WIPEONFORK)
    }

    /// Whether an access below it makes it grow.
    pub fn grows_down(&self) -> bool {
        self.flags.contains(VmFlags::GROWSDOWN)
    }

    /// What it shows.
    pub fn backing(&self) -> &VmaBacking<P> {
        &self.backing
    }

    /// Its file, if it has one.
    pub fn file(&self) -> Option<&Arc<FileObject<P>>> {
        match &self.backing {
            VmaBacking::Anon => None,
            VmaBacking::File(file) => Some(file),
        }
    }

    pub(crate) fn file_id(&self) -> Option<FileId> {
        self.file().map(|file| file.id())
    }

    /// Whether an anonymous page was ever made under it.
    pub fn has_anon(&self) -> bool {
        self.has_anon.load(Ordering::Relaxed)
    }

    pub(crate) fn note_anon(&self) {
        if !self.has_anon() {
            self.has_anon.store(true, Ordering::Relaxed);
        }
    }

    /// The part of it from page `from` on, as a mapping of its own; `start` is its present first
    /// page.
    pub(crate) fn tail(&self, start: u64, from: u64) -> Self {
        Self { pgoff: self.pgoff + (from - start), linear: self.linear + (from - start), ..self.duplicate() }
    }

    /// A mapping like it.
    pub(crate) fn duplicate(&self) -> Self {
        Self {
            end: self.end,
            pgoff: self.pgoff,
            linear: self.linear,
            guard: self.guard,
            rights: self.rights,
            most: self.most,
            flags: self.flags,
            backing: self.backing.clone(),
            has_anon: AtomicBool::new(self.has_anon()),
        }
    }

    /// The part of it from page `from` on, `pages` long, as it is after a move to page `to`
    /// (`copy_vma`). If no page of its own was ever made under it, it is as new.
    pub(crate) fn moved(&self, start: u64, from: u64, to: u64, pages: u64) -> Self {
        let mut moved = Self { end: to + pages, ..self.tail(start, from) };
        if !self.has_anon() {
            moved.linear = to;
            if matches!(self.backing, VmaBacking::Anon) {
                moved.pgoff = to;
            }
        }
        moved
    }

    /// All pages of its own have gone elsewhere (`unlink_anon_vmas`).
    pub(crate) fn forget_anon(&mut self) {
        *self.has_anon.get_mut() = false;
    }

    /// Whether `next`, which starts at its end, continues it, so that both can be one
    /// (`can_vma_merge_after`). `start` is its own first page.
    pub(crate) fn continues_into(&self, start: u64, next: &Self) -> bool {
        let pages = self.end - start;
        self.rights == next.rights
            && self.most == next.most
            && (self.flags ^ next.flags) - VmFlags::IGNORED_BY_MERGE == VmFlags::empty()
            && self.guard == next.guard
            && self.file_id() == next.file_id()
            && self.pgoff + pages == next.pgoff
            && (self.is_shared() || self.linear + pages == next.linear)
    }

    /// Its pages, given its first.
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
