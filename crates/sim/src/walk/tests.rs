//! The walker decodes the words of `arch`'s codecs as they were meant.

use super::*;
use pagewright_arch::{Aarch64, Isa, Leaf, LeafFlags, Pte, TableEntry, X86_64, on_both};
use pagewright_types::PAGE_SIZE;
use proptest::prelude::*;

fn one_step<I: Isa>(level: Level, word: Pte, access: Access) -> (WalkStep, Pte) {
    let ram = Ram::try_new(PAGE_SIZE).expect("one page");
    ram.word(PteSlot { table: Pfn::new(0), index: 0 }.addr()).store(word.raw(), Ordering::Relaxed);
    let walk = WalkPosition { level, table: Pfn::new(0), allows: Rights::all() };
    let step = walk.step((I::KIND, Privilege::User), &ram, VirtAddr::ZERO, access);
    let after = ram.word(PteSlot { table: Pfn::new(0), index: 0 }.addr()).load(Ordering::Relaxed);
    (step, Pte::from_raw(after))
}

fn leaves() -> impl Strategy<Value = (Level, Leaf)> {
    let rights =
        prop::sample::select(vec![Rights::empty(), Rights::READ, Rights::RW, Rights::RX, Rights::RW | Rights::EXEC]);
    (0u8..3, 0u32..64, rights, any::<u8>()).prop_map(|(level, block, rights, flags)| {
        let level = Level::new(level);
        let flags = LeafFlags::from_bits_truncate(flags) | LeafFlags::USER;
        (level, Leaf { pfn: Pfn::new(block * level.pages() as u32), rights, flags })
    })
}

fn agrees<I: Isa>(level: Level, leaf: Leaf, access: Access) {
    let word = I::leaf(level, leaf);
    let (step, after) = one_step::<I>(level, word, access);
    if !leaf.rights.allow(access) {
        let present = !leaf.rights.is_empty();
        assert_eq!((step, after), (WalkStep::Refused { present }, word), "{leaf:?}");
        return;
    }
    let store = access == Access::Write;
    assert_eq!(after, I::touched(word, store), "{leaf:?}");
    let WalkStep::Arrived { found, updated } = step else { panic!("{step:?} for {leaf:?}") };
    assert_eq!((found.pfn, found.level, found.rights), (leaf.pfn, level, leaf.rights));
    assert_eq!(found.global, leaf.flags.contains(LeafFlags::GLOBAL));
    assert_eq!(updated, after != word);
    // On arm64 a leaf that is not writable may be dirty by a software bit; no store reads it.
    if leaf.rights.contains(Rights::WRITE) {
        assert_eq!(found.dirty, store || leaf.flags.contains(LeafFlags::DIRTY));
    }
}

proptest! {
    #[test]
    fn the_walker_agrees_with_the_codecs_on_leaves((level, leaf) in leaves()) {
        for access in [Access::Read, Access::Write, Access::Exec] {
            agrees::<X86_64>(level, leaf, access);
            agrees::<Aarch64>(level, leaf, access);
        }
    }
}

/// INV-SIM-UPDATE.
#[test]
fn an_update_does_not_overwrite_an_entry_that_changed() {
    let ram = Ram::try_new(PAGE_SIZE).expect("one page");
    let (at, cell) = (PhysAddr::ZERO, ram.word(PhysAddr::ZERO));
    assert_eq!(update(&ram, at, 0x25, 0x65), Err(Changed), "the entry was cleared after it was read as 0x25");
    assert_eq!(cell.load(Ordering::Relaxed), 0);
    cell.store(0x25, Ordering::Relaxed);
    assert_eq!(update(&ram, at, 0x25, 0x65), Ok(true));
    assert_eq!(update(&ram, at, 0x65, 0x65), Ok(false), "no bit to set");
    assert_eq!(cell.load(Ordering::Relaxed), 0x65);
}

#[test]
fn a_leaf_of_the_kernel_is_refused() {
    let leaf = Leaf { pfn: Pfn::new(1), rights: Rights::RW, flags: LeafFlags::GLOBAL };
    for step in [
        one_step::<X86_64>(Level::PTE, X86_64::leaf(Level::PTE, leaf), Access::Read).0,
        one_step::<Aarch64>(Level::PTE, Aarch64::leaf(Level::PTE, leaf), Access::Read).0,
    ] {
        assert_eq!(step, WalkStep::Refused { present: true });
    }
}

fn write_protection_of_a_table_applies_to_all_leaves_below<I: Isa>() {
    let table = TableEntry { pfn: Pfn::new(5), write_protected: true, origin: false };
    let (step, _) = one_step::<I>(Level::PMD, I::table(table), Access::Write);
    let WalkStep::Down { next, .. } = step else { panic!("{step:?}") };
    assert_eq!((next.level, next.table), (Level::PTE, Pfn::new(5)));
    assert_eq!(next.allows, Rights::READ | Rights::EXEC, "write protection of a table applies to all leaves below");
}

on_both! { write_protection_of_a_table_applies_to_all_leaves_below }

#[test]
fn soft_and_malformed_words_are_refused() {
    assert_eq!(one_step::<X86_64>(Level::PTE, Pte::EMPTY, Access::Read).0, WalkStep::Refused { present: false });
    // A large leaf at PGD level has a reserved bit set on x86-64, and is an invalid descriptor on
    // arm64.
    let large = Pte::from_raw(1 | 1 << 7);
    assert_eq!(one_step::<X86_64>(Level::PGD, large, Access::Read).0, WalkStep::Refused { present: true });
    assert_eq!(one_step::<Aarch64>(Level::PGD, Pte::from_raw(1), Access::Read).0, WalkStep::Refused { present: false });
    // A block at PTE level: bit 1 must be set there (Arm ARM D8.3.1).
    assert_eq!(
        one_step::<Aarch64>(Level::PTE, Pte::from_raw(1 | 1 << 6), Access::Read).0,
        WalkStep::Refused { present: false }
    );
    // A 2 MiB leaf whose frame is not a multiple of 512.
    let odd = Pte::from_raw(1 | 1 << 2 | 1 << 7 | 1 << 13);
    assert_eq!(one_step::<X86_64>(Level::PMD, odd, Access::Read).0, WalkStep::Refused { present: true });
}
