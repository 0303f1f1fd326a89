//! The engine that broadcasts (arm64), and what both engines promise.
//!
//! Whatever happens, a CPU never uses a stale translation.

use super::space::{FRAMES, Space, flush_of, machine, page};
use crate::support::{Delivery, Effect, Host, Step, engine, on};
use pagewright_arch::{Aarch64, Caps, InvalidateScope, InvalidateTarget, Isa, X86_64};
use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
use pagewright_tlb::{FlushInfo, Tlb, TlbConfig, TlbSetupError};
use pagewright_types::{Access, Counter, CpuId, CpuMask, FrameRange, IsaKind, Level, NodeId, Pfn, Tag};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn targets(log: &[Step]) -> Vec<InvalidateTarget> {
    let ops = log.iter().filter_map(|step| match step.effect {
        Effect::Invalidate(op) => Some(op),
        _ => None,
    });
    ops.inspect(|op| assert_eq!(op.scope, InvalidateScope::Broadcast)).map(|op| op.target).collect()
}

fn with_caps<I: Isa>(cpus: usize, caps: Caps) -> (Host<I>, std::sync::Arc<Tlb<Host<I>>>) {
    let host = Host::new(cpus, FRAMES, caps, Delivery::AtOnce);
    let tlb = engine(&host, FRAMES);
    (host, tlb)
}

#[test]
fn a_flush_goes_page_by_page_below_max_dvm_ops() {
    let (host, tlb) = machine::<Aarch64>(4);
    let space = Space::new(&tlb);
    for (count, by_page) in [(1, true), (511, true), (512, false)] {
        let ((), log) = host.log(|| tlb.flush(&space.context, flush_of(count)));
        let done = targets(&log);
        assert_eq!(done.len() as u64, if by_page { count } else { 1 });
        assert_eq!(matches!(done[0], InvalidateTarget::Page { .. }), by_page);
        let waits = log.iter().filter(|step| step.effect == Effect::Complete).count();
        assert_eq!(waits, 1, "one barrier, whatever the number");
        assert!(!log.iter().any(|step| matches!(step.effect, Effect::SendIpi(_))));
    }
    assert_eq!(tlb.frames().counters().sum(Counter::NrTlbRemoteFlush), 3);
    assert_eq!(tlb.frames().counters().sum(Counter::NrTlbRemoteFlushReceived), 0);
}

/// The walk after it must find the entry that now allows the access (Arm ARM D8.2.6).
#[test]
fn an_entry_that_refused_is_forgotten_after_the_new_one_is_published() {
    let (host, tlb) = machine::<Aarch64>(2);
    let space = Space::new(&tlb);
    let ((), log) = host.log(|| tlb.fix_spurious_fault(&space.context, page(0), Level::PTE, false));
    let effects: Vec<_> = log.iter().map(|step| step.effect).collect();
    assert!(matches!(effects[..], [Effect::Publish, Effect::Invalidate(_)]), "{log:?}");
}

#[test]
fn a_range_is_one_operation_on_a_machine_with_tlbi_range() {
    let caps = Caps { range_invalidate: true, ..Caps::baseline(IsaKind::Aarch64) };
    let (host, tlb) = with_caps::<Aarch64>(2, caps);
    let space = Space::new(&tlb);
    let ((), log) = host.log(|| tlb.flush(&space.context, flush_of(100)));
    assert!(matches!(targets(&log)[..], [InvalidateTarget::Range { last_level: true, .. }]), "{log:?}");
    let ((), log) = host.log(|| tlb.flush(&space.context, flush_of(1)));
    assert!(matches!(targets(&log)[..], [InvalidateTarget::Page { .. }]), "{log:?}");
    for (count, by_range) in [(32 << 16, true), ((32 << 16) + 1, false)] {
        let ((), log) = host.log(|| tlb.flush(&space.context, flush_of(count)));
        let all = targets(&log);
        assert_eq!(all.len(), 1, "{count} pages");
        assert_eq!(matches!(all[0], InvalidateTarget::Range { .. }), by_range, "{count} pages: {all:?}");
    }
}

#[test]
fn a_machine_with_too_few_tags_is_refused() {
    let made = |tags| {
        let caps = Caps { tags, ..Caps::baseline(IsaKind::Aarch64) };
        let host = Host::<Aarch64>::new(4, FRAMES, caps, Delivery::AtOnce);
        let ranges = [FrameRange::new(Pfn::new(1), Pfn::new(FRAMES))];
        let nodes = [NodeSpec { id: NodeId::new(0), ranges: &ranges, cpus: CpuMask::first(4) }];
        let frames = FrameAllocator::try_new(host.clone(), &MemoryLayout::new(&nodes)).expect("a possible machine");
        Tlb::try_new(host, frames, TlbConfig::default()).err()
    };
    // One for each CPU, the empty root's, and one to give.
    assert!(made(6).is_none());
    assert!(matches!(made(5), Some(TlbSetupError::TooFewTags { tags: 5, cpus: 4 })));
}

/// INV-TLB-ROLLOVER with eight-bit ASIDs and more spaces than those.
#[test]
fn a_rollover_hides_translations_of_other_spaces() {
    let caps = Caps { tags: 256, ..Caps::baseline(IsaKind::Aarch64) };
    let host = Host::<Aarch64>::new(2, 4096, caps, Delivery::AtOnce);
    let tlb = engine(&host, 4096);
    let spaces: Vec<_> = (0..600).map(|_| Space::new(&tlb)).collect();
    let kept = &spaces[0];
    kept.map(0, Pfn::new(7));
    kept.run();
    let tag = host.root().expect("it runs").1;
    for _ in 0..2 {
        for (number, space) in spaces.iter().enumerate().skip(1) {
            space.map(0, Pfn::new(1000 + number as u32));
            on(1, || {
                space.run();
                let leaf = host.access(page(0), Access::Read).expect("mapped");
                assert_eq!(leaf.pfn, Pfn::new(1000 + number as u32));
                assert_ne!(host.root().expect("it runs").1, tag, "the tag in use on CPU 0");
            });
            assert!(host.access(page(0), Access::Read).is_some_and(|leaf| leaf.pfn == Pfn::new(7)));
        }
    }
    let rollovers = tlb.frames().counters().sum(Counter::PwTlbTagRollover);
    assert!((4..=5).contains(&rollovers), "1200 switches over 254 tags: {rollovers}");
    on(1, || kept.run());
    assert_eq!(on(1, || host.root()).map(|root| root.1), Some(tag), "a running space keeps its tag");
}

/// INV-TLB-ROLLOVER: a new generation has all tags but the reserved one and those that run.
#[test]
fn a_rollover_takes_every_tag_back() {
    const TAGS: usize = 130;
    let caps = Caps { tags: TAGS as u32, ..Caps::baseline(IsaKind::Aarch64) };
    let tlb = engine(&Host::<Aarch64>::new(1, 4096, caps, Delivery::AtOnce), 4096);
    let rollovers = || tlb.frames().counters().sum(Counter::PwTlbTagRollover);
    // The first generation serves one space for each tag but the reserved one; each later one has
    // the space that ran when it began, too.
    let (first, later) = (TAGS - 1, TAGS - 2);
    for number in 1..=first + 2 * later + 1 {
        Space::new(&tlb).run();
        let expected = number.saturating_sub(first).div_ceil(later);
        assert_eq!(rollovers(), expected as u64, "space {number}");
    }
}

/// INV-TLB-ROLLOVER: a new generation begins once every tag of the present one is taken.
///
/// A space that runs meanwhile keeps its tag, and another gets its last one back if that is free.
fn tags_are_taken_back_only_when_none_is_left(caps: Caps, switches: &[(u16, usize)]) {
    let (host, tlb) = with_caps::<Aarch64>(usize::from(CPUS), caps);
    let spaces: Vec<_> = (0..SPACES).map(|_| Space::new(&tlb)).collect();
    let step = if caps.user_tag_bit.is_some() { 2 } else { 1 };
    let all = caps.tags / step - 1;
    let (mut last, mut running) = ([None; SPACES], [None; CPUS as usize]);
    // The tags taken in this generation, and the spaces that have one.
    let (mut taken, mut holders) = (BTreeSet::new(), BTreeSet::new());
    for &(cpu, number) in switches {
        let rollovers = || tlb.frames().counters().sum(Counter::PwTlbTagRollover);
        let before = rollovers();
        on(cpu, || spaces[number].run());
        // The machine names the tag of user mode, of the two.
        let tag = on(cpu, || host.root()).expect("it runs").1.raw() / step as u16;
        assert!((1..=all).contains(&u32::from(tag)), "{tag}");
        let expected = !holders.contains(&number) && taken.len() as u32 == all;
        assert_eq!(rollovers() - before, u64::from(expected), "{} of {all} tags are taken", taken.len());
        if holders.contains(&number) {
            assert_eq!(Some(tag), last[number], "the tag of a generation is the space's to its end");
        } else if expected {
            holders = running.iter().flatten().copied().collect();
            taken = holders.iter().filter_map(|number| last[*number]).collect();
        } else if let Some(old) = last[number].filter(|old| !taken.contains(old)) {
            assert_eq!(tag, old, "the space's last tag is free");
        }
        assert!(holders.contains(&number) || taken.insert(tag), "tag {tag} is taken");
        holders.insert(number);
        (last[number], running[usize::from(cpu)]) = (Some(tag), Some(number));
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Switch { cpu: u16, space: usize },
    Lazy { cpu: u16 },
    Leave { cpu: u16 },
    Touch { cpu: u16, page: u16 },
    Map { space: usize, page: u16, frame: u32 },
    Unmap { cpu: u16, space: usize, page: u16 },
    FlushAll { cpu: u16, space: usize, freed_tables: bool },
    SettleAll { cpu: u16 },
}

const CPUS: u16 = 3;
const SPACES: usize = 9;
const PAGES: u16 = 4;

fn act() -> impl Strategy<Value = Act> {
    let (cpu, space, page) = (0..CPUS, 0..SPACES, 0..PAGES);
    prop_oneof![
        6 => (cpu.clone(), space.clone()).prop_map(|(cpu, space)| Act::Switch { cpu, space }),
        1 => cpu.clone().prop_map(|cpu| Act::Lazy { cpu }),
        1 => cpu.clone().prop_map(|cpu| Act::Leave { cpu }),
        6 => (cpu.clone(), page.clone()).prop_map(|(cpu, page)| Act::Touch { cpu, page }),
        4 => (space.clone(), page.clone(), 1..500u32).prop_map(|(space, page, frame)| Act::Map { space, page, frame }),
        3 => (cpu.clone(), space.clone(), page).prop_map(|(cpu, space, page)| Act::Unmap { cpu, space, page }),
        1 => (cpu.clone(), space, any::<bool>()).prop_map(|(cpu, space, freed_tables)| Act::FlushAll { cpu, space, freed_tables }),
        1 => cpu.prop_map(|cpu| Act::SettleAll { cpu }),
    ]
}

/// Does `acts` on a machine, and asserts after each that no CPU can use what is gone.
///
/// Only CPUs that run a program count (INV-TLB-SWITCH).
/// Every flush is counted as what it was, and nothing else is.
fn no_cpu_uses_a_stale_translation<I: Isa>(caps: Caps, acts: &[Act]) {
    let (host, tlb) = with_caps::<I>(usize::from(CPUS), caps);
    let spaces: Vec<_> = (0..SPACES).map(|_| Space::new(&tlb)).collect();
    let ((), log) = host.log(|| act_on(&host, &tlb, &spaces, acts));
    let roots: Vec<Pfn> = spaces.iter().map(|space| space.context.root()).collect();
    let counted = |counter| tlb.frames().counters().sum(counter);
    let flushes = [
        Counter::NrTlbRemoteFlush,
        Counter::NrTlbRemoteFlushReceived,
        Counter::NrTlbLocalFlushAll,
        Counter::NrTlbLocalFlushOne,
    ];
    assert_eq!(flushes.map(counted), flushes_in::<I>(&log, &roots));
}

/// The shootdowns, those received, and the local flushes of everything and of pages in a log.
fn flushes_in<I: Isa>(log: &[Step], roots: &[Pfn]) -> [u64; 4] {
    let (mut remote, mut received, mut everything, mut pages) = (0_i64, 0, 0, 0);
    for step in log {
        match step.effect {
            Effect::SendIpi(targets) => {
                remote += 1;
                received += u64::from(targets.count());
            }
            Effect::Complete if I::KIND == IsaKind::Aarch64 => remote += 1,
            Effect::Invalidate(op) if op.scope == InvalidateScope::Local => match op.target {
                InvalidateTarget::Page { .. } | InvalidateTarget::PageOfAllTags { .. } => pages += 1,
                InvalidateTarget::Range { .. } => panic!("no CPU flushes a range by itself"),
                InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => {
                    everything += 1;
                    // On arm64 a barrier of its own completes it.
                    remote -= i64::from(I::KIND == IsaKind::Aarch64);
                }
            },
            Effect::Root { root, keep: false, .. } if roots.contains(&root) => everything += 1,
            Effect::Root { .. }
            | Effect::Invalidate(_)
            | Effect::Complete
            | Effect::Store(..)
            | Effect::Publish
            | Effect::Answered => {}
        }
    }
    [remote.unsigned_abs(), received, everything, pages]
}

fn act_on<I: Isa>(host: &Host<I>, tlb: &Tlb<Host<I>>, spaces: &[Space<I>], acts: &[Act]) {
    let mut lazy = BTreeSet::new();
    for act in acts {
        match *act {
            Act::Switch { cpu, space } => {
                lazy.remove(&cpu);
                on(cpu, || spaces[space].run());
            }
            Act::Lazy { cpu } => {
                lazy.insert(cpu);
                on(cpu, || tlb.enter_lazy());
            }
            Act::Leave { cpu } => {
                lazy.remove(&cpu);
                on(cpu, || tlb.leave_space());
            }
            Act::Touch { cpu, page: index } => {
                if !lazy.contains(&cpu) {
                    on(cpu, || host.access(page(index), Access::Write));
                }
            }
            Act::Map { space, page: index, frame } => {
                let space = &spaces[space];
                if host.walk(space.context.root(), page(index)).is_none() {
                    space.map(index, Pfn::new(frame));
                }
            }
            Act::Unmap { cpu, space, page: index } => on(cpu, || spaces[space].clear(index).settle()),
            Act::FlushAll { cpu, space, freed_tables } => on(cpu, || {
                tlb.flush(&spaces[space].context, FlushInfo { range: None, level: Level::PTE, freed_tables });
            }),
            Act::SettleAll { cpu } => on(cpu, || tlb.settle(tlb.ledger().open(CpuMask::first(usize::from(CPUS))))),
        }
        let mut tags = Vec::new();
        for cpu in (0..CPUS).filter(|cpu| !lazy.contains(cpu)) {
            host.assert_fresh(CpuId::new(cpu));
            tags.extend(on(cpu, || host.root()));
        }
        if I::KIND == IsaKind::Aarch64 {
            let distinct = |of: &dyn Fn(usize) -> u32| (0..tags.len()).map(of).collect::<BTreeSet<_>>().len();
            let (roots, numbers) = (distinct(&|at| tags[at].0.raw()), distinct(&|at| u32::from(tags[at].1.raw())));
            assert_eq!(roots, numbers, "each running space has one tag, and each tag one space: {tags:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_cpu_uses_a_stale_translation_with_pcids(acts in proptest::collection::vec(act(), 1..300)) {
        no_cpu_uses_a_stale_translation::<X86_64>(Caps::baseline(IsaKind::X86_64), &acts);
    }

    #[test]
    fn no_cpu_uses_a_stale_translation_without_tags(acts in proptest::collection::vec(act(), 1..300)) {
        let caps = Caps { tagged: false, ..Caps::baseline(IsaKind::X86_64) };
        no_cpu_uses_a_stale_translation::<X86_64>(caps, &acts);
    }

    /// INV-TLB-ROLLOVER: as few tags as the engine accepts, so that they run out all the time.
    #[test]
    fn no_cpu_uses_a_stale_translation_with_few_asids(acts in proptest::collection::vec(act(), 1..300)) {
        let caps = Caps { tags: u32::from(CPUS) + 2, ..Caps::baseline(IsaKind::Aarch64) };
        no_cpu_uses_a_stale_translation::<Aarch64>(caps, &acts);
    }

    #[test]
    fn tags_are_taken_back_only_when_none_is_left_of_one_or_two_for_each_space(
        tags in u32::from(CPUS) + 2..16,
        switches in proptest::collection::vec((0..CPUS, 0..SPACES), 1..300),
    ) {
        let baseline = Caps::baseline(IsaKind::Aarch64);
        tags_are_taken_back_only_when_none_is_left(Caps { tags, ..baseline }, &switches);
        let caps = Caps { tags: 2 * tags, user_tag_bit: Some(Tag::new(1)), ..baseline };
        tags_are_taken_back_only_when_none_is_left(caps, &switches);
    }

    #[test]
    fn no_cpu_uses_a_stale_translation_with_repeated_invalidations(acts in proptest::collection::vec(act(), 1..300)) {
        let caps = Caps { tags: 7, repeat_invalidate: true, ..Caps::baseline(IsaKind::Aarch64) };
        no_cpu_uses_a_stale_translation::<Aarch64>(caps, &acts);
    }

    #[test]
    fn no_cpu_uses_a_stale_translation_with_ranges(acts in proptest::collection::vec(act(), 1..300)) {
        let caps = Caps { tags: 7, range_invalidate: true, ..Caps::baseline(IsaKind::Aarch64) };
        no_cpu_uses_a_stale_translation::<Aarch64>(caps, &acts);
    }
}
