//! The counters of the memory manager: each operation changes those that name what it does.
//!
//! [`operations`] is a table of operations with the exact change of every counter. A counter that
//! no operation of the table changes fails the test, so a new counter needs a row.
//!
//! Not covered: the counters of the layers below ([`of_lower_layers`]), whose own tests count.

mod large_folios;
mod task_faults;

use large_folios::{large_folios, splits_of_folios};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, FaultError, MapFlags, MmSetting};
use pagewright_sim::AllocationFailure;
use pagewright_types::Counter as C;
use pagewright_types::{Access, Counter, NodeId, PAGE_SIZE, Rights, VirtAddr};
use std::collections::BTreeSet;
use std::rc::Rc;

on_both! { each_operation_counts_what_it_does_and_nothing_else }

const NODE: NodeId = NodeId::new(0);
/// The pages on which an operation acts, unless its row says otherwise.
const PAGES: u64 = 5;
/// A place for huge pages of 2 MiB.
const HUGE_PAGES: VirtAddr = VirtAddr::new(64 << 30);
/// A number of pages beside which [`PAGES`] pages that refault at once are in the workingset.
const WORKINGSET: u64 = 2 * PAGES;

/// What an operation added to each counter that it changed.
type Changes = Vec<(Counter, u64)>;

/// Whether a counter belongs to the frame allocator, to clearing or to the TLB engine.
fn of_lower_layers(counter: Counter) -> bool {
    let name = counter.name();
    // Those of nodes are in `numa/`, `migrate/tiers.rs` and a test of `reclaim/scan.rs`. That of
    // large folios which a scan leaves out is in `thp/consumers/calls.rs`.
    let of_nodes = ["numa_", "pw_numa_", "pgdemote_", "pgpromote_"];
    let groups = ["pgalloc", "pgfree", "nr_tlb_", "pw_tlb_", "pw_linger_", "pw_clear_", "allocstall"];
    groups.iter().chain(&of_nodes).any(|group| name.starts_with(group))
}

/// A machine with one process, before an operation.
struct Scene<I: Isa> {
    world: Rc<TestWorld<I>>,
    process: TestProcess<I>,
}

impl<I: Isa> Scene<I> {
    fn new() -> Self {
        Self::sized(1024 * PAGE_SIZE)
    }

    fn sized(bytes: u64) -> Self {
        Self::on(TestWorld::sized(2, bytes))
    }

    /// A process that gets huge pages from [`HUGE_PAGES`] on.
    fn with_huge_pages() -> Self {
        let scene = Self::sized(16 << 20);
        scene.world.set(MmSetting::ThpEnabled, "always");
        scene.process.map_at(HUGE_PAGES, 1024, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
        scene
    }

    fn on(world: Rc<TestWorld<I>>) -> Self {
        world.set(MmSetting::OvercommitMemory, "1");
        world.set(MmSetting::CowPageTables, "never");
        world.swap_to(4096);
        let process = TestProcess::new(&world);
        Self { world, process }
    }

    /// What `act` changes.
    fn changes<T>(&self, act: impl FnOnce() -> T) -> Changes {
        let values = || Counter::ALL.iter().map(|counter| self.world.count(*counter)).collect::<Vec<_>>();
        let before = values();
        drop(act());
        let changed =
            Counter::ALL.iter().zip(values()).zip(before).map(|((counter, now), then)| (*counter, now - then));
        changed.filter(|(counter, change)| *change > 0 && !of_lower_layers(*counter)).collect()
    }

    /// Anonymous memory of `pages` pages that were stored to.
    fn filled(&self, pages: u64) -> VirtAddr {
        let base = self.process.anon(pages);
        (0..pages).for_each(|page| self.process.write(CPU, at(base, page), page));
        base
    }

    /// The same, in a space whose forks share page tables.
    fn filled_and_sharing(&self, pages: u64) -> VirtAddr {
        self.world.set(MmSetting::CowPageTables, "always");
        self.filled(pages)
    }

    fn advise(&self, base: VirtAddr, advice: Advice) {
        self.process.advise(base, PAGES, advice);
    }

    /// Has a device take the pages by `call`, and returns what that changes.
    fn take(&self, base: VirtAddr, call: GupCall) -> Changes {
        let mut device = None;
        let changes = self.changes(|| device = Some(self.process.take(CPU, base, PAGES, call)));
        device.expect("taken").expect("they can be had").release(MakeDirty::No);
        changes
    }

    /// Reclaims `pages` pages that another CPU has in its TLB.
    fn reclaim(&self, base: VirtAddr, pages: u64) -> Changes {
        (0..pages).for_each(|page| _ = self.process.read(OTHER, at(base, page)));
        self.changes(|| assert_eq!(self.world.on(CPU, |mm| mm.reclaim(NODE, pages as u32)), pages))
    }

    /// Pages out `pages` pages and loads from them, and returns what the loads change.
    fn refault(&self, base: VirtAddr, pages: u64) -> Changes {
        self.process.advise(base, pages, Advice::PageOut);
        self.changes(|| (0..pages).for_each(|page| _ = self.process.read(CPU, at(base, page))))
    }

    /// Anonymous memory of [`PAGES`] active pages.
    ///
    /// They have refaulted beside so many pages of a file, whose mapping is the second result, that
    /// they were activated at once.
    fn active(&self) -> [VirtAddr; 2] {
        let file = self.world.file(WORKINGSET);
        let other = self.process.map_file(&file, Rights::READ, MapFlags::SHARED);
        (0..WORKINGSET).for_each(|page| _ = self.process.read(CPU, at(other, page)));
        let base = self.filled(PAGES);
        self.refault(base, PAGES);
        [base, other]
    }

    /// A file mapping of [`PAGES`] cached pages, beside as many pages as make a refault soon.
    fn cached(&self) -> VirtAddr {
        self.filled(WORKINGSET);
        let file = self.world.file(PAGES);
        let base = self.process.map_file(&file, Rights::READ, MapFlags::SHARED);
        (0..PAGES).for_each(|page| _ = self.process.read(CPU, at(base, page)));
        base
    }

    /// A process that maps a file whose pages another process has read.
    fn beside_a_reader(&self) -> VirtAddr {
        let file = self.world.file(PAGES);
        let first = self.process.map_file(&file, Rights::READ, MapFlags::SHARED);
        (0..PAGES).for_each(|page| _ = self.process.read(CPU, at(first, page)));
        self.process.map_file(&file, Rights::RW, MapFlags::PRIVATE)
    }
}

/// What loads of [`PAGES`] pages in swap count, beside `more`.
fn swapped_in(more: &[(Counter, u64)]) -> Changes {
    let always = [C::PgFault, C::PgMajFault, C::PswpIn, C::WorkingsetRefaultAnon].map(|counter| (counter, PAGES));
    [&always, more].concat()
}

/// What loads of [`PAGES`] evicted pages of a file count, beside `more`: one fault reads them all.
fn read_again(more: &[(Counter, u64)]) -> Changes {
    let refaults = [C::WorkingsetRefaultFile, C::WorkingsetActivateFile].map(|counter| (counter, PAGES));
    [&[(C::PgFault, 1), (C::PwFaultAround, PAGES - 1)], &refaults[..], more].concat()
}

/// What reclaim of `pages` pages in use counts, beside `freed`.
///
/// It scans each twice, and looks for its mappings in `nodes` nodes of the tree of forks in all, at
/// each scan and to unmap it.
fn reclaimed(pages: u64, nodes: u64, freed: (Counter, u64)) -> Changes {
    let scanned = [(C::PgScanProactive, 2 * pages), (C::PgStealProactive, pages), (C::PwReclaimWaits, 1)];
    [&scanned[..], &[(C::PwRmapNodes, 3 * nodes), freed]].concat()
}

/// The operations: what each does, its act, and what it counts.
type Operation<I> = (&'static str, fn(&Scene<I>) -> Changes, Changes);

/// Faults of anonymous memory.
fn faults<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a load from a page that is not there",
            |scene| {
                let base = scene.process.anon(1);
                scene.changes(|| scene.process.read(CPU, base))
            },
            vec![(C::PgFault, 1)],
        ),
        (
            "a store to a page that is not there",
            |scene| {
                let base = scene.process.anon(1);
                scene.changes(|| scene.process.write(CPU, base, 1))
            },
            vec![(C::PgFault, 1), (C::PwZeroed, 1)],
        ),
        (
            "a store to the zero page",
            |scene| {
                let base = scene.process.anon(1);
                scene.process.read(CPU, base);
                scene.changes(|| scene.process.write(CPU, base, 1))
            },
            vec![(C::PgFault, 1), (C::PwZeroed, 1)],
        ),
        (
            "a fault on an entry that allows the access",
            |scene| {
                let base = scene.filled(1);
                scene.changes(|| scene.world.on(CPU, |mm| mm.fault(&scene.process.space, base, Access::Write)))
            },
            vec![(C::PgFault, 1), (C::PwSpuriousFault, 1)],
        ),
        (
            "a fault without memory",
            |scene| {
                let base = scene.process.anon(1);
                scene.world.lab.sim().fail_allocation_after(0, AllocationFailure::All);
                let changes = scene.changes(|| {
                    let refused = scene.process.touch(CPU, base, Access::Write);
                    assert!(matches!(refused, Err(FaultError::OutOfMemory(_))), "{refused:?}");
                });
                scene.world.lab.sim().permit_allocations();
                changes
            },
            vec![(C::PgFault, 1), (C::PwFailedFault, 1), (C::OomKill, 1)],
        ),
    ]
}

/// Forks that share page tables, and what ends the sharing.
fn shared_tables<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a fork that shares tables",
            |scene| {
                scene.filled_and_sharing(PAGES);
                scene.changes(|| scene.process.fork())
            },
            vec![(C::PwFork, 1), (C::PwTableShared, 1)],
        ),
        (
            "a store below a table that is shared",
            |scene| {
                let base = scene.filled_and_sharing(PAGES);
                let child = scene.process.fork();
                scene.changes(|| child.write(CPU, base, 2))
            },
            vec![(C::PgFault, 1), (C::PwCowCopy, 1), (C::PwTableBroken, 3)],
        ),
        (
            "the end of a child that shares tables",
            |scene| {
                scene.filled_and_sharing(PAGES);
                let child = scene.process.fork();
                scene.changes(|| child.end())
            },
            vec![(C::PwTableLeft, 1)],
        ),
        (
            "a store after a child that shared tables has ended",
            |scene| {
                let base = scene.filled_and_sharing(PAGES);
                scene.process.fork().end();
                scene.changes(|| scene.process.write(CPU, base, 2))
            },
            vec![(C::PgFault, 1), (C::PwSpuriousFault, 1), (C::PwTableTakenBack, 1)],
        ),
    ]
}

/// Forks that copy tables which they might share, each for a reason.
fn copied_tables<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a fork that shares no table of a mapping which the child does not get",
            |scene| {
                let base = scene.filled_and_sharing(PAGES);
                scene.process.advise(base, 1, Advice::DontFork);
                let mut child = None;
                let changes = scene.changes(|| child = Some(scene.process.fork()));
                child.expect("forked").end();
                changes
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, 4), (C::PwTableCopiedMapping, 1)],
        ),
        (
            "a fork that shares no table of a pinned page",
            |scene| {
                let base = scene.filled_and_sharing(PAGES);
                let pinned = scene.process.take(CPU, base, 1, GupCall::Pin(GupFlags::empty())).expect("a page");
                let mut child = None;
                let changes = scene.changes(|| child = Some(scene.process.fork()));
                pinned.release(MakeDirty::No);
                child.expect("forked").end();
                changes
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, 5), (C::PwTableCopiedPinned, 1), (C::PwCowCopy, 1)],
        ),
        (
            "a fork that shares no huge page beside a mapping which the child does not get",
            |_| {
                let scene = Scene::<I>::sized(16 << 20);
                scene.world.set(MmSetting::CowPageTables, "always");
                let base = scene.process.map_at(HUGE_PAGES, 1024, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
                scene.process.write(CPU, base, 1);
                scene.process.map_huge(at(base, 512));
                scene.process.advise(base, 1, Advice::DontFork);
                scene.changes(|| scene.process.fork())
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, 1), (C::PwTableCopiedMapping, 1), (C::PwTableCopiedHuge, 1)],
        ),
        (
            "a fork of a program that has not asked",
            |scene| {
                scene.filled(PAGES);
                scene.world.set(MmSetting::CowPageTables, "prctl");
                scene.changes(|| scene.process.fork())
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, PAGES), (C::PwTableCopiedUnasked, 1)],
        ),
        (
            "a fork of a small program",
            |scene| {
                scene.filled(PAGES);
                scene.world.set(MmSetting::CowPageTables, "auto");
                scene.changes(|| scene.process.fork())
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, PAGES), (C::PwTableCopiedSmall, 1)],
        ),
    ]
}

/// Forks, and the accesses after them.
fn forks<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a read below a table that is shared, where the table of the last level is missing",
            |scene| {
                let near = VirtAddr::new(scene.filled_and_sharing(PAGES).raw() - (64 << 20));
                let base = scene.process.map_at(near, 1, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
                let child = scene.process.fork();
                scene.changes(|| child.read(CPU, base))
            },
            vec![(C::PgFault, 1), (C::PwTableMadeForAll, 1)],
        ),
        (
            "a fork",
            |scene| {
                scene.filled(PAGES);
                scene.changes(|| scene.process.fork())
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, PAGES), (C::PwTableCopiedNever, 1)],
        ),
        (
            "a fork with pinned pages",
            |scene| {
                let base = scene.filled(2 * PAGES);
                let device =
                    scene.process.take(CPU, base, PAGES, GupCall::Pin(GupFlags::WRITE)).expect("they can be had");
                let changes = scene.changes(|| scene.process.fork());
                device.release(MakeDirty::No);
                changes
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, 2 * PAGES), (C::PwTableCopiedNever, 1), (C::PwCowCopy, PAGES)],
        ),
        (
            "a fork with guards in shared memory",
            |scene| {
                let base = scene.process.map_shared(2 * PAGES);
                scene.advise(base, Advice::GuardInstall);
                scene.changes(|| scene.process.fork())
            },
            vec![(C::PwFork, 1), (C::PwForkEntries, PAGES), (C::PwTableCopiedNever, 1)],
        ),
        (
            "a store to a page that a child shares",
            |scene| {
                let base = scene.filled(1);
                let child = scene.process.fork();
                scene.changes(|| child.write(CPU, base, 2))
            },
            vec![(C::PgFault, 1), (C::PwCowCopy, 1)],
        ),
        (
            "a store to a page that a child shared",
            |scene| {
                let base = scene.filled(1);
                scene.process.fork().write(CPU, base, 2);
                scene.changes(|| scene.process.write(CPU, base, 3))
            },
            vec![(C::PgFault, 1), (C::PgReuse, 1)],
        ),
    ]
}

/// Files.
fn files<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a load from a file",
            |scene| {
                let file = scene.world.file(1);
                let base = scene.process.map_file(&file, Rights::READ, MapFlags::SHARED);
                scene.changes(|| scene.process.read(CPU, base))
            },
            vec![(C::PgFault, 1)],
        ),
        (
            "a load from a cached file",
            |scene| {
                let base = scene.beside_a_reader();
                scene.changes(|| scene.process.read(CPU, base))
            },
            vec![(C::PgFault, 1), (C::PwFaultAround, PAGES - 1)],
        ),
        (
            "a store to a private mapping of a cached file",
            |scene| {
                let base = scene.beside_a_reader();
                scene.changes(|| scene.process.write(CPU, base, 1))
            },
            vec![(C::PgFault, 1), (C::PwCowCopy, 1)],
        ),
        (
            "a second read of a file by a call",
            |scene| {
                let file = scene.world.file(1);
                let read = || scene.world.on(CPU, |mm| mm.read_at(&file, 0, &mut [0; 8])).expect("a good device");
                read();
                scene.changes(read)
            },
            vec![(C::PgActivate, 1)],
        ),
    ]
}

/// Page-outs, and the loads after them.
fn swap<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a store to a page in swap that one process has",
            |scene| {
                let base = scene.filled(1);
                scene.process.advise(base, 1, Advice::PageOut);
                scene.changes(|| scene.process.write(CPU, base, 1))
            },
            [C::PgFault, C::PgMajFault, C::PswpIn, C::WorkingsetRefaultAnon].map(|counter| (counter, 1)).to_vec(),
        ),
        (
            "MADV_PAGEOUT",
            |scene| {
                let base = scene.filled(PAGES);
                scene.changes(|| scene.advise(base, Advice::PageOut))
            },
            vec![(C::PswpOut, PAGES), (C::PwRmapNodes, PAGES)],
        ),
        (
            "loads from pages in swap",
            |scene| {
                let base = scene.filled(PAGES);
                scene.refault(base, PAGES)
            },
            swapped_in(&[]),
        ),
        (
            "loads from pages in swap that are in the workingset",
            |scene| {
                let [base, _] = scene.active();
                scene.refault(base, PAGES)
            },
            swapped_in(&[(C::WorkingsetActivateAnon, PAGES)]),
        ),
        (
            "MADV_COLD of active pages",
            |scene| {
                let [base, _] = scene.active();
                scene.changes(|| scene.advise(base, Advice::Cold))
            },
            vec![(C::PgDeactivate, PAGES)],
        ),
        (
            "loads from pages in swap that had been active before an earlier refault",
            |scene| {
                let [base, _] = scene.active();
                scene.advise(base, Advice::Cold);
                scene.refault(base, PAGES);
                scene.refault(base, PAGES)
            },
            swapped_in(&[(C::WorkingsetActivateAnon, PAGES), (C::WorkingsetRestoreAnon, PAGES)]),
        ),
    ]
}

/// Evicted file pages, and lazily freed ones.
fn evicted_files<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "loads from evicted pages of a file",
            |scene| {
                let base = scene.cached();
                scene.refault(base, PAGES)
            },
            read_again(&[]),
        ),
        (
            "loads from evicted pages of a file that had been active",
            |scene| {
                let base = scene.cached();
                scene.refault(base, PAGES);
                scene.advise(base, Advice::Cold);
                scene.refault(base, PAGES)
            },
            read_again(&[(C::WorkingsetRestoreFile, PAGES)]),
        ),
        (
            "MADV_FREE",
            |scene| {
                let base = scene.filled(PAGES);
                scene.changes(|| scene.advise(base, Advice::Free))
            },
            vec![(C::PgLazyFree, PAGES)],
        ),
    ]
}

/// Reclaim.
fn reclaim<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "background reclaim that is not needed",
            |scene| scene.changes(|| scene.world.on(CPU, |mm| mm.balance(NODE))),
            vec![(C::PageOutRun, 1)],
        ),
        (
            "reclaim of lazily freed pages",
            |scene| {
                let base = scene.filled(PAGES);
                scene.advise(base, Advice::Free);
                scene.reclaim(base, PAGES)
            },
            reclaimed(PAGES, PAGES, (C::PgLazyFreed, PAGES)),
        ),
        (
            "reclaim of pages in use",
            |scene| {
                let base = scene.filled(PAGES);
                scene.reclaim(base, PAGES)
            },
            reclaimed(PAGES, PAGES, (C::PswpOut, PAGES)),
        ),
        (
            "reclaim of a page that two children share",
            |scene| {
                let base = scene.filled(1);
                let _children = [scene.process.fork(), scene.process.fork()];
                scene.reclaim(base, 1)
            },
            reclaimed(1, 3, (C::PswpOut, 1)),
        ),
        (
            "reclaim of active pages whose slots have their contents",
            |scene| {
                let [base, other] = scene.active();
                scene.process.advise(other, WORKINGSET, Advice::PageOut);
                scene.reclaim(base, PAGES)
            },
            vec![
                (C::PgRefill, PAGES),
                (C::PgDeactivate, PAGES),
                (C::PgScanProactive, PAGES),
                (C::PgStealProactive, PAGES),
                (C::PwReclaimWaits, 1),
                (C::PwRmapNodes, 3 * PAGES),
            ],
        ),
    ]
}

/// Locked memory.
fn locked_memory<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "mlock",
            |scene| {
                let base = scene.filled(PAGES);
                scene.changes(|| scene.world.on(CPU, |mm| mm.mlock(&scene.process.space, base, PAGES * PAGE_SIZE)))
            },
            vec![(C::UnevictableCulled, PAGES)],
        ),
        (
            "munlock",
            |scene| {
                let base = scene.filled(PAGES);
                let len = PAGES * PAGE_SIZE;
                scene.world.on(CPU, |mm| mm.mlock(&scene.process.space, base, len)).expect("within the limit");
                scene.changes(|| scene.world.on(CPU, |mm| mm.munlock(&scene.process.space, base, len)))
            },
            vec![(C::UnevictableRescued, PAGES)],
        ),
    ]
}

/// Pages of programs for devices.
fn user_pages<I: Isa>() -> Vec<Operation<I>> {
    vec![
        (
            "a device that may not store takes nothing",
            |scene| {
                let base = scene.process.map(1, Rights::READ, ANON, None);
                scene.changes(|| {
                    let taken = scene.process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE));
                    assert!(taken.is_err(), "the mapping is only readable");
                })
            },
            vec![],
        ),
        (
            "a pin",
            |scene| scene.take(scene.filled(PAGES), GupCall::Pin(GupFlags::WRITE)),
            vec![(C::NrFollPinAcquired, PAGES)],
        ),
        (
            "a fast pin",
            |scene| scene.take(scene.filled(PAGES), GupCall::PinFast(GupFlags::WRITE)),
            vec![(C::NrFollPinAcquired, PAGES), (C::PwGupFast, PAGES)],
        ),
        (
            "a fast pin of pages that a child shares",
            |scene| {
                let base = scene.filled(PAGES);
                let _child = scene.process.fork();
                scene.take(base, GupCall::PinFast(GupFlags::empty()))
            },
            vec![
                (C::PgFault, PAGES),
                (C::PwCowCopy, PAGES),
                (C::NrFollPinAcquired, PAGES),
                (C::PwGupFastDropped, PAGES),
                (C::PwUnshare, PAGES),
            ],
        ),
        (
            "a fast get",
            |scene| scene.take(scene.filled(PAGES), GupCall::GetFast(GupFlags::WRITE)),
            vec![(C::PwGupFast, PAGES)],
        ),
        (
            "the release of pins",
            |scene| {
                let base = scene.filled(PAGES);
                let device =
                    scene.process.take(CPU, base, PAGES, GupCall::Pin(GupFlags::WRITE)).expect("they can be had");
                scene.changes(|| device.release(MakeDirty::No))
            },
            vec![(C::NrFollPinReleased, PAGES)],
        ),
    ]
}

/// The operations of all rooms.
fn operations<I: Isa>() -> Vec<Operation<I>> {
    let rooms = [
        faults,
        forks,
        shared_tables,
        copied_tables,
        large_folios,
        splits_of_folios,
        files,
        swap,
        evicted_files,
        reclaim,
        locked_memory,
        user_pages,
    ];
    rooms.into_iter().flat_map(|room| room()).collect()
}

/// What direct and background reclaim add to the counters of scanned, freed and written pages.
fn memory_pressure<I: Isa>() -> BTreeSet<usize> {
    let scene = Scene::<I>::new();
    let base = scene.process.anon(2048);
    let mut page = 0;
    let mut store = || {
        page += 1;
        scene.changes(|| scene.process.write(CPU, at(base, page), page))
    };
    let of =
        |changes: &Changes, wanted| changes.iter().find(|(counter, _)| *counter == wanted).map_or(0, |found| found.1);
    let direct = (0..2047).map(|_| store()).find(|changes| changes.len() > 2).expect("memory runs out");
    // A batch of pages, all of them anonymous.
    assert_eq!((of(&direct, Counter::PgStealDirect), of(&direct, Counter::PswpOut)), (32, 32));
    let scanned = of(&direct, Counter::PgScanDirect);
    assert!((32..1024).contains(&scanned), "{scanned} pages are scanned");
    let mut freed = 0;
    let background = scene.changes(|| freed = scene.world.on(CPU, |mm| mm.balance(NODE)));
    assert!(freed > 0);
    assert_eq!((of(&background, Counter::PageOutRun), of(&background, Counter::PgStealKswapd)), (1, freed));
    assert_eq!(of(&background, Counter::PswpOut), freed);
    assert!((freed..1024).contains(&of(&background, Counter::PgScanKswapd)), "{background:?}");
    direct.iter().chain(&background).map(|(counter, _)| *counter as usize).collect()
}

/// What pages that move to another node count, and one that is pinned.
fn migrations<I: Isa>() -> BTreeSet<usize> {
    let scene = Scene::<I>::on(TestWorld::two_nodes(2, 1024 * PAGE_SIZE));
    let base = scene.filled(PAGES);
    let device = scene.process.take(CPU, base, 1, GupCall::Pin(GupFlags::WRITE)).expect("a page");
    let pages: Vec<_> = (0..PAGES).map(|page| (at(base, page), NodeId::new(1))).collect();
    let changes =
        scene.changes(|| scene.world.on(CPU, |mm| mm.move_pages(&scene.process.space, &pages, false, |_, _| {})));
    device.release(MakeDirty::No);
    let expected =
        [(Counter::PwRmapNodes, PAGES - 1), (Counter::PgMigrateSuccess, PAGES - 1), (Counter::PgMigrateFail, 1)];
    let mut expected = expected.to_vec();
    expected.sort_by_key(|(counter, _)| *counter as usize);
    assert_eq!(changes, expected, "pages that move");
    changes.iter().map(|(counter, _)| *counter as usize).collect()
}

fn each_operation_counts_what_it_does_and_nothing_else<I: Isa>() {
    let mut changed = memory_pressure::<I>();
    changed.extend(migrations::<I>());
    for (what, act, mut expected) in operations::<I>() {
        let changes = act(&Scene::new());
        expected.sort_by_key(|(counter, _)| *counter as usize);
        assert_eq!(changes, expected, "{what}");
        changed.extend(changes.into_iter().map(|(counter, _)| counter as usize));
    }
    let never = Counter::ALL.iter().filter(|counter| !of_lower_layers(**counter));
    let never: Vec<_> = never.filter(|counter| !changed.contains(&(**counter as usize))).collect();
    assert!(never.is_empty(), "no operation of the table changes {never:?}");
}
