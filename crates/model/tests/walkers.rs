//! The walkers on entries made by hand from the figures of the manuals (INV-ORACLE-WALK).

use pagewright_model::walk::{DecodedEntry, PathRights, WalkedLeaf, decode, leaves_below, lookup, path};
use pagewright_types::{IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, VirtAddr};
use std::collections::HashMap;

const NONE: Rights = Rights::empty();

fn leaf(pfn: u32, rights: Rights, accessed: bool, dirty: bool, global: bool) -> DecodedEntry {
    DecodedEntry::Leaf { pfn: Pfn::new(pfn), rights, accessed, dirty, global }
}

fn table(pfn: u32, write: bool, user: bool, exec: bool) -> DecodedEntry {
    DecodedEntry::Table { pfn: Pfn::new(pfn), path: PathRights { write, user, exec, kernel: false } }
}

#[test]
fn x86_64_entries_decode_as_the_manual_says() {
    let cases: [(Level, u64, DecodedEntry); 20] = [
        // Figure 4-11: with bit 0 clear, all other bits are ignored.
        (Level::PTE, 0x8000_0000_1234_5066, DecodedEntry::NotPresent),
        (Level::PGD, 0xffff_ffff_ffff_fffe, DecodedEntry::NotPresent),
        // Table 4-20: P, R/W, U/S, A, D, XD.
        (Level::PTE, 0x8000_0000_1234_5067, leaf(0x12345, Rights::RW, true, true, false)),
        (Level::PTE, 0x0000_0000_1234_5005, leaf(0x12345, Rights::RX, false, false, false)),
        (Level::PTE, 0x0000_0000_1234_5025, leaf(0x12345, Rights::RX, true, false, false)),
        (Level::PTE, 0x8000_0000_1234_5003, leaf(0x12345, NONE, false, false, false)),
        (Level::PTE, 0x8000_0000_1234_5105, leaf(0x12345, Rights::READ, false, false, true)),
        // Bit 7 of a PTE is PAT, bits 3 and 4 are cache control, 9 to 11 and 52 to 62 are ignored.
        (Level::PTE, 0x8000_0000_1234_509d, leaf(0x12345, Rights::READ, false, false, false)),
        (Level::PTE, 0xfff0_0000_1234_5e05, leaf(0x12345, Rights::READ, false, false, false)),
        // Table 4-18: a 2-MByte page. Bit 12 is PAT; bits 20 to 13 are reserved.
        (Level::PMD, 0x8000_0000_4020_00e7, leaf(0x40200, Rights::RW, true, true, false)),
        (Level::PMD, 0x8000_0000_4020_10e7, leaf(0x40200, Rights::RW, true, true, false)),
        (Level::PMD, 0x8000_0000_4020_20e7, DecodedEntry::Malformed),
        // Table 4-16: a 1-GByte page; bits 29 to 13 are reserved.
        (Level::PUD, 0x8000_0001_c000_00a5, leaf(0x1c_0000, Rights::READ, true, false, false)),
        (Level::PUD, 0x8000_0001_c020_00a5, DecodedEntry::Malformed),
        // Tables limit the rights below them.
        (Level::PMD, 0x0000_0000_0000_5067, table(5, true, true, true)),
        (Level::PUD, 0x0000_0000_0000_5065, table(5, false, true, true)),
        (Level::PGD, 0x8000_0000_0000_5063, table(5, true, false, false)),
        // Table 4-15: bit 7 of a PML4E is reserved.
        (Level::PGD, 0x0000_0000_0000_50e7, DecodedEntry::Malformed),
        // A frame above 16 TiB, which no machine here has.
        (Level::PTE, 0x000f_0000_0000_0007, DecodedEntry::Malformed),
        (Level::PMD, 0x000f_0000_0000_0007, DecodedEntry::Malformed),
    ];
    for (level, raw, expected) in cases {
        assert_eq!(decode(IsaKind::X86_64, level, raw, PathRights::ROOT), expected, "{level} {raw:#018x}");
    }
}

#[test]
fn aarch64_descriptors_decode_as_the_manual_says() {
    let cases: [(Level, u64, DecodedEntry); 22] = [
        (Level::PTE, 0x0000_0000_1234_5ffe, DecodedEntry::NotPresent),
        // D8.3.1: 0b01 is reserved at level 3 and at level 0.
        (Level::PTE, 0x0000_0000_1234_5741, DecodedEntry::Malformed),
        (Level::PGD, 0x0000_0000_1234_5741, DecodedEntry::Malformed),
        // AP[1], AF, nG, UXN, PXN; AP[2] clear means dirty.
        (Level::PTE, 0x0060_0000_1234_5f43, leaf(0x12345, Rights::RW, true, true, false)),
        // AP[2] without DBM is read-only, with DBM it is writable and clean.
        (Level::PTE, 0x0060_0000_1234_5fc3, leaf(0x12345, Rights::READ, true, false, false)),
        (Level::PTE, 0x0068_0000_1234_5fc3, leaf(0x12345, Rights::RW, true, false, false)),
        (Level::PTE, 0x0068_0000_1234_5f43, leaf(0x12345, Rights::RW, true, true, false)),
        // UXN clear.
        (Level::PTE, 0x0020_0000_1234_5fc3, leaf(0x12345, Rights::RX, true, false, false)),
        // AP[1] clear: EL0 neither reads nor writes, but executes.
        (Level::PTE, 0x0020_0000_1234_5f83, leaf(0x12345, Rights::EXEC, true, false, false)),
        (Level::PTE, 0x0060_0000_1234_5f03, leaf(0x12345, NONE, true, true, false)),
        // AF clear, nG clear.
        (Level::PTE, 0x0060_0000_1234_5bc3, leaf(0x12345, Rights::READ, false, false, false)),
        (Level::PTE, 0x0060_0000_1234_57c3, leaf(0x12345, Rights::READ, true, false, true)),
        // Blocks: bits 20 to 12 (29 to 12) are not part of the address.
        (Level::PMD, 0x0060_0000_4020_0f41, leaf(0x40200, Rights::RW, true, true, false)),
        (Level::PMD, 0x0060_0000_4021_0f41, leaf(0x40200, Rights::RW, true, true, false)),
        (Level::PUD, 0x0060_0001_c000_0fc1, leaf(0x1c_0000, Rights::READ, true, false, false)),
        // The contiguous bit and the software bits are ignored.
        (Level::PTE, 0x07f0_0000_1234_5fc3, leaf(0x12345, Rights::READ, true, false, false)),
        // Tables: APTable[1], APTable[0], UXNTable; PXNTable does not limit user mode.
        (Level::PMD, 0x0000_0000_0000_5003, table(5, true, true, true)),
        (Level::PUD, 0x4000_0000_0000_5003, table(5, false, true, true)),
        (Level::PGD, 0x2000_0000_0000_5003, table(5, true, false, true)),
        (Level::PMD, 0x1000_0000_0000_5003, table(5, true, true, false)),
        (Level::PMD, 0x0800_0000_0000_5003, table(5, true, true, true)),
        (Level::PTE, 0x0060_ff00_0000_0fc3, DecodedEntry::Malformed),
    ];
    for (level, raw, expected) in cases {
        assert_eq!(decode(IsaKind::Aarch64, level, raw, PathRights::ROOT), expected, "{level} {raw:#018x}");
    }
}

#[test]
fn upper_levels_limit_the_rights_of_a_leaf() {
    let closed = PathRights { write: false, exec: false, ..PathRights::ROOT };
    assert_eq!(decode(IsaKind::X86_64, Level::PTE, 0x1007, closed), leaf(1, Rights::READ, false, false, false));
    assert_eq!(
        decode(IsaKind::Aarch64, Level::PTE, 0x0008_0000_0000_1f43, closed),
        leaf(1, Rights::READ, true, true, false)
    );
    let kernel = PathRights { user: false, ..PathRights::ROOT };
    assert_eq!(decode(IsaKind::X86_64, Level::PTE, 0x1007, kernel), leaf(1, NONE, false, false, false));
    // APTable[0] forbids data accesses from EL0; execution depends on UXN.
    assert_eq!(
        decode(IsaKind::Aarch64, Level::PTE, 0x0000_0000_0000_1f43, kernel),
        leaf(1, Rights::EXEC, true, true, false)
    );
}

struct Words(HashMap<u64, u64>);

impl Words {
    fn put(&mut self, table: u32, index: u64, raw: u64) {
        self.0.insert((u64::from(table) << 12) + index * 8, raw);
    }

    fn read(&self, at: PhysAddr) -> u64 {
        self.0.get(&at.raw()).copied().unwrap_or(0)
    }
}

/// Tables 1 → 2 → 3 → 4, a page in the last one, and a 2 MiB block beside it.
fn tree(isa: IsaKind) -> Words {
    let (below, page, block) = match isa {
        IsaKind::X86_64 => (0x067, 0x8000_0000_0000_0067, 0x8000_0000_0000_00e7),
        IsaKind::Aarch64 => (0x003, 0x0060_0000_0000_0f43, 0x0060_0000_0000_0f41),
    };
    let mut words = Words(HashMap::new());
    words.put(1, 3, 0x2000 | below);
    words.put(2, 2, 0x3000 | below);
    words.put(3, 1, 0x4000 | below);
    words.put(3, 7, 0x4020_0000 | block);
    words.put(4, 5, 0x9000 | page);
    words.put(4, 6, 0xa000);
    words
}

const PAGE: u64 = 3 << 39 | 2 << 30 | 1 << 21 | 5 << 12;
const BLOCK: u64 = 3 << 39 | 2 << 30 | 7 << 21;

/// All leaves in the lower half.
fn leaves(isa: IsaKind, words: &Words) -> Vec<WalkedLeaf> {
    let half = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 47));
    let mut leaves = Vec::new();
    let root = (Pfn::new(1), Level::PGD, PathRights::ROOT);
    let none: Option<()> = leaves_below(isa, root, half, &|at| words.read(at), &mut |leaf| {
        leaves.push(leaf);
        None
    });
    assert_eq!(none, None);
    leaves
}

#[test]
fn a_lookup_and_a_full_walk_find_the_same_leaves() {
    for isa in [IsaKind::X86_64, IsaKind::Aarch64] {
        let words = tree(isa);
        let read = |at| words.read(at);
        let leaves = leaves(isa, &words);
        let places: Vec<(u64, Level, u32)> =
            leaves.iter().map(|leaf| (leaf.va.raw(), leaf.level, leaf.pfn.raw())).collect();
        assert_eq!(places, [(PAGE, Level::PTE, 9), (BLOCK, Level::PMD, 0x40200)]);
        for leaf in leaves {
            let inside = leaf.va.add(leaf.level.span() - 8);
            assert_eq!(lookup(isa, Pfn::new(1), inside, &read), Some(leaf));
            assert_eq!(leaf.frame_at(inside).raw(), leaf.pfn.raw() + leaf.level.pages() as u32 - 1);
        }
        assert_eq!(lookup(isa, Pfn::new(1), VirtAddr::new(PAGE + 0x1000), &read), None);
        assert_eq!(
            lookup(isa, Pfn::new(1), VirtAddr::new(1 << 52 | PAGE), &read),
            None,
            "bits above 47 are not translated"
        );
    }
}

#[test]
fn a_path_ends_at_the_table_of_its_level_and_has_the_rights_of_the_entries_above() {
    for (isa, protected) in [(IsaKind::X86_64, 0x4065), (IsaKind::Aarch64, 1 << 62 | 0x4003)] {
        let mut words = tree(isa);
        words.put(3, 1, protected);
        let at = |level, va| path(isa, Pfn::new(1), VirtAddr::new(va), level, &|at| words.read(at));
        let limited = PathRights { write: false, ..PathRights::ROOT };
        assert_eq!(at(Level::PGD, PAGE), Some((Pfn::new(1), PathRights::ROOT)));
        assert_eq!(at(Level::PMD, PAGE), Some((Pfn::new(3), PathRights::ROOT)));
        assert_eq!(at(Level::PTE, PAGE), Some((Pfn::new(4), limited)));
        assert_eq!(at(Level::PTE, BLOCK), None, "a leaf ends the path");
        assert_eq!(at(Level::PUD, 0), None);
        let rights: Vec<Rights> = leaves(isa, &words).iter().map(|leaf| leaf.rights).collect();
        assert_eq!(rights, [Rights::READ, Rights::RW]);
        assert!(PathRights::ROOT.covers(limited) && !limited.covers(PathRights::ROOT));
        assert_eq!(PathRights::ROOT.limited_to(Rights::RX), limited);
    }
}

#[test]
fn leaves_below_a_table_are_those_of_the_range_until_the_visit_ends() {
    let mut words = tree(IsaKind::X86_64);
    words.put(4, 7, 0xb067);
    let find = |range: PageRange, wanted: u32| {
        let table = (Pfn::new(4), Level::PTE, PathRights::ROOT);
        let mut visited = Vec::new();
        let found = leaves_below(IsaKind::X86_64, table, range, &|at| words.read(at), &mut |leaf| {
            visited.push(leaf.pfn.raw());
            (leaf.pfn.raw() == wanted).then_some(leaf.va.raw())
        });
        (visited, found)
    };
    let pages = |from: u64, to: u64| PageRange::new(VirtAddr::new(PAGE + from * 4096), VirtAddr::new(PAGE + to * 4096));
    assert_eq!(find(pages(0, 3), 0), (vec![9, 0xb], None));
    assert_eq!(find(pages(0, 3), 9), (vec![9], Some(PAGE)));
    assert_eq!(find(pages(1, 3), 9), (vec![0xb], None));
    assert_eq!(find(pages(0, 2), 0xb), (vec![9], None));
}

#[test]
fn the_upper_half_of_x86_64_is_sign_extended() {
    let mut words = tree(IsaKind::X86_64);
    words.put(1, 256 + 3, 0x2067);
    let high = VirtAddr::new(0xffff_8000_0000_0000 | PAGE);
    let find = |va| lookup(IsaKind::X86_64, Pfn::new(1), va, &|at| words.read(at)).map(|leaf| leaf.va);
    assert_eq!(find(high), Some(high));
    assert_eq!(find(VirtAddr::new(1 << 47 | PAGE)), None, "not canonical");
}
