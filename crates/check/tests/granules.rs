//! arm64 page tables with granules of 16 and 64 KiB (Arm ARM D8.2.5, D8.3.1), INV-CHECK-GRANULE.

use crate::raw_tables::{TAG, leaf, pointer};
use pagewright_arch::Effects;
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Granule, Harness, Invalidate, InvalidateScope, InvalidateTarget, IsaKind, Level,
    PageRange, Pfn, PhysAddr, Rights, Rule, VirtAddr, X86_64, program,
};
use std::rc::Rc;

const GRANULES: [Granule; 2] = [Granule::Size16K, Granule::Size64K];

/// A page of both granules; each level has another index, and the top bit of the address is set.
const PAGE: VirtAddr = VirtAddr::new(0xa5a4_a5a5_0000 | 5 << 16);

/// The widths of the indices, the root's first (table D8-15 of the Arm ARM), and of the offset.
fn widths(granule: Granule) -> (&'static [u32], u32) {
    match granule {
        Granule::Size4K => (&[9; 4], 12),
        Granule::Size16K => (&[1, 11, 11, 11], 14),
        Granule::Size64K => (&[6, 13, 13], 16),
    }
}

/// A space whose tables are made as pages are mapped.
struct Space {
    granule: Granule,
    root: Pfn,
}

impl Space {
    fn load(harness: &Harness<Aarch64>, granule: Granule) -> Rc<Self> {
        let space = Self { granule, root: harness.alloc_frame() };
        harness.cpus().for_each(|cpu| cpu.load_root(space.root, TAG));
        Rc::new(space)
    }

    /// The address of the entry for `va`, `above` levels above that of base pages.
    fn entry(&self, cpu: &Cpu<Aarch64>, va: VirtAddr, above: usize) -> PhysAddr {
        let (widths, mut shift) = widths(self.granule);
        shift += widths.iter().sum::<u32>();
        let mut table = self.root;
        for (depth, width) in widths.iter().enumerate() {
            shift -= width;
            let entry = table.base().add((va.raw() >> shift & ((1 << width) - 1)) * 8);
            if depth + 1 + above == widths.len() {
                return entry;
            }
            let word = cpu.load(entry);
            table = if word == 0 { cpu.alloc_frame() } else { table_of(word) };
            if word == 0 {
                cpu.store(entry, pointer(IsaKind::Aarch64, table, true));
            }
        }
        unreachable!("the levels have ended")
    }

    /// Maps a new page with this value at its start.
    fn map(&self, harness: &Harness<Aarch64>, va: VirtAddr, value: u64) -> Pfn {
        let (cpu, frame) = (harness.cpu(0), harness.alloc_frame());
        cpu.store(self.entry(&cpu, va, 0), leaf(IsaKind::Aarch64, frame, true));
        cpu.publish();
        harness.sim().write(frame.base(), &value.to_le_bytes());
        frame
    }
}

fn table_of(word: u64) -> Pfn {
    Pfn::containing(PhysAddr::new(word & 0xffff_ffff_f000))
}

fn page_range(granule: Granule, va: VirtAddr) -> PageRange {
    PageRange::new(va, va.add(granule.bytes()))
}

fn check(granule: Granule) -> Check<Aarch64> {
    Check::<Aarch64>::new().granule(granule).memory("4M").schedules(200)
}

/// Each bit of an address counts: pages that differ in one bit are mapped to other pages.
#[test]
fn a_walk_takes_the_bits_of_each_level() {
    for granule in GRANULES {
        let (_, offset) = widths(granule);
        let bits: Vec<u32> = (offset..48).filter(|bit| bit % 5 == 0 || *bit == offset || *bit == 47).collect();
        let pages: Vec<VirtAddr> = bits.iter().map(|bit| VirtAddr::new(PAGE.raw() ^ 1 << bit)).collect();
        let outcome = check(granule).schedules(20).explore(move |harness| {
            let space = Space::load(harness, granule);
            for (va, value) in pages.iter().zip(1..) {
                let frame = space.map(harness, *va, value);
                // The last word of the page, in its last frame of 4 KiB.
                let last = frame.base().add(granule.bytes() - 8);
                harness.sim().write(last, &(value << 32).to_le_bytes());
            }
            let pages = pages.clone();
            let reads = program(move |cpu: &Cpu<Aarch64>| {
                for (va, value) in pages.iter().zip(1..) {
                    assert_eq!(cpu.read(*va), Ok(value));
                    assert_eq!(cpu.read(va.add(granule.bytes() - 8)), Ok(value << 32));
                }
                assert!(cpu.read(PAGE).is_err_and(|fault| !fault.present));
                // 49 bits.
                assert!(cpu.read(VirtAddr::new(PAGE.raw() | 1 << 48)).is_err());
            });
            vec![reads]
        });
        assert!(outcome.finding().is_none(), "{granule:?}: {outcome}");
    }
}

/// Arm ARM D8.3.1: blocks of 32 and 512 MiB at level 2, none above without 52-bit addresses.
#[test]
fn a_block_is_of_the_level_above_pages_only() {
    for granule in GRANULES {
        let outcome = check(granule).schedules(5).explore(move |harness| {
            let space = Space::load(harness, granule);
            let cpu = harness.cpu(0);
            harness.sim().write(PhysAddr::new(1 << 20), &7u64.to_le_bytes());
            let block = leaf(IsaKind::Aarch64, Pfn::new(0), true) & !0b10;
            let va = PAGE.align_down(granule.level(1).span());
            cpu.store(space.entry(&cpu, va, 1), block);
            let above = VirtAddr::new(va.raw() ^ 1 << 47);
            cpu.store(space.entry(&cpu, above, 2), block);
            cpu.publish();
            vec![program(move |cpu| {
                assert_eq!(cpu.read(va.add(1 << 20)), Ok(7));
                assert!(cpu.read(above.add(1 << 20)).is_err());
            })]
        });
        assert!(outcome.finding().is_none(), "{granule:?}: {outcome}");
    }
}

/// CPU 0 runs `kernel` with the frame of the page that CPU 1 reads.
fn beside_reader(granule: Granule, kernel: impl Fn(&Cpu<Aarch64>, &Space, Pfn) + Copy + 'static) -> CheckOutcome {
    check(granule).explore(move |harness| {
        let space = Space::load(harness, granule);
        let frame = space.map(harness, PAGE, 1);
        // Stores through pointers are found from here on.
        harness.ram();
        let reads = program(|cpu: &Cpu<Aarch64>| (0..3).for_each(|_| _ = cpu.read(PAGE)));
        vec![program(move |cpu| kernel(cpu, &space, frame)), reads]
    })
}

/// Unmaps the page and flushes `va`, of all levels.
fn unmap(cpu: &Cpu<Aarch64>, space: &Space, va: VirtAddr, frame: Pfn) {
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(page_range(space.granule, PAGE), Rights::empty());
        cpu.swap(space.entry(cpu, PAGE, 0), 0);
        cpu.publish();
        cpu.flush_page(va, InvalidateScope::Broadcast);
        cpu.complete();
    });
    cpu.free_frame(frame);
}

/// TLBI VAE1IS names the page of an address; a kernel that counts 4 KiB pages names others.
#[test]
fn a_flush_of_another_page_is_found() {
    for granule in GRANULES {
        for within in [0, 4096, granule.bytes() - 8] {
            let flushed = beside_reader(granule, move |cpu, space, frame| unmap(cpu, space, PAGE.add(within), frame));
            flushed.unwrap_clean();
        }
        // Zephyr #115708: the address is shifted by the size of a page instead of by 12.
        let shifted = beside_reader(granule, move |cpu, space, frame| {
            unmap(cpu, space, VirtAddr::new(PAGE.raw() >> granule.bytes().ilog2() << 12), frame);
        });
        shifted.expect_violation(Rule::Rights);
        assert!(shifted.to_string().contains(&PAGE.to_string()), "{shifted}");
    }
}

/// A read-only page may get an equal copy without a break; all of it is compared.
#[test]
fn a_copy_is_compared_to_its_end() {
    for granule in GRANULES {
        let copied = |last: u64| {
            check(granule).explore(move |harness| {
                let space = Space::load(harness, granule);
                let (cpu, frame, copy) = (harness.cpu(0), space.map(harness, PAGE, 1), harness.alloc_frame());
                cpu.store(space.entry(&cpu, PAGE, 0), leaf(IsaKind::Aarch64, frame, false));
                cpu.publish();
                for (at, value) in [(0, 1), (granule.bytes() - 8, last)] {
                    harness.sim().write(copy.base().add(at), &value.to_le_bytes());
                }
                let reads = program(|cpu: &Cpu<Aarch64>| (0..3).for_each(|_| _ = cpu.read(PAGE)));
                let replaces = program(move |cpu: &Cpu<Aarch64>| {
                    cpu.store(space.entry(cpu, PAGE, 0), leaf(IsaKind::Aarch64, copy, false));
                    cpu.publish();
                });
                vec![replaces, reads]
            })
        };
        copied(0).unwrap_clean();
        copied(9).expect_violation(Rule::Rights);
    }
}

/// A table is freed before the flush of the walk caches that lead to it.
#[test]
fn a_table_is_found_when_it_is_freed_before_its_flush() {
    for granule in GRANULES {
        let free = |last_level: bool| {
            beside_reader(granule, move |cpu, space, frame| {
                unmap(cpu, space, PAGE, frame);
                let table = table_of(cpu.swap(space.entry(cpu, PAGE, 1), 0));
                cpu.publish();
                // The user names levels of 4 KiB; the machine takes its own.
                let target = InvalidateTarget::Page { tag: TAG, va: PAGE, level: Level::PTE, last_level };
                cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
                cpu.complete();
                cpu.free_frame(table);
            })
        };
        free(false).unwrap_clean();
        let early = free(true);
        early.expect_violation(Rule::Reuse);
        assert!(early.to_string().contains("has it in its walk cache"), "{early}");
    }
}

/// The oracle's own walk takes the same bits, and a DSB that is missing is named.
#[test]
fn a_frame_that_a_loaded_root_still_maps_is_found() {
    for granule in GRANULES {
        let mapped = beside_reader(granule, |cpu, _, frame| cpu.free_frame(frame));
        mapped.expect_violation(Rule::Reuse);
        let text = mapped.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("still lead to it at va {PAGE}")), "{mapped}");
        let incomplete = beside_reader(granule, move |cpu, space, _| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(page_range(granule, PAGE), Rights::empty());
                cpu.swap(space.entry(cpu, PAGE, 0), 0);
                cpu.publish();
                cpu.flush_page(PAGE, InvalidateScope::Broadcast);
            });
        });
        incomplete.expect_violation(Rule::Rights);
        assert!(incomplete.to_string().contains("missing: a DSB ISH on CPU 0"), "{incomplete}");
    }
}

/// A frame of the harness is a whole page: its last 4 KiB are freed with it.
#[test]
fn a_write_to_the_last_part_of_a_freed_page_is_found() {
    for granule in GRANULES {
        let last = move |page: Pfn| page.base().add(granule.bytes() - 8);
        let freed = beside_reader(granule, move |cpu, space, frame| {
            unmap(cpu, space, PAGE, frame);
            cpu.sim().write(last(frame), &[1; 8]);
        });
        freed.expect_violation(Rule::Reuse);
        // A parked table must not change while a walk cache leads to it.
        let parked = beside_reader(granule, move |cpu, space, frame| {
            unmap(cpu, space, PAGE, frame);
            let table = table_of(cpu.swap(space.entry(cpu, PAGE, 1), 0));
            cpu.publish();
            cpu.park_frame(table);
            cpu.ram()[(last(table).raw() / 8) as usize].store(1, std::sync::atomic::Ordering::Release);
            cpu.flush_page(PAGE, InvalidateScope::Broadcast);
            cpu.complete();
            cpu.free_frame(table);
        });
        parked.expect_violation(Rule::Reuse);
        assert!(parked.to_string().contains("changed while it was free and reachable"), "{parked}");
    }
}

/// A replaced entry far behind the first 4 KiB of its table is found through a pointer, too.
#[test]
fn a_store_through_a_pointer_anywhere_in_a_table_is_judged() {
    for granule in GRANULES {
        let outcome = beside_reader(granule, move |cpu, space, _| {
            let (entry, copy) = (space.entry(cpu, PAGE, 0), cpu.alloc_frame());
            let word = &cpu.ram()[(entry.raw() / 8) as usize];
            word.store(leaf(IsaKind::Aarch64, copy, true), std::sync::atomic::Ordering::Release);
        });
        outcome.expect_violation(Rule::Rights);
        assert!(outcome.to_string().contains("without break-before-make"), "{outcome}");
    }
}

/// A flush of another part of the page conflicts with its eviction (INV-CHECK-REDUCED).
#[test]
fn an_exhaustive_search_finds_the_same() {
    for granule in GRANULES {
        let search = |flushes: bool| {
            check(granule).memory("2M").exhaustive(1, 1).explore(move |harness| {
                let space = Space::load(harness, granule);
                let frame = space.map(harness, PAGE, 1);
                let reads = program(|cpu: &Cpu<Aarch64>| _ = cpu.read(PAGE.add(8)));
                let unmaps = move |cpu: &Cpu<Aarch64>| {
                    let va = if flushes { PAGE.add(8192) } else { PAGE.add(granule.bytes()) };
                    unmap(cpu, &space, va, frame);
                };
                vec![program(unmaps), reads]
            })
        };
        let clean = search(true);
        assert!(clean.finding().is_none() && clean.to_string().contains("clean, complete"), "{clean}");
        assert!(search(false).finding().is_some(), "{granule:?}");
    }
}

#[test]
#[should_panic(expected = "granules of 16 and 64 KiB are of arm64 only")]
fn x86_64_has_4_kib_only() {
    Check::<X86_64>::new().granule(Granule::Size16K).explore(|_| Vec::new());
}

#[test]
#[should_panic(expected = "which is not whole pages of 16384 bytes")]
fn a_range_is_of_whole_pages() {
    check(Granule::Size16K).range_invalidations().explore(|harness| {
        let range = PageRange::page(PAGE);
        let target = InvalidateTarget::Range { tag: TAG, range, level: Level::PTE, last_level: false };
        harness.cpu(0).invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
        Vec::new()
    });
}
