//! Page-table walkers of the oracle's own, over raw words, written from the architecture manuals.
//!
//! - [`lookup`] – what one address translates to; [`walk`] – every table, leaf and unseen word
//!   under a root.
//! - [`x86_64`], [`aarch64`] – one word each: what it lets user mode do, given what the entries
//!   above it left.
//!
//! Words come from whatever function the caller supplies, so nothing here knows how memory is kept.
//! Four levels of 512 entries, 4 KiB base pages. No code is shared with `arch`, `sim` or `table`: a
//! mistake made there is not made again here.
//!
//! Promises INV-ORACLE-WALK.
//!
//! Not guaranteed: what depends on settings of the CPU beyond those that the two files name
//! (protection keys, WXN, five levels, 52-bit addresses). Frames past 16 TiB count as malformed.

pub mod aarch64;
pub mod x86_64;

use pagewright_types::{IsaKind, Level, Pfn, PhysAddr, Rights, VirtAddr};

/// What the entries above a word leave of its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRights {
    /// Stores are not refused.
    pub write: bool,
    /// User mode may read and write.
    pub user: bool,
    /// User mode may execute.
    pub exec: bool,
}

impl PathRights {
    /// At the root, nothing is refused yet.
    pub const ROOT: Self = Self { write: true, user: true, exec: true };
}

/// What one word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedEntry {
    /// The walker stops here and finds nothing.
    ///
    /// Other bits are software's.
    NotPresent,
    /// A table of the level below.
    Table {
        /// Where.
        pfn: Pfn,
        /// What is left of the rights below it.
        path: PathRights,
    },
    /// A page or a block.
    Leaf {
        /// First frame.
        pfn: Pfn,
        /// What user mode may do, the path included.
        rights: Rights,
        /// The walker has used it.
        accessed: bool,
        /// A store went through it.
        dirty: bool,
        /// It answers under every tag.
        global: bool,
    },
    /// The manual forbids the word: an access faults whatever it wants.
    Malformed,
}

/// A leaf that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedLeaf {
    /// First address.
    pub va: VirtAddr,
    /// Level of its entry.
    pub level: Level,
    /// First frame.
    pub pfn: Pfn,
    /// What user mode may do.
    pub rights: Rights,
    /// The walker has used it.
    pub accessed: bool,
    /// A store went through it.
    pub dirty: bool,
    /// It answers under every tag.
    pub global: bool,
    /// The word itself.
    pub raw: u64,
}

impl WalkedLeaf {
    /// The frame that `va` leads to; `va` lies under the leaf.
    pub fn frame_at(&self, va: VirtAddr) -> Pfn {
        frame_under(self.pfn, self.level, va)
    }
}

/// The frame that `va` leads to by a leaf of `level` that begins at `pfn`.
pub(crate) fn frame_under(pfn: Pfn, level: Level, va: VirtAddr) -> Pfn {
    pfn.add((va.page_index() & (level.pages() - 1)) as u32)
}

/// What a walk over everything comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkedEntry {
    /// A table is entered.
    ///
    /// Reported once for each entry that leads to it.
    Table {
        /// Where it is.
        pfn: Pfn,
        /// Its level.
        level: Level,
        /// The table above, unless it is the root.
        parent: Option<Pfn>,
        /// What is left of the rights below it.
        path: PathRights,
    },
    /// A leaf.
    Leaf {
        /// What it says.
        leaf: WalkedLeaf,
        /// The table that it stands in.
        table: Pfn,
        /// What the tables above it left.
        path: PathRights,
    },
    /// A word that the walker does not see, and that is not zero.
    NotPresent {
        /// First address.
        va: VirtAddr,
        /// Level.
        level: Level,
        /// The table that it stands in.
        table: Pfn,
        /// The word.
        raw: u64,
    },
    /// A word that the manual forbids.
    Malformed {
        /// First address.
        va: VirtAddr,
        /// Level.
        level: Level,
        /// The table that it stands in.
        table: Pfn,
        /// The word.
        raw: u64,
    },
}

/// What `raw` means in a table of `level`, below `path`.
///
/// On x86-64 this is four-level paging; on arm64, stage 1 with the 4K granule and 48-bit addresses
/// of the lower range (TTBR0).
pub fn decode(isa: IsaKind, level: Level, raw: u64, path: PathRights) -> DecodedEntry {
    match isa {
        IsaKind::X86_64 => x86_64::decode(level, raw, path),
        IsaKind::Aarch64 => aarch64::decode(level, raw, path),
    }
}

/// The frame that the address field of a leaf of `level` names, whatever its other bits say.
///
/// For words that software keeps in the form of leaves and that page-table walkers ignore.
pub fn frame_field(isa: IsaKind, level: Level, raw: u64) -> Option<Pfn> {
    match isa {
        IsaKind::X86_64 => x86_64::frame_field(level, raw),
        IsaKind::Aarch64 => aarch64::frame_field(level, raw),
    }
}

/// Whether a walk for `va` starts at all.
fn translates(isa: IsaKind, va: VirtAddr) -> bool {
    match isa {
        IsaKind::X86_64 => x86_64::is_canonical(va),
        IsaKind::Aarch64 => va.raw() >> 48 == 0,
    }
}

/// The address with its upper bits as the instruction set requires them.
fn extend(isa: IsaKind, va: u64) -> VirtAddr {
    match isa {
        IsaKind::X86_64 => x86_64::canonical(va),
        IsaKind::Aarch64 => VirtAddr::new(va),
    }
}

/// The frame at a physical address taken from an entry, unless it lies past what a machine has.
pub(crate) fn frame(addr: u64) -> Option<Pfn> {
    u32::try_from(addr >> 12).ok().map(Pfn::new)
}

fn entry_at(table: Pfn, index: usize) -> PhysAddr {
    table.base().add(index as u64 * 8)
}

/// What `va` translates to under `root`; `None` where an access faults whatever it wants.
pub fn lookup(isa: IsaKind, root: Pfn, va: VirtAddr, read: &dyn Fn(PhysAddr) -> u64) -> Option<WalkedLeaf> {
    if !translates(isa, va) {
        return None;
    }
    let (mut table, mut level, mut path) = (root, Level::PGD, PathRights::ROOT);
    loop {
        let raw = read(entry_at(table, level.index_of(va)));
        match decode(isa, level, raw, path) {
            DecodedEntry::NotPresent | DecodedEntry::Malformed => return None,
            DecodedEntry::Leaf { pfn, rights, accessed, dirty, global } => {
                let va = va.align_down(level.span());
                return Some(WalkedLeaf { va, level, pfn, rights, accessed, dirty, global, raw });
            }
            DecodedEntry::Table { pfn, path: below } => {
                (table, path) = (pfn, below);
                level = level.down()?;
            }
        }
    }
}

/// Calls `visit` for everything under `root`, in the order of addresses.
///
/// A table that several entries lead to is walked for each.
pub fn walk(isa: IsaKind, root: Pfn, read: &dyn Fn(PhysAddr) -> u64, visit: &mut dyn FnMut(WalkedEntry)) {
    let seen = WalkedEntry::Table { pfn: root, level: Level::PGD, parent: None, path: PathRights::ROOT };
    visit(seen);
    Walker { isa, read, visit }.table(root, Level::PGD, 0, PathRights::ROOT);
}

struct Walker<'a> {
    isa: IsaKind,
    read: &'a dyn Fn(PhysAddr) -> u64,
    visit: &'a mut dyn FnMut(WalkedEntry),
}

impl Walker<'_> {
    fn table(&mut self, table: Pfn, level: Level, base: u64, path: PathRights) {
        for index in 0..Level::ENTRIES {
            let raw = (self.read)(entry_at(table, index));
            if raw == 0 {
                continue;
            }
            let start = base | (index as u64) << level.shift();
            let va = extend(self.isa, start);
            match decode(self.isa, level, raw, path) {
                DecodedEntry::NotPresent => (self.visit)(WalkedEntry::NotPresent { va, level, table, raw }),
                DecodedEntry::Malformed => (self.visit)(WalkedEntry::Malformed { va, level, table, raw }),
                DecodedEntry::Leaf { pfn, rights, accessed, dirty, global } => {
                    let leaf = WalkedLeaf { va, level, pfn, rights, accessed, dirty, global, raw };
                    (self.visit)(WalkedEntry::Leaf { leaf, table, path });
                }
                DecodedEntry::Table { pfn, path } => {
                    let Some(down) = level.down() else { continue };
                    (self.visit)(WalkedEntry::Table { pfn, level: down, parent: Some(table), path });
                    self.table(pfn, down, start, path);
                }
            }
        }
    }
}
