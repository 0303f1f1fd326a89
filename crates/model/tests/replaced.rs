//! O2 on arm64: break before make, on histories made by hand (INV-ORACLE-O2).

use crate::support::{ABOVE, CPU0, FRAME, LAST, Machine, ROOT, TAG, VA};
use pagewright_model::{Antecedent, Oracle, Rule};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Fact, Judge, LogicalPage, Witness};
use pagewright_types::{FrameRange, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights, Tag};

const SLOT: PhysAddr = PhysAddr::new((0x13 << 12) + 7 * 8);
const NEW: Pfn = Pfn::new(0x2222);

/// CPU 1 caches [`VA`] with rights `old`; then NEW is stored there with rights `new`.
struct Replacement {
    isa: IsaKind,
    old: Rights,
    new: (Pfn, Rights),
    /// The old entry is cleared and, if set, a TLBI completes in between.
    broken: Option<bool>,
    tag: Tag,
    equal: bool,
}

const PLAIN: Replacement =
    Replacement { isa: IsaKind::Aarch64, old: Rights::RW, new: (NEW, Rights::RW), broken: None, tag: TAG, equal: true };

impl Replacement {
    fn run(&self) -> (Machine, Oracle) {
        let (mut machine, mut oracle) = (Machine::new(self.isa), Oracle::new(self.isa));
        machine.map(VA, FRAME, self.old);
        machine.walked(ROOT, LAST, VA, FRAME);
        machine.fill(self.old, CachedEntryState::Usable);
        machine.cached[0].tag = self.tag;
        if !self.equal {
            machine.put_word(FRAME.base(), 1);
        }
        let mut store = |machine: &mut Machine, new: u64| {
            let old = machine.put_word(SLOT, new);
            oracle.entry_stored(machine, CPU0, SLOT, old, new);
        };
        if let Some(flushed) = self.broken {
            store(&mut machine, 0);
            if flushed {
                machine.flush();
            }
        }
        let new = machine.leaf(self.new.0, self.new.1);
        store(&mut machine, new);
        (machine, oracle)
    }

    fn found(&self) -> Vec<Rule> {
        self.run().1.violations().iter().map(|violation| violation.rule).collect()
    }
}

#[test]
fn another_frame_needs_break_before_make() {
    assert_eq!(PLAIN.found(), [Rule::Rights]);
    assert_eq!(Replacement { broken: Some(false), ..PLAIN }.found(), [Rule::Rights], "no TLBI after the break");
    let correct = Replacement { broken: Some(true), ..PLAIN };
    assert_eq!(correct.found(), []);
    assert_eq!(correct.run().1.tally().of(Antecedent::EntryReplaced), 1);
    assert_eq!(Replacement { isa: IsaKind::X86_64, ..PLAIN }.found(), [], "the SDM has no such rule");
    assert_eq!(Replacement { tag: Tag::new(9), ..PLAIN }.found(), [], "left by a space that has ended");
    assert_eq!(Replacement { new: (FRAME, Rights::READ), ..PLAIN }.found(), [], "O2 judges rights at the return");
}

#[test]
fn two_read_only_leaves_with_equal_contents_need_none_until_a_store() {
    let exempt = Replacement { old: Rights::READ, new: (NEW, Rights::READ), ..PLAIN };
    assert_eq!(exempt.found(), []);
    assert_eq!(exempt.run().1.tally().of(Antecedent::ReplacedReadOnly), 1);
    for frame in [FRAME, NEW] {
        let (mut machine, mut oracle) = exempt.run();
        oracle.written(&machine, CPU0, FrameRange::new(frame, frame.add(1)));
        assert_eq!(oracle.found(), 1, "a store before the TLBI completes");
        (machine, oracle) = exempt.run();
        machine.flush();
        oracle.written(&machine, CPU0, FrameRange::new(frame, frame.add(1)));
        assert_eq!(oracle.found(), 0);
    }
    assert_eq!(Replacement { equal: false, ..exempt }.found(), [Rule::Rights]);
    assert_eq!(Replacement { old: Rights::RW, ..exempt }.found(), [Rule::Rights]);
    assert_eq!(Replacement { new: (NEW, Rights::RW), ..exempt }.found(), [Rule::Rights]);
}

#[test]
fn a_replacement_without_break_defers_nothing() {
    let (machine, mut oracle) = (Replacement { old: Rights::READ, new: (NEW, Rights::READ), ..PLAIN }).run();
    machine.reduced(&mut oracle, CPU0, Rights::empty());
    machine.returned(&mut oracle, CPU0);
    assert_eq!(oracle.found(), 1, "the old translation must be gone when the call returns");
    let noted = [Antecedent::RightDeferred, Antecedent::DeferralEnded].map(|what| oracle.tally().of(what));
    assert_eq!(noted, [0, 0]);
}

#[test]
fn truncation_ends_the_deferral_of_a_page_and_not_what_a_replaced_entry_forbids() {
    let (machine, mut oracle) = (Replacement { old: Rights::READ, new: (NEW, Rights::READ), ..PLAIN }).run();
    let (range, page) = (PageRange::page(VA), LogicalPage::Anon { id: 1 });
    oracle.fact(&machine, CPU0, Fact::RightDeferred { root: ROOT, range, frame: FRAME, copy: Some(NEW), page });
    oracle.fact(&machine, CPU0, Fact::PageReplaced { page });
    assert_eq!((oracle.found(), oracle.tally().of(Antecedent::DeferralEnded)), (1, 1));
    oracle.written(&machine, CPU0, FrameRange::new(NEW, NEW.add(1)));
    assert_eq!(oracle.found(), 2, "a store before the TLBI completes");
}

/// Arm ARM D8.5: DBM lets hardware make a read-only leaf writable.
#[test]
fn a_writable_clean_leaf_counts_as_writable_even_below_a_protected_pointer() {
    let (mut machine, mut oracle) = (Machine::new(IsaKind::Aarch64), Oracle::new(IsaKind::Aarch64));
    machine.link(crate::support::ABOVE, Some((LAST, Rights::RX)));
    machine.map(VA, FRAME, Rights::READ);
    machine.walked(ROOT, LAST, VA, FRAME);
    machine.fill(Rights::READ, CachedEntryState::Usable);
    let new = machine.leaf(NEW, Rights::READ) | 1 << 51;
    let old = machine.put_word(SLOT, new);
    oracle.entry_stored(&machine, CPU0, SLOT, old, new);
    assert_eq!(oracle.found(), 1);
}

#[test]
fn another_table_or_another_size_needs_break_before_make() {
    let at = PhysAddr::new(0x12 << 12);
    let history = |flushed: bool, new: fn(&Machine) -> u64| {
        let (mut machine, mut oracle) = (Machine::new(IsaKind::Aarch64), Oracle::new(IsaKind::Aarch64));
        machine.walked(ROOT, Pfn::new(0x12), VA.align_down(Level::PMD.span()), LAST);
        machine.remember(
            CachedEntryKind::Table { table: LAST, allows: Rights::all() },
            Level::PMD,
            CachedEntryState::Usable,
        );
        if flushed {
            machine.flush();
        }
        let new = new(&machine);
        let old = machine.put_word(at, new);
        oracle.entry_stored(&machine, CPU0, at, old, new);
        assert_eq!(oracle.tally().of(Antecedent::EntryReplaced), u64::from(new >> 12 & 0xff != 0x13));
        oracle.found()
    };
    assert_eq!(history(false, |_| 0x14 << 12 | 3), 1);
    assert_eq!(history(true, |_| 0x14 << 12 | 3), 0);
    assert_eq!(history(false, |_| 0x13 << 12 | 3 | 1 << 62), 0, "the same table, write-protected");
    let (mut machine, mut oracle) = (Machine::new(IsaKind::Aarch64), Oracle::new(IsaKind::Aarch64));
    machine.walked(ROOT, Pfn::new(0x12), VA.align_down(Level::PMD.span()), LAST);
    machine.fill(Rights::READ, CachedEntryState::Usable);
    let block = machine.leaf(Pfn::new(0x1200), Rights::READ) & !2;
    let old = machine.put_word(at, block);
    oracle.entry_stored(&machine, CPU0, at, old, block);
    assert_eq!(oracle.found(), 1, "a page of the table is still cached");
}

/// A live block is replaced by a table that maps two pages, the second `page`, or the reverse.
fn resized(level_2: bool, to_table: bool, page: Pfn, held: CachedEntryKind) -> (u64, u64) {
    let (mut machine, mut oracle) = (Machine::new(IsaKind::Aarch64), Oracle::new(IsaKind::Aarch64));
    if level_2 {
        oracle = oracle.with_bbm_level_2();
    }
    let (at, block) = (ABOVE.base(), machine.leaf(Pfn::new(0x1200), Rights::READ) & !2);
    // The first page of the span is not mapped.
    machine.map(VA, Pfn::new(0x1207), Rights::READ);
    machine.map(VA.add(1 << 12), page, Rights::READ);
    let pointer = machine.word(at);
    let (old, new, old_pfn) = if to_table { (block, pointer, Pfn::new(0x1200)) } else { (pointer, block, LAST) };
    machine.put_word(at, old);
    machine.walked(ROOT, ABOVE, VA.align_down(Level::PMD.span()), old_pfn);
    machine.remember(held, Level::PMD, CachedEntryState::Usable);
    machine.put_word(at, new);
    oracle.entry_stored(&machine, CPU0, at, old, new);
    (oracle.found(), oracle.tally().of(Antecedent::ReplacedSize))
}

#[test]
fn a_block_and_a_table_may_replace_each_other_only_at_level_2_and_with_the_same_frames() {
    let block = CachedEntryKind::Translation { pfn: Pfn::new(0x1200), rights: Rights::READ };
    let table = CachedEntryKind::Table { table: LAST, allows: Rights::all() };
    let (same, other) = (Pfn::new(0x1208), Pfn::new(0x1209));
    for (to_table, held) in [(true, block), (false, table)] {
        assert_eq!(resized(false, to_table, same, held), (1, 0));
        assert_eq!(resized(true, to_table, same, held), (0, 1));
        assert_eq!(resized(true, to_table, other, held), (1, 0));
    }
}
