//! The oracle's own page-table walkers, written from the architecture manuals.
//!
//! - [`lookup`] translates one address, [`path`] finds a table on the way to it, [`leaves_below`]
//!   visits the leaves below a table.
//! - [`x86_64`] and [`aarch64`] decode one entry: the rights of user mode, or of the kernel in its
//!   range, given the rights that the upper levels leave.
//!
//! The caller supplies a function that reads memory. Tables have four levels of 512 entries, on
//! x86-64 also five; on arm64 they may have another granule, which the levels know. No code is
//! shared with `arch`, `sim` or `table`, so a mistake there is not repeated here.
//!
//! **INV-ORACLE-WALK** The oracle's walkers read a word as Intel SDM vol. 3A §4.5 or Arm ARM D8.3
//! says, and share no code with the codecs, the machine or the subject.
//!
//! Not guaranteed: anything that depends on CPU settings other than those named in the two files
//! (protection keys, WXN, 52-bit addresses). Frames above 16 TiB count as
//! malformed.

pub mod aarch64;
pub mod x86_64;

use pagewright_types::{FrameRange, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, VirtAddr};

/// The rights that the upper levels of a walk leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRights {
    /// Stores are allowed.
    pub write: bool,
    /// Loads and stores from user mode are allowed; on x86-64, fetches too.
    pub user: bool,
    /// Instruction fetches are allowed, from the mode of the access.
    pub exec: bool,
    /// The kernel makes the access, without SMAP or PAN; otherwise user mode does.
    pub kernel: bool,
}

/// The page tables that a walker reads: the instruction set, and whose addresses are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFormat {
    /// The instruction set.
    pub isa: IsaKind,
    /// The addresses that the kernel accesses; user mode accesses all others.
    pub kernel: Option<PageRange>,
    /// The level of the root table: PGD, on x86-64 also PML5, and on arm64 that of a granule.
    pub top: Level,
}

impl TableFormat {
    /// The rights at the root on the way to `va`: all, of the mode that accesses it.
    pub fn root_rights(self, va: VirtAddr) -> PathRights {
        PathRights { kernel: self.kernel.is_some_and(|range| range.contains(va)), ..PathRights::ROOT }
    }
}

impl From<IsaKind> for TableFormat {
    fn from(isa: IsaKind) -> Self {
        Self { isa, kernel: None, top: Level::PGD }
    }
}

impl PathRights {
    /// The rights of user mode at the root: all.
    pub const ROOT: Self = Self { write: true, user: true, exec: true, kernel: false };

    /// These rights below entries that allow at most `allows`, of which READ stands for user mode.
    #[must_use]
    pub fn limited_to(self, allows: Rights) -> Self {
        let has = |right| allows.contains(right);
        Self { write: has(Rights::WRITE), user: has(Rights::READ), exec: has(Rights::EXEC), ..self }
    }

    /// Whether a leaf on a path with these rights allows all that it allows on `other`.
    pub fn covers(self, other: Self) -> bool {
        self.write >= other.write && self.user >= other.user && self.exec >= other.exec
    }
}

/// A decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedEntry {
    /// Not present (Intel) or invalid (Arm): the walk ends, and the other bits are software's.
    NotPresent,
    /// A table of the next lower level.
    Table {
        /// Its frame.
        pfn: Pfn,
        /// The rights that are left below it.
        path: PathRights,
    },
    /// A page or a block.
    Leaf {
        /// First frame.
        pfn: Pfn,
        /// The rights of user mode, limited by the upper levels.
        rights: Rights,
        /// The accessed bit.
        accessed: bool,
        /// The dirty state.
        dirty: bool,
        /// The translation holds under every tag.
        global: bool,
    },
    /// The manual forbids the entry: every access faults.
    Malformed,
}

/// A leaf entry and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedLeaf {
    /// First address.
    pub va: VirtAddr,
    /// Level of the entry.
    pub level: Level,
    /// First frame.
    pub pfn: Pfn,
    /// The rights of user mode.
    pub rights: Rights,
    /// The accessed bit.
    pub accessed: bool,
    /// The dirty state.
    pub dirty: bool,
    /// The translation holds under every tag.
    pub global: bool,
    /// The raw entry.
    pub raw: u64,
}

impl WalkedLeaf {
    /// The frame of `va`, which lies under the leaf.
    pub fn frame_at(&self, va: VirtAddr) -> Pfn {
        frame_under(self.pfn, self.level, va)
    }

    /// The pages that it translates.
    pub(crate) fn range(&self) -> PageRange {
        PageRange::new(self.va, self.va.add(self.level.span()))
    }
}

/// The frame of `va` under a leaf of `level` whose first frame is `pfn`.
pub(crate) fn frame_under(pfn: Pfn, level: Level, va: VirtAddr) -> Pfn {
    pfn.add((va.page_index() & (level.pages() - 1)) as u32)
}

/// What `raw` means in a table of `level`, below `path`.
///
/// On x86-64 this is paging with four or five levels; on arm64, stage 1 with 48-bit addresses.
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
///
/// On arm64 the caller names the root of the half that `va` is in.
fn translates(format: TableFormat, va: VirtAddr) -> bool {
    match format.isa {
        IsaKind::X86_64 => x86_64::is_canonical(format.top, va),
        IsaKind::Aarch64 => matches!(va.raw() >> 48, 0 | 0xffff),
    }
}

/// The frame at a physical address from an entry; `None` above 16 TiB.
pub(crate) fn frame(addr: u64) -> Option<Pfn> {
    u32::try_from(addr >> 12).ok().map(Pfn::new)
}

fn entry_at(table: Pfn, index: usize) -> PhysAddr {
    table.base().add(index as u64 * 8)
}

/// Translates `va` under `root`; `None` where every access faults.
pub fn lookup(
    format: impl Into<TableFormat>,
    root: Pfn,
    va: VirtAddr,
    read: &dyn Fn(PhysAddr) -> u64,
) -> Option<WalkedLeaf> {
    let format = format.into();
    let isa = format.isa;
    if !translates(format, va) {
        return None;
    }
    let (mut table, mut level, mut path) = (root, format.top, format.root_rights(va));
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

/// The table that a present word points to, if it is a pointer to a table; a leaf gives its frame.
pub(crate) fn table_field(isa: IsaKind, raw: u64) -> Option<Pfn> {
    if raw & 1 == 0 {
        return None;
    }
    frame_field(isa, Level::PTE, raw)
}

/// The last entry that a walk for `va` reads, and its level.
pub(crate) fn entry(format: TableFormat, root: Pfn, va: VirtAddr, read: &dyn Fn(PhysAddr) -> u64) -> (u64, Level) {
    let (isa, mut table, mut level) = (format.isa, root, format.top);
    loop {
        let raw = read(entry_at(table, level.index_of(va)));
        match (decode(isa, level, raw, PathRights::ROOT), level.down()) {
            (DecodedEntry::Table { pfn, .. }, Some(down)) => (table, level) = (pfn, down),
            _ => return (raw, level),
        }
    }
}

/// Where the entries are that a walk for `va` reads, from the root on.
pub(crate) fn entries_read(
    format: TableFormat,
    root: Pfn,
    va: VirtAddr,
    read: &dyn Fn(PhysAddr) -> u64,
) -> impl Iterator<Item = PhysAddr> {
    let mut next = Some((root, format.top));
    core::iter::from_fn(move || {
        let (table, level) = next?;
        let at = entry_at(table, level.index_of(va));
        next = match decode(format.isa, level, read(at), PathRights::ROOT) {
            DecodedEntry::Table { pfn, .. } => level.down().map(|down| (pfn, down)),
            DecodedEntry::NotPresent | DecodedEntry::Leaf { .. } | DecodedEntry::Malformed => None,
        };
        Some(at)
    })
}

/// The table of `level` that a walk for `va` reads, and the rights that are left below it.
pub fn path(
    format: impl Into<TableFormat>,
    root: Pfn,
    va: VirtAddr,
    level: Level,
    read: &dyn Fn(PhysAddr) -> u64,
) -> Option<(Pfn, PathRights)> {
    let format = format.into();
    let (isa, mut path) = (format.isa, format.root_rights(va));
    let (mut table, mut at) = (root, format.top);
    while at > level {
        let DecodedEntry::Table { pfn, path: below } = decode(isa, at, read(entry_at(table, at.index_of(va))), path)
        else {
            return None;
        };
        (table, path) = (pfn, below);
        at = at.down()?;
    }
    Some((table, path))
}

/// The leaves of `range` in a table of `level` and below it, in the order of addresses.
///
/// `range` lies in the span of the table, which is reached with the rights `path`. The visit ends
/// where `visit` returns a value.
pub fn leaves_below<T>(
    isa: IsaKind,
    (table, level, path): (Pfn, Level, PathRights),
    range: PageRange,
    read: &dyn Fn(PhysAddr) -> u64,
    visit: &mut dyn FnMut(WalkedLeaf) -> Option<T>,
) -> Option<T> {
    let mut va = range.start().align_down(level.span());
    while va < range.end() {
        let raw = read(entry_at(table, level.index_of(va)));
        let entry = PageRange::new(va, va.add(level.span()));
        let found = match decode(isa, level, raw, path) {
            DecodedEntry::NotPresent | DecodedEntry::Malformed => None,
            DecodedEntry::Leaf { pfn, rights, accessed, dirty, global } => {
                visit(WalkedLeaf { va, level, pfn, rights, accessed, dirty, global, raw })
            }
            DecodedEntry::Table { pfn, path } => range
                .intersect(entry)
                .zip(level.down())
                .and_then(|(part, down)| leaves_below(isa, (pfn, down, path), part, read, visit)),
        };
        if found.is_some() {
            return found;
        }
        va = entry.end();
    }
    None
}

/// The first address at which the tables under `root` lead to one of `frames`.
///
/// As the root, as a table, or as a page that the mode of its address may access. `start` is the
/// first address that the root translates.
pub(crate) fn use_of(
    format: TableFormat,
    root: Pfn,
    start: VirtAddr,
    frames: FrameRange,
    read: &dyn Fn(PhysAddr) -> u64,
) -> Option<VirtAddr> {
    if frames.contains(root) {
        return Some(start);
    }
    (0..format.top.entries()).find_map(|index| {
        let va = sign_extended(format, start.add(index as u64 * format.top.span()));
        use_of_entry(format.isa, (root, format.top, format.root_rights(va)), (index, va), frames, read)
    })
}

/// The first address at which entry `index` of a table, for `va`, leads to one of `frames`.
fn use_of_entry(
    isa: IsaKind,
    (table, level, path): (Pfn, Level, PathRights),
    (index, va): (usize, VirtAddr),
    frames: FrameRange,
    read: &dyn Fn(PhysAddr) -> u64,
) -> Option<VirtAddr> {
    match decode(isa, level, read(entry_at(table, index)), path) {
        DecodedEntry::NotPresent | DecodedEntry::Malformed => None,
        DecodedEntry::Leaf { pfn, rights, .. } => {
            let leaf = FrameRange::new(pfn, pfn.add(level.pages() as u32));
            (!rights.is_empty() && leaf.overlaps(frames)).then_some(va)
        }
        DecodedEntry::Table { pfn, .. } if frames.contains(pfn) => Some(va),
        DecodedEntry::Table { pfn, path } => {
            let down = level.down()?;
            (0..down.entries()).find_map(|below| {
                let va = va.add(below as u64 * down.span());
                use_of_entry(isa, (pfn, down, path), (below, va), frames, read)
            })
        }
    }
}

/// The canonical form of an address of which the bits that are translated are known.
fn sign_extended(format: TableFormat, va: VirtAddr) -> VirtAddr {
    match format.isa {
        IsaKind::X86_64 => x86_64::canonical(format.top, va.raw()),
        IsaKind::Aarch64 => va,
    }
}

/// The entries of one table of `level` that are not zero.
pub(crate) fn words<'a>(table: Pfn, level: Level, read: &'a dyn Fn(PhysAddr) -> u64) -> impl Iterator<Item = u64> + 'a {
    indexed_words(table, level, read).map(|(_, raw)| raw)
}

/// The same, each with its index.
pub(crate) fn indexed_words<'a>(
    table: Pfn,
    level: Level,
    read: &'a dyn Fn(PhysAddr) -> u64,
) -> impl Iterator<Item = (usize, u64)> + 'a {
    (0..level.entries()).map(move |index| (index, read(entry_at(table, index)))).filter(|(_, raw)| *raw != 0)
}
