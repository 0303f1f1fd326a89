//! The engine that interrupts (x86-64): what a flush costs, and which CPUs get an IPI.
//!
//! The generation catches up the others.

use super::space::{FRAMES, Space, flush_of, machine, page};
use crate::support::{Delivery, Effect, Host, Step, engine, on};
use pagewright_arch::{Caps, InvalidateTarget, X86_64};
use pagewright_tlb::{FlushInfo, Tlb, TlbContext};
use pagewright_types::{Access, Counter, CpuId, CpuMask, IsaKind, Level, PageRange, Pfn, Tag, VirtAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn ipis(log: &[Step]) -> Vec<CpuMask> {
    let targets = log.iter().filter_map(|step| match step.effect {
        Effect::SendIpi(targets) => Some(targets),
        _ => None,
    });
    targets.collect()
}

/// What one CPU invalidated.
fn targets(log: &[Step], cpu: u16) -> Vec<InvalidateTarget> {
    let own = log.iter().filter(|step| step.cpu == CpuId::new(cpu));
    let targets = own.filter_map(|step| match step.effect {
        Effect::Invalidate(op) => Some(op.target),
        _ => None,
    });
    targets.collect()
}

fn one(cpu: u16) -> CpuMask {
    CpuMask::of(CpuId::new(cpu))
}

fn run_on_two(space: &Space<X86_64>) {
    space.run();
    on(1, || space.run());
}

#[test]
fn a_flush_goes_page_by_page_up_to_the_ceiling() {
    let (host, tlb) = machine::<X86_64>(2);
    let space = Space::new(&tlb);
    run_on_two(&space);
    for (count, by_page) in [(1, true), (33, true), (34, false)] {
        let ((), log) = host.log(|| tlb.flush(&space.context, flush_of(count)));
        assert_eq!(ipis(&log), [one(1)]);
        for cpu in 0..2 {
            let done = targets(&log, cpu);
            let each = done.iter().all(|target| matches!(target, InvalidateTarget::Page { last_level: true, .. }));
            assert_eq!((done.len() as u64, each), if by_page { (count, true) } else { (1, false) }, "{done:?}");
        }
    }
    assert_eq!(tlb.frames().counters().sum(Counter::NrTlbRemoteFlush), 3);
    assert_eq!(tlb.frames().counters().sum(Counter::NrTlbRemoteFlushReceived), 3);
    assert_eq!(tlb.frames().counters().sum(Counter::NrTlbLocalFlushOne), 2 * 34);
}

#[test]
fn the_stride_is_that_of_the_level() {
    let (host, tlb) = machine::<X86_64>(1);
    let space = Space::new(&tlb);
    space.run();
    let huge = PageRange::new(page(0), page(0).add(3 * Level::PMD.span()));
    let flush = FlushInfo { range: Some(huge), level: Level::PMD, freed_tables: false };
    let ((), log) = host.log(|| tlb.flush(&space.context, flush));
    assert_eq!(targets(&log, 0).len(), 3);
}

/// What a sender asks reaches a target as it was meant, whatever it is.
#[test]
fn a_target_flushes_the_range_of_the_sender() {
    let (host, tlb) = machine::<X86_64>(2);
    let space = Space::new(&tlb);
    run_on_two(&space);
    let last = PageRange::new(VirtAddr::new(0x7fff_ffff_e000), VirtAddr::new(0x7fff_ffff_f000));
    for level in [Level::PTE, Level::PMD, Level::PUD] {
        let far = PageRange::new(VirtAddr::new(5 * level.span()), VirtAddr::new(9 * level.span()));
        for (range, freed_tables) in
            [Some(far), Some(last), None].into_iter().flat_map(|range| [(range, false), (range, true)])
        {
            let flush = FlushInfo { range, level, freed_tables };
            let ((), log) = host.log(|| tlb.flush(&space.context, flush));
            let (mine, theirs) = (targets(&log, 0), targets(&log, 1));
            assert_eq!(mine.len(), if range == Some(far) { 4 } else { 1 }, "{flush:?}");
            assert_eq!(
                mine.iter().map(untagged).collect::<Vec<_>>(),
                theirs.iter().map(untagged).collect::<Vec<_>>(),
                "{flush:?}"
            );
        }
    }
}

/// Each CPU has tags of its own.
fn untagged(target: &InvalidateTarget) -> InvalidateTarget {
    match *target {
        InvalidateTarget::Page { va, level, last_level, .. } => {
            InvalidateTarget::Page { tag: Tag::new(0), va, level, last_level }
        }
        InvalidateTarget::Range { range, level, last_level, .. } => {
            InvalidateTarget::Range { tag: Tag::new(0), range, level, last_level }
        }
        InvalidateTarget::Tag(_) => InvalidateTarget::Tag(Tag::new(0)),
        same @ (InvalidateTarget::PageOfAllTags { .. } | InvalidateTarget::AllTags | InvalidateTarget::Everything) => {
            same
        }
    }
}

/// A flush page by page is enough only for a CPU that has seen all flushes before it.
#[test]
fn a_cpu_that_missed_a_flush_flushes_the_whole_tag() {
    let (host, tlb) = machine::<X86_64>(2);
    let space = Space::new(&tlb);
    space.map(0, Pfn::new(40));
    space.map(1, Pfn::new(41));
    on(1, || {
        space.run();
        assert!(host.access(page(0), Access::Read).is_some() && host.access(page(1), Access::Read).is_some());
    });
    // A debt that was dropped moves the generation, and no CPU gets an IPI.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(space.clear(0))));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    let ((), log) = host.log(|| space.clear(1).settle());
    assert!(matches!(targets(&log, 1)[..], [InvalidateTarget::Tag(_)]), "{log:?}");
    host.assert_fresh(CpuId::new(1));
    let ((), log) = host.log(|| tlb.flush(&space.context, flush_of(1)));
    assert!(matches!(targets(&log, 1)[..], [InvalidateTarget::Page { .. }]), "it has caught up: {log:?}");
}

#[test]
fn a_lazy_cpu_gets_no_ipi_until_it_runs_the_space_again() {
    let (host, tlb) = machine::<X86_64>(3);
    let space = Space::new(&tlb);
    for index in 0..2 {
        space.map(index, Pfn::new(40 + u32::from(index)));
    }
    for cpu in 1..3 {
        on(cpu, || {
            space.run();
            assert!(host.access(page(0), Access::Read).is_some());
        });
    }
    on(1, || tlb.enter_lazy());
    let ((), log) = host.log(|| space.clear(0).settle());
    assert_eq!(ipis(&log), [one(2)], "CPU 1 runs no user code");
    on(1, || space.run());
    // INV-TLB-SWITCH: it looks at the generation before user mode does.
    host.assert_fresh(CpuId::new(1));
    on(1, || tlb.enter_lazy());
    let ((), log) = host.log(|| on(1, || space.run()));
    assert_eq!(log, [], "coming back is free when nothing happened");
}

#[test]
fn a_lazy_cpu_leaves_the_root_when_tables_are_freed() {
    let (host, tlb) = machine::<X86_64>(2);
    let space = Space::new(&tlb);
    on(1, || space.run());
    on(1, || tlb.enter_lazy());
    let ((), log) = host.log(|| tlb.flush(&space.context, FlushInfo { freed_tables: true, ..flush_of(1) }));
    assert_eq!(ipis(&log), [one(1)]);
    assert_ne!(on(1, || host.root()).map(|(root, _)| root), Some(space.context.root()), "it walks them no more");
    assert!(space.context.cpus().is_empty());
}

#[test]
fn a_cpu_that_switched_away_is_not_interrupted_and_catches_up() {
    let (host, tlb) = machine::<X86_64>(2);
    let (first, second) = (Space::new(&tlb), Space::new(&tlb));
    first.map(0, Pfn::new(40));
    on(1, || {
        first.run();
        assert!(host.access(page(0), Access::Read).is_some());
        second.run();
    });
    let ((), log) = host.log(|| first.clear(0).settle());
    assert_eq!(ipis(&log), []);
    let ((), log) = host.log(|| on(1, || first.run()));
    assert!(matches!(log[..], [Step { effect: Effect::Root { keep: false, .. }, .. }]), "{log:?}");
    host.assert_fresh(CpuId::new(1));
    let ((), log) = host.log(|| {
        on(1, || second.run());
        on(1, || first.run());
    });
    let kept = log.iter().filter(|step| matches!(step.effect, Effect::Root { keep: true, .. })).count();
    assert_eq!(kept, 2, "nothing happened to either: {log:?}");
}

fn run(tlb: &Tlb<Host<X86_64>>, context: &pagewright_sync::Arc<TlbContext>, host: &Host<X86_64>) -> bool {
    let ((), log) = host.log(|| tlb.switch_to(context));
    log.iter().any(|step| matches!(step.effect, Effect::Root { keep: true, .. }))
}

#[test]
fn a_cpu_keeps_the_translations_of_six_spaces() {
    let (host, tlb) = machine::<X86_64>(1);
    let spaces: Vec<_> = (0..7).map(|_| Space::new(&tlb)).collect();
    let mut tags = Vec::new();
    for space in &spaces[..6] {
        assert!(!run(&tlb, &space.context, &host), "nothing to keep the first time");
        tags.push(host.root().expect("it runs").1);
    }
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 6, "each has its own");
    assert!(spaces[..6].iter().all(|space| run(&tlb, &space.context, &host)));
    assert!(!run(&tlb, &spaces[6].context, &host));
    let kept = spaces[..6].iter().filter(|space| run(&tlb, &space.context, &host)).count();
    assert!(kept < 6, "one space has lost its slot");
}

#[test]
fn without_tags_every_switch_flushes() {
    let caps = Caps { tagged: false, ..Caps::baseline(IsaKind::X86_64) };
    let host = Host::<X86_64>::new(1, FRAMES, caps, Delivery::AtOnce);
    let tlb = engine(&host, FRAMES);
    let (first, second) = (Space::new(&tlb), Space::new(&tlb));
    for _ in 0..3 {
        assert!(!run(&tlb, &first.context, &host));
        assert!(!run(&tlb, &second.context, &host));
    }
    assert_eq!(tlb.frames().counters().sum(Counter::NrTlbLocalFlushAll), 6);
}

/// INV-TLB-WAIT: a caller that may not wait must not flush.
#[test]
#[cfg_attr(debug_assertions, should_panic = "INV-TLB-WAIT")]
fn a_flush_in_a_context_that_may_not_wait_panics() {
    let (host, tlb) = machine::<X86_64>(1);
    let space = Space::new(&tlb);
    host.allow_waiting(false);
    tlb.flush(&space.context, flush_of(1));
}
