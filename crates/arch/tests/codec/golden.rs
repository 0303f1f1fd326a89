//! Encoded words, computed by hand from the bit tables of the manuals (INV-CODEC-EXACT).
//!
//! The arm64 words have the form that Linux prints in an oops.

use pagewright_arch::{Aarch64, Entry, Isa, Leaf, LeafFlags, Pte, SoftEntry, SoftKind, TableEntry, X86_64};
use pagewright_types::{Level, Pfn, Rights};

fn leaf(pfn: u32, rights: Rights, flags: LeafFlags) -> Leaf {
    Leaf { pfn: Pfn::new(pfn), rights, flags }
}

/// The use of the leaf, its level, the leaf, its word on x86-64, its word on arm64.
fn leaves() -> Vec<(&'static str, Level, Leaf, u64, u64)> {
    use LeafFlags as F;
    let used = F::ACCESSED | F::DIRTY;
    vec![
        (
            "written user data",
            Level::PTE,
            leaf(0x12345, Rights::RW, F::USER | used),
            0x8000_0000_1234_5067,
            0x0068_0000_1234_5f43,
        ),
        ("fresh user data", Level::PTE, leaf(1, Rights::RW, F::USER), 0x8000_0000_0000_1007, 0x0068_0000_0000_1bc3),
        (
            "user text",
            Level::PTE,
            leaf(1, Rights::RX, F::USER | F::ACCESSED),
            0x0000_0000_0000_1025,
            0x0020_0000_0000_1fc3,
        ),
        (
            "kernel text",
            Level::PTE,
            leaf(1, Rights::RX, F::GLOBAL | F::ACCESSED),
            0x0000_0000_0000_1121,
            0x0040_0000_0000_1783,
        ),
        (
            "kernel data, 2 MiB",
            Level::PMD,
            leaf(0x200, Rights::RW, F::GLOBAL | used),
            0x8000_0000_0020_01e3,
            0x0068_0000_0020_0701,
        ),
        (
            "user data, 1 GiB",
            Level::PUD,
            leaf(0x4_0000, Rights::RW, F::USER | used),
            0x8000_0000_4000_00e7,
            0x0068_0000_4000_0f41,
        ),
        (
            "user data that lost WRITE",
            Level::PTE,
            leaf(1, Rights::READ, F::USER | used | F::EXCLUSIVE),
            0x8100_0000_0000_1065,
            0x02e0_0000_0000_1fc3,
        ),
        (
            "PROT_NONE",
            Level::PTE,
            leaf(5, Rights::empty(), F::USER | F::DIRTY),
            0x8000_0000_0000_5244,
            0x08e0_0000_0000_5bc2,
        ),
    ]
}

#[test]
fn leaves_encode_to_the_words_of_the_manuals() {
    for (what, level, leaf, x86, arm) in leaves() {
        assert_eq!(X86_64::leaf(level, leaf), Pte::from_raw(x86), "{what} on x86-64");
        assert_eq!(Aarch64::leaf(level, leaf), Pte::from_raw(arm), "{what} on arm64");
    }
}

/// Bit 12 of a block belongs to its memory type (Intel SDM vol. 3A table 4-18).
#[test]
fn the_memory_type_of_a_block_is_not_part_of_its_frame() {
    for (what, level, leaf, x86, _) in leaves() {
        let decoded = X86_64::decode(level, Pte::from_raw(x86 | 1 << 12));
        let other = if level == Level::PTE { Leaf { pfn: Pfn::new(leaf.pfn.raw() | 1), ..leaf } } else { leaf };
        assert_eq!(decoded, Entry::Leaf(other), "{what}");
    }
}

/// The bits outside [`Isa::FRAME`] do not depend on the frame.
#[test]
fn the_frame_of_a_leaf_is_in_the_bits_of_the_frame() {
    fn check<I: Isa>(level: Level, leaf: Leaf) {
        let other = Leaf { pfn: Pfn::new(leaf.pfn.raw() ^ 0x3fc_0000), ..leaf };
        let (word, other_word) = (I::leaf(level, leaf).raw(), I::leaf(level, other).raw());
        assert_ne!(word & I::FRAME, other_word & I::FRAME);
        assert_eq!(word & !I::FRAME, other_word & !I::FRAME, "{leaf:?}");
        assert_eq!(I::decode(level, Pte::from_raw(word & !I::FRAME | other_word & I::FRAME)), Entry::Leaf(other));
    }
    for (_, level, leaf, _, _) in leaves() {
        check::<X86_64>(level, leaf);
        check::<Aarch64>(level, leaf);
    }
}

#[test]
fn tables_encode_to_the_words_of_the_manuals() {
    let open = TableEntry::own(Pfn::new(0xabc));
    let closed = TableEntry { write_protected: true, ..open };
    assert_eq!([open, closed].map(X86_64::table).map(Pte::raw), [0x00ab_c027, 0x00ab_c025]);
    assert_eq!([open, closed].map(Aarch64::table).map(Pte::raw), [0x00ab_c003, 0x4000_0000_00ab_c003]);
    // A bit that hardware ignores in a pointer (SDM vol. 3A table 4-15, Arm ARM D8.3.1).
    let lent = TableEntry { origin: true, ..closed };
    assert_eq!(X86_64::table(lent).raw(), 0x0010_0000_00ab_c025);
    assert_eq!(Aarch64::table(lent).raw(), 0x4010_0000_00ab_c003);
}

#[test]
fn soft_entries_leave_the_bits_that_mark_other_kinds_clear() {
    let full = SoftEntry { kind: SoftKind::Swap, exclusive: true, payload: (1 << SoftEntry::PAYLOAD_BITS) - 1 };
    assert_eq!(X86_64::soft(full).raw(), 0x07ff_ffff_ffff_fc22);
    assert_eq!(Aarch64::soft(full).raw(), 0x17ff_ffff_ffff_f822);
}

#[test]
fn user_memory_ends_at_linux_task_size() {
    assert_eq!(X86_64::USER_END.raw(), (1 << 47) - 4096, "TASK_SIZE_MAX of arch/x86");
    assert_eq!(Aarch64::USER_END.raw(), 1 << 48, "TASK_SIZE_64 of arch/arm64 with 48-bit addresses");
}
