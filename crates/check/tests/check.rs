//! Page-table code as an embedder would write it, with raw words and no types of `arch`.
//!
//! The correct code is clean. Each of its bugs is found by the rule that it breaks (INV-ORACLE-O1,
//! INV-ORACLE-O2).

use pagewright_arch::on_both;
use pagewright_check::{
    Aarch64, Check, CheckFinding, Cpu, CpuProgram, Harness, HarnessLock, InvalidateScope, Isa, IsaKind, PageRange, Pfn,
    PhysAddr, Rights, Rule, Tag, VirtAddr, X86_64, program,
};
use std::rc::Rc;

on_both! {
    correct_code_is_clean,
    incomplete_flushes_are_found,
}

const PAGE: VirtAddr = VirtAddr::new(0x40_0000);

/// How an unmap flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushing {
    Correct,
    NoFlush,
    LocalOnly,
    AfterFree,
    NotPublished,
    NotWaitedFor,
}

/// An address space with a lock.
struct Space<I: Isa> {
    harness: Harness<I>,
    root: Pfn,
    lock: HarnessLock<()>,
}

fn table_word<I: Isa>(table: Pfn) -> u64 {
    match I::KIND {
        IsaKind::X86_64 => table.base().raw() | 0b111,
        IsaKind::Aarch64 => table.base().raw() | 0b11,
    }
}

fn page_word<I: Isa>(page: Pfn, writable: bool) -> u64 {
    match I::KIND {
        IsaKind::X86_64 => page.base().raw() | 0b101 | u64::from(writable) << 1,
        // AF, inner shareable, EL0; AP[2] set for read-only.
        IsaKind::Aarch64 => page.base().raw() | 1 << 10 | 0b11 << 8 | 1 << 6 | u64::from(!writable) << 7 | 0b11,
    }
}

impl<I: Isa> Space<I> {
    /// A space with [`PAGE`] mapped, loaded on all CPUs.
    fn new(harness: &Harness<I>) -> Rc<Self> {
        let space = Self { harness: harness.clone(), root: harness.alloc_frame(), lock: HarnessLock::new(()) };
        space.map(&harness.cpu(0), PAGE, harness.alloc_frame());
        harness.cpus().for_each(|cpu| cpu.load_root(space.root, Tag::new(1)));
        Rc::new(space)
    }

    /// The address of the entry of `level` for `va`; missing tables are allocated.
    fn entry(&self, cpu: &Cpu<I>, va: VirtAddr, level: u32) -> PhysAddr {
        let mut table = self.root;
        let mut at = 3;
        loop {
            let entry = table.base().add((va.raw() >> (12 + 9 * at) & 511) * 8);
            if at == level {
                return entry;
            }
            table = match cpu.load(entry) {
                0 => {
                    let below = self.harness.alloc_frame();
                    cpu.store(entry, table_word::<I>(below));
                    below
                }
                word => Pfn::containing(PhysAddr::new(word & 0xffff_ffff_f000)),
            };
            at -= 1;
        }
    }

    fn map(&self, cpu: &Cpu<I>, va: VirtAddr, page: Pfn) {
        let entry = self.entry(cpu, va, 0);
        cpu.store(entry, page_word::<I>(page, true));
        cpu.publish();
    }

    /// Flushes `va` on all CPUs, as far as `how` goes.
    fn flush(&self, cpu: &Cpu<I>, va: VirtAddr, how: Flushing) {
        if how == Flushing::NoFlush {
            return;
        }
        match I::KIND {
            IsaKind::X86_64 => {
                cpu.flush_page(va, InvalidateScope::Local);
                match how {
                    Flushing::LocalOnly => {}
                    Flushing::NotWaitedFor => {
                        cpu.send_ipi(cpu.others(), move |cpu| cpu.flush_page(va, InvalidateScope::Local)).ignore()
                    }
                    Flushing::Correct | Flushing::NoFlush | Flushing::AfterFree | Flushing::NotPublished => {
                        cpu.shoot_down(cpu.others(), move |cpu| cpu.flush_page(va, InvalidateScope::Local))
                    }
                }
            }
            IsaKind::Aarch64 => {
                cpu.flush_page(
                    va,
                    if how == Flushing::LocalOnly { InvalidateScope::Local } else { InvalidateScope::Broadcast },
                );
                if how != Flushing::NotWaitedFor {
                    cpu.complete();
                }
            }
        }
    }

    /// Unmaps `va`, and frees its frame after the call.
    fn unmap(&self, cpu: &Cpu<I>, va: VirtAddr, how: Flushing) {
        let page = cpu.call("unmap", |cpu| {
            let held = self.lock.lock();
            cpu.will_reduce(PageRange::page(va), Rights::empty());
            let entry = self.entry(cpu, va, 0);
            let old = cpu.swap(entry, 0);
            if how != Flushing::NotPublished {
                cpu.publish();
            }
            let page = Pfn::containing(PhysAddr::new(old & 0xffff_ffff_f000));
            if how == Flushing::AfterFree {
                self.harness.free_frame(page);
            }
            self.flush(cpu, va, how);
            drop(held);
            page
        });
        if how != Flushing::AfterFree {
            self.harness.free_frame(page);
        }
    }

    /// Frees the empty last-level table over `va`.
    fn free_table(&self, cpu: &Cpu<I>, va: VirtAddr, how: Flushing) {
        cpu.call("free_table", |cpu| {
            let entry = self.entry(cpu, va, 1);
            let old = cpu.swap(entry, 0);
            cpu.publish();
            self.flush(cpu, va, how);
            self.harness.free_frame(Pfn::containing(PhysAddr::new(old & 0xffff_ffff_f000)));
        });
    }
}

fn reads<I: Isa>(cpu: &Cpu<I>) {
    (0..3).for_each(|_| {
        let _ = cpu.read(PAGE);
    });
}

fn writes<I: Isa>(cpu: &Cpu<I>) {
    (0..3).for_each(|value| {
        let _ = cpu.write(PAGE, value);
    });
}

/// CPU 0 edits the tables of a space, and CPU 1 accesses its page.
fn edits_beside<I: Isa>(
    accesses: fn(&Cpu<I>),
    edits: impl Fn(&Space<I>, &Cpu<I>) + Copy + 'static,
) -> impl Fn(&Harness<I>) -> Vec<CpuProgram<I>> {
    move |harness| {
        let space = Space::new(harness);
        vec![program(move |cpu| edits(&space, cpu)), program(accesses)]
    }
}

/// CPU 0 unmaps the page that CPU 1 reads, and takes its frame.
fn unmaps<I: Isa>(how: Flushing) -> impl Fn(&Harness<I>) -> Vec<CpuProgram<I>> {
    edits_beside(reads, move |space, cpu| {
        space.unmap(cpu, PAGE, how);
        cpu.alloc_frame();
    })
}

/// CPU 0 frees the table through which CPU 1 walks; no CPU allocates it again.
fn frees_a_table<I: Isa>(how: Flushing) -> impl Fn(&Harness<I>) -> Vec<CpuProgram<I>> {
    edits_beside(reads, move |space, cpu| {
        space.unmap(cpu, PAGE, Flushing::Correct);
        space.free_table(cpu, PAGE, how);
    })
}

/// CPU 0 makes the page read-only that CPU 1 writes.
fn protects<I: Isa>(how: Flushing) -> impl Fn(&Harness<I>) -> Vec<CpuProgram<I>> {
    edits_beside(writes, move |space, cpu| {
        cpu.call("protect", |cpu| {
            cpu.will_reduce(PageRange::page(PAGE), Rights::READ);
            let entry = space.entry(cpu, PAGE, 0);
            let page = Pfn::containing(PhysAddr::new(cpu.load(entry) & 0xffff_ffff_f000));
            cpu.store(entry, page_word::<I>(page, false));
            cpu.publish();
            space.flush(cpu, PAGE, how);
        });
    })
}

fn is_clean<I: Isa>(setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>) {
    let outcome = Check::<I>::new().cpus(3).schedules(300).explore(setup);
    outcome.unwrap_clean();
    assert!(outcome.search().distinct > 200, "{outcome}");
}

/// The violation of `rule` is found from each of three seeds.
fn breaks<I: Isa>(rule: Rule, setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>) {
    for seed in 1..4 {
        let outcome = Check::<I>::new().cpus(3).schedules(5000).seed(seed).explore(&setup);
        let found = outcome.expect_violation(rule);
        assert!(found.attempt.report.schedule.switches() <= 8, "{outcome}");
    }
}

fn correct_code_is_clean<I: Isa>() {
    is_clean::<I>(unmaps(Flushing::Correct));
    is_clean::<I>(frees_a_table(Flushing::Correct));
    is_clean::<I>(protects(Flushing::Correct));
}

fn incomplete_flushes_are_found<I: Isa>() {
    for how in [Flushing::NoFlush, Flushing::LocalOnly] {
        breaks::<I>(Rule::Rights, unmaps(how));
        breaks::<I>(Rule::Rights, protects(how));
        breaks::<I>(Rule::Reuse, frees_a_table(how));
    }
    breaks::<I>(Rule::Rights, unmaps(Flushing::NotWaitedFor));
    breaks::<I>(Rule::Reuse, unmaps(Flushing::AfterFree));
}

#[test]
fn a_missing_dsb_ishst_is_found() {
    breaks::<Aarch64>(Rule::Rights, unmaps(Flushing::NotPublished));
}

/// INV-CHECK-JUDGED.
#[test]
fn the_report_says_which_rules_judged_nothing() {
    let outcome = Check::<X86_64>::new().schedules(10).explore(|harness| {
        let space = Space::new(harness);
        vec![program(move |cpu| space.map(cpu, PAGE.add(1 << 12), cpu.alloc_frame()))]
    });
    let text = outcome.to_string();
    assert!(outcome.finding().is_none() && text.starts_with("NO EVIDENCE: 10 schedules"), "{text}");
    assert!(text.contains("INV-ORACLE-O1 judged NOTHING") && text.contains("INV-ORACLE-O2 judged NOTHING"), "{text}");
    let outcome = Check::<Aarch64>::new().schedules(10).explore(|harness| {
        let space = Space::new(harness);
        vec![program(move |cpu| space.unmap(cpu, PAGE, Flushing::Correct))]
    });
    let text = outcome.to_string();
    assert!(text.contains("judged 10 reductions of rights, NONE while another CPU cached the right"), "{text}");
}

#[test]
fn a_panic_and_a_deadlock_are_findings() {
    let panics =
        Check::<X86_64>::new().explore(|_| vec![program(|cpu| assert!(cpu.read(PAGE).is_ok(), "a page is gone"))]);
    assert!(
        matches!(panics.finding(), Some(CheckFinding::Panicked { message, .. }) if message.ends_with("a page is gone"))
    );
    let waits = Check::<X86_64>::new().explore(|_| {
        let answers = |cpu: &Cpu<X86_64>| cpu.without_interrupts(|cpu| cpu.shoot_down(cpu.others(), |_| {}));
        vec![program(answers)]
    });
    assert!(
        matches!(waits.finding(), Some(CheckFinding::Panicked { message, .. }) if message.contains("interrupts disabled"))
    );
    let waits = Check::<X86_64>::new().explore(|_| {
        vec![program(|cpu| {
            loop {
                cpu.relax();
            }
        })]
    });
    assert!(matches!(waits.finding(), Some(CheckFinding::Deadlock { .. })), "{waits}");
    let reports = Check::<X86_64>::new().explore(|_| vec![program(|cpu| cpu.report("two owners"))]);
    assert_eq!(reports.finding(), Some(&CheckFinding::Reported("two owners".to_owned())));
    assert!(std::panic::catch_unwind(|| reports.unwrap_clean()).is_err());
}

#[test]
fn a_frame_has_a_page_aligned_host_address() {
    let clean = Check::<X86_64>::new().schedules(1).explore(|harness| {
        let pfn = harness.alloc_frame();
        assert_eq!(harness.host_address(pfn).align_offset(4096), 0);
        let base = harness.ram().as_ptr().cast::<u8>();
        assert_eq!(harness.host_address(pfn) as usize - base as usize, pfn.base().raw() as usize);
        Vec::new()
    });
    assert!(clean.finding().is_none());
}

#[test]
fn a_loop_of_accesses_that_waits_for_another_cpu_ends() {
    let outcome = Check::<X86_64>::new().schedules(400).explore(|harness| {
        let space = Space::new(harness);
        vec![
            program(move |cpu| {
                space.unmap(cpu, PAGE, Flushing::Correct);
            }),
            program(|cpu| while cpu.read(PAGE).is_ok() {}),
        ]
    });
    outcome.unwrap_clean();
}

/// INV-CHECK-TOKEN: the token in the report replays the run.
#[test]
fn the_printed_token_replays() {
    let check = Check::<X86_64>::new();
    let first = check.explore(unmaps(Flushing::NoFlush)).to_string();
    let (_, token) = first.rsplit_once("PAGEWRIGHT_REPLAY=").expect("a token");
    let again = check
        .replay(&token.parse().expect("a token"), unmaps(Flushing::NoFlush))
        .expect("the same machine")
        .to_string();
    let drawing = |text: &str| text.split_once("\n\nstep").map(|(_, drawing)| drawing.to_owned());
    assert_eq!(drawing(&first), drawing(&again), "{again}");
    let foreign = check.cpus(3).replay(&token.parse().expect("a token"), unmaps(Flushing::NoFlush));
    let message = foreign.expect_err("another machine").to_string();
    assert!(message.contains("belongs to another machine"), "{message}");
}

/// The marked lines cache the stale translation, reduce its right, and return from the call.
#[test]
fn the_drawing_marks_the_lines_that_the_finding_refers_to() {
    let outcome = Check::<Aarch64>::new().schedules(5000).explore(unmaps(Flushing::NotPublished));
    let text = outcome.to_string();
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
    let story = [
        "will remove all rights to 0x400000-0x401000",
        "clears entry 0x5[0] (atomic exchange)",
        "broadcasts a flush of 0x400000",
        "the broadcast flush of 0x400000 (tag 1)",
        "caches rwx from here on",
        "dsb ish: its broadcast flushes are",
        "INV-ORACLE-O2: CPU",
        "PAGEWRIGHT_REPLAY=pw1/",
    ];
    let places: Vec<usize> = story.into_iter().map(place).collect();
    assert!(places.is_sorted(), "{text}");
    assert!(text.matches('►').count() >= 3 && text.lines().count() < 40, "{text}");
    let drawn = text.lines().filter(|line| !line.contains("PAGEWRIGHT_REPLAY"));
    assert!(drawn.clone().all(|line| line.chars().count() <= 100), "{text}");
}

/// A line of the set-up is drawn only if the finding refers to it.
#[test]
fn a_translation_cached_during_set_up_is_drawn() {
    let outcome = Check::<Aarch64>::new().explore(|harness| {
        let space = Space::new(harness);
        let _ = harness.cpu(1).read(PAGE);
        vec![program(move |cpu| space.unmap(cpu, PAGE, Flushing::LocalOnly))]
    });
    outcome.expect_violation(Rule::Rights);
    let text = outcome.to_string();
    assert!(text.contains("in the default schedule on 2 CPUs, arm64, without a race"), "{text}");
    let setup: Vec<&str> = text.lines().filter(|line| line.contains(" rest ")).collect();
    assert!(setup.len() == 1 && setup[0].contains("reads 0x400000: frame 0x2 (walk)"), "{text}");
}

#[test]
fn a_violation_during_set_up_is_drawn_whole() {
    let outcome = Check::<Aarch64>::new().explore(|harness| {
        let space = Space::new(harness);
        let _ = harness.cpu(1).read(PAGE);
        space.unmap(&harness.cpu(0), PAGE, Flushing::NoFlush);
        Vec::new()
    });
    outcome.expect_violation(Rule::Rights);
    let text = outcome.to_string();
    assert!(text.contains("calls unmap") && text.contains("frees frame 0x2"), "{text}");
}

#[test]
fn the_drawing_shows_stale_tables_and_page_faults() {
    let text = Check::<Aarch64>::new().explore(frees_a_table(Flushing::LocalOnly)).to_string();
    assert!(text.contains("has cached the path to table 0x5"), "{text}");
    assert!(text.contains("INV-ORACLE-O1: CPU 1 can still walk"), "{text}");
    let panics = Check::<X86_64>::new().explore(|harness| {
        let space = Space::new(harness);
        vec![program(move |cpu| {
            space.unmap(cpu, PAGE, Flushing::Correct);
            assert!(cpu.read(PAGE).is_ok(), "it is gone");
        })]
    });
    assert!(panics.to_string().contains("reads 0x400000: page fault"), "{panics}");
}
