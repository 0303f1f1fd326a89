//! Sharing page tables between spaces, copy-on-write (the series *Copy-On-Write Page Table*).
//!
//! A pointer is *shared* while it is write-protected. Then other spaces may reach all tables below
//! it, and no store goes through it: hardware refuses by the R/W bit of the pointer (Intel SDM vol.
//! 3A §4.6.1) or by `APTable` (Arm ARM D8.4.2.4). Leaves keep their bits meanwhile. What a leaf
//! allows is what the leaf and every pointer on the way allow ([`crate::LeafView`]).
//!
//! ```text
//!   fork       parent ──▶ X              the pointer is write-protected in both spaces, X has
//!              child  ──▶ X              2 shares; nothing below is touched          fork.rs
//!   break      parent ──▶ X' ─▶ Y' ─▶ Z' copies down to the entry that changes; their
//!              child  ──▶ X ─▶ Y ─▶ Z    other children get one share more     break_path.rs
//!   take back  child  ──▶ X              1 share is left: the pointer is own    take_back.rs
//!   leave      child  ──▶ –              cleared, flushed, then the share drops     leave.rs
//! ```
//!
//! - **Counting.** An entry counts once, however many spaces reach its table: one reference, one
//!   mapping. Each pointer to a table is one of its shares. A break adds to each page what its copy
//!   of the entry holds.
//! - **Resident sets** do not change when a table is shared, broken or taken back, because the
//!   space reaches as many entries as before. `resident.rs` has edits for all sharers.
//! - **Stability.** A space that is held for reading keeps its own tables, but nothing below a
//!   shared pointer: another thread may break it, and the sibling may exit. So a descent below one
//!   is a counted walk that only tries the lock of the last table and then compares the path again.
//!   A drop of a share waits for such walks, and holds the lock of the table (`walk.rs`).
//! - **Origin.** Only the space that had a table to itself when sharing began gets it back
//!   untouched. Its pointer says so. Leaves that are still writable or exclusive were so for the
//!   origin (CVE-2020-29374); another space strips them, one level at a time.
//! - **Pins.** No page is taken through a shared path: `get_user_pages` breaks it first. Before a
//!   page is pinned through an own path, every table on the path is marked. Fork does not share a
//!   marked table whose pages may still be pinned.
//!
//! **INV-SHARE-OWN** An entry below a pointer that spaces share changes for all of them, with the
//! token of their family, or by a break, which removes write and exclusive bits only.
//!
//! **INV-SHARE-LEAVE** A share of a table is dropped after every CPU of the space was flushed and
//! every walk that may be in the table has ended (CVE-2025-38085). The drop holds the table's lock.
//!
//! **INV-SHARE-ORIGIN** Only the space that had a table to itself when sharing began takes it back
//! with the rights of its leaves. Any other last sharer strips them (CVE-2020-29374). At most one
//! pointer to a table says that its space is that one.
//!
//! **INV-SHARE-PIN** No page below a shared pointer is pinned. A table on the way to a page is
//! marked before the pin, or when the page moves below it; fork judges the pages of a marked table
//! before it shares it. So a break judges none: it shares a page with any number of plain
//! references, and a page of a folio that is pinned through another table.
//!
//! Neighbours: [`crate::OwnTables`] is what a break gives; fork in `mm` decides which mappings may
//! share.
//!
//! Not guaranteed: that a table with one share is not below a shared pointer. The space that is
//! left takes it back when it next edits there, advises `MADV_COLD` or `MADV_PAGEOUT`, or ends.

use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_types::judge::Fact;
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

mod break_path;
mod for_all;
mod fork;
mod leave;
mod reached_tables;
mod read;
mod resident;
mod take_back;
mod walk;

pub use for_all::EditForAll;
pub use read::ReadOnly;
pub(crate) use resident::{Membership, SharedSum};

/// Adds a share to a table, before the entry that points to it is stored.
///
/// Declares to a judge that several entries point to the table.
fn add_share<P: Platform>(tlb: &Tlb<P>, table: Pfn) {
    let page = tlb.frames().table(table);
    if page.share() == 2 {
        tlb.fx().declare(Fact::TableShared { table, level: page.level(), shared: true });
    }
}

/// Removes a share of a table (INV-SHARE-LEAVE).
///
/// Declares to a judge that at most one entry points to the table. The caller holds a lock without
/// which no space takes the table back: its own, or that of the table that points to it.
fn drop_share<P: Platform>(tlb: &Tlb<P>, table: Pfn) {
    let page = tlb.frames().table(table);
    if page.remove_sharer() == 1 {
        tlb.fx().declare(Fact::TableShared { table, level: page.level(), shared: false });
    }
}

/// What an entry of `level` for `va` spans.
pub(crate) fn span_of(va: VirtAddr, level: Level) -> PageRange {
    let start = va.align_down(level.span());
    PageRange::new(start, start.add(level.span()))
}

/// The number of entries of a table of `level` that user memory may have, from the first on.
///
/// The root of x86-64 also has the kernel's entries.
fn user_entries<P: Platform>(level: Level) -> usize {
    match level {
        Level::PGD => Level::PGD.index_of(VirtAddr::new(P::Isa::USER_END.raw() - 1)) + 1,
        _ => Level::ENTRIES,
    }
}
