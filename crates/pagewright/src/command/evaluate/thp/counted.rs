//! Locked instructions and cache lines of records, per operation on a folio.
//!
//! Key type: [`FolioOperation`], one operation. Each operation is
//! executed instruction by instruction (`stepping`) on the records of a real memory manager.
//!
//! A record is one cache line. Its address is found by two references that are taken to known
//! frames: a reference is one locked instruction on the record of the folio's head.
//!
//! Not guaranteed: the figures of another build. The build that runs is stepped, with its debug
//! assertions if it has them; they load records and lock nothing.

use super::super::EvaluateError;
use super::super::parent::{Parent, failed};
use super::operations::OperationKind::{self, MapRun, Other, Reference, SplitPmd, UnmapLastOfRun, UnmapRun};
use super::operations::OperationUse;
use super::process::{Machine, enable, leaf};
use super::stepping::{SteppedUse, step};
use pagewright_mm::MapFlags;
use pagewright_tlb::frames::{Folio, FolioRefs, Frames, PageCounts};
use pagewright_types::{Order, Pfn, VirtAddr};
use std::collections::BTreeSet;

/// Bytes of the machine's memory.
const MEMORY: u64 = 64 << 20;
/// A page of a large folio that is not its first.
const TAIL: u32 = 100;
/// Pages of a run.
const RUN: u32 = 16;
/// The first page of a run.
const RUN_START: u32 = 32;

/// An operation on a folio.
struct FolioOperation {
    name: &'static str,
    kind: OperationKind,
    /// Runs before the operation, and is not counted.
    prepare: fn(&FolioScene) -> Option<FolioRefs>,
    operate: fn(&FolioScene, Option<FolioRefs>) -> Option<FolioRefs>,
    /// The head of the folio.
    head: fn(&FolioScene) -> Pfn,
}

/// An operation on the large folio that nothing precedes.
const fn large(
    name: &'static str,
    kind: OperationKind,
    operate: fn(&FolioScene, Option<FolioRefs>) -> Option<FolioRefs>,
) -> FolioOperation {
    FolioOperation { name, kind, prepare: |_| None, operate, head: |scene| scene.head }
}

impl FolioOperation {
    /// The operation after another, which is not counted.
    const fn after(mut self, prepare: fn(&FolioScene) -> Option<FolioRefs>) -> Self {
        self.prepare = prepare;
        self
    }

    /// The operation, on the small folio.
    const fn of_small(mut self) -> Self {
        self.head = |scene| scene.small;
        self
    }
}

/// A process with a small folio and a large one of 2 MiB, mapped by a huge leaf.
struct FolioScene {
    process: Parent<Machine>,
    small: Pfn,
    head: Pfn,
}

impl FolioScene {
    fn new() -> Result<Self, EvaluateError> {
        let process = Parent::without_contents(MEMORY)?;
        let small = process.map(VirtAddr::ZERO, Order::ZERO.bytes(), MapFlags::empty())?.start();
        process.store(&process.space, small)?;
        enable(&process, "always")?;
        let large = process.map(VirtAddr::ZERO, Order::PMD.bytes(), MapFlags::empty())?.start();
        process.store(&process.space, large)?;
        let [small, head] = [small, large].map(|va| leaf(&process, &process.space, va));
        let scene = Self { small: small?, head: head?, process };
        match scene.large().order() {
            Order::PMD => Ok(scene),
            other => Err(failed(format!("the huge page has {other:?}"))),
        }
    }

    fn frames(&self) -> &Frames<Machine> {
        self.process.mm.tlb().frames()
    }

    fn small(&self) -> Folio<'_> {
        self.frames().folio(self.small)
    }

    fn large(&self) -> Folio<'_> {
        self.frames().folio(self.head)
    }

    /// The large folio, found by a frame that is not its first.
    fn by_tail(&self) -> Folio<'_> {
        self.frames().folio(self.head.add(TAIL))
    }

    /// `n` references to the large folio.
    fn large_refs(&self, n: u32) -> FolioRefs {
        let mut refs = FolioRefs::from(self.large().get());
        (1..n).for_each(|_| refs.add(self.large().get().into()));
        refs
    }

    fn put(&self, refs: Option<FolioRefs>) -> Option<FolioRefs> {
        let block = refs.and_then(|refs| self.frames().put_refs(refs));
        debug_assert!(block.is_none(), "other references remain");
        None
    }
}

const fn run() -> std::ops::Range<u32> {
    RUN_START..RUN_START + RUN
}

/// References.
const REFERENCES: [FolioOperation; 7] = [
    large("get, small folio", Reference, |scene, _| Some(scene.small().get().into())).of_small(),
    large("get, head", Reference, |scene, _| Some(scene.large().get().into())),
    large("get, tail", Reference, |scene, _| Some(scene.by_tail().get().into())),
    large("get without a lock (try_get), tail", Reference, |scene, _| {
        scene.frames().try_get_folio(scene.head.add(TAIL)).map(FolioRefs::from)
    }),
    large("put, small folio", Reference, FolioScene::put).of_small().after(|scene| Some(scene.small().get().into())),
    large("put, head", Reference, FolioScene::put).after(|scene| Some(scene.large().get().into())),
    large("put, tail", Reference, FolioScene::put).after(|scene| Some(scene.by_tail().get().into())),
];

/// Entries of one page.
const PAGES: [FolioOperation; 6] = [
    large("map a small folio once more", Other, |scene, _| {
        scene.small().get_and_map_page(0);
        None
    })
    .of_small(),
    large("unmap a small folio, put; another entry remains", Other, |scene, refs| {
        scene.small().unmap_small();
        scene.put(refs)
    })
    .of_small()
    .after(|scene| {
        scene.small().map_page(0);
        Some(scene.small().get().into())
    }),
    large("map the head page, its first own entry", Other, |scene, _| {
        scene.large().get_and_map_pages(0..1, PageCounts::Shared);
        None
    }),
    large("map a tail page, its first own entry", MapRun, |scene, _| {
        scene.large().get_and_map_pages(TAIL..TAIL + 1, PageCounts::Shared);
        None
    }),
    large("unmap a tail page, put; another own entry remains", UnmapRun, |scene, refs| {
        scene.large().unmap_page(TAIL);
        scene.put(refs)
    })
    .after(|scene| {
        scene.large().map_page(TAIL);
        scene.large().map_page(TAIL);
        Some(scene.large_refs(2))
    }),
    large("unmap a tail page, put; no own entry remains", UnmapLastOfRun, |scene, refs| {
        scene.large().unmap_page(TAIL);
        scene.put(refs)
    })
    .after(|scene| {
        scene.large().map_page(TAIL);
        Some(scene.large_refs(1))
    }),
];

/// Entries of a run of pages, and of the whole folio.
const RUNS: [FolioOperation; 8] = [
    large("map a run of 16 pages, own table", MapRun, |scene, _| {
        scene.large().get_and_map_pages(run(), PageCounts::Sole);
        None
    }),
    large("map a run of 16 pages", MapRun, |scene, _| {
        scene.large().get_and_map_pages(run(), PageCounts::Shared);
        None
    }),
    large("unmap a run of 16 pages, put; other own entries remain", UnmapRun, |scene, refs| {
        scene.large().unmap_pages(run(), PageCounts::Shared);
        scene.put(refs)
    })
    .after(|scene| {
        scene.large().get_and_map_pages(run(), PageCounts::Shared);
        scene.large().get_and_map_pages(run(), PageCounts::Shared);
        Some(scene.large_refs(RUN))
    }),
    large("unmap a run of 16 pages, put; none remains, own table", UnmapLastOfRun, |scene, refs| {
        scene.large().unmap_pages(run(), PageCounts::Sole);
        scene.put(refs)
    })
    .after(|scene| {
        scene.large().get_and_map_pages(run(), PageCounts::Sole);
        Some(scene.large_refs(RUN))
    }),
    large("map whole (PMD) once more", Other, |scene, _| {
        scene.large().get_and_map_entire();
        None
    }),
    large("unmap whole (PMD), put; another entry remains", Other, |scene, refs| {
        scene.large().unmap_entire();
        scene.put(refs)
    })
    .after(|scene| {
        scene.large().map_entire();
        Some(scene.large_refs(1))
    }),
    large("PMD split, the only entry", SplitPmd, |scene, _| {
        scene.large().split_entire(PageCounts::Sole);
        None
    }),
    large("PMD split, another process maps the folio whole", SplitPmd, |scene, _| {
        scene.large().split_entire(PageCounts::Shared);
        None
    })
    .after(|scene| {
        scene.large().get_and_map_entire();
        None
    }),
];

/// Where the records are: the lines of frame 0 and of the last frame.
struct RecordLines {
    first: u64,
    last: u64,
}

impl RecordLines {
    /// Finds them by the references that get takes.
    fn find(scene: &FolioScene) -> Result<Self, EvaluateError> {
        let line = |operation: &FolioOperation| {
            let used = operation.step(scene)?;
            let locked: BTreeSet<_> = used.locked.iter().map(|address| SteppedUse::line_of(*address)).collect();
            match locked.into_iter().collect::<Vec<_>>()[..] {
                [line] => Ok(line),
                ref lines => Err(failed(format!("{} locks {} lines", operation.name, lines.len()))),
            }
        };
        let (small, large) = (line(&REFERENCES[0])?, line(&REFERENCES[1])?);
        let first = small - u64::from(scene.small.raw());
        if large - first != u64::from(scene.head.raw()) {
            return Err(failed("a record is not one cache line"));
        }
        Ok(Self { first, last: first + scene.frames().managed() - 1 })
    }

    fn contains(&self, line: u64) -> bool {
        (self.first..=self.last).contains(&line)
    }

    fn of(&self, pfn: Pfn) -> u64 {
        self.first + u64::from(pfn.raw())
    }
}

impl FolioOperation {
    fn step(&self, scene: &FolioScene) -> Result<SteppedUse, EvaluateError> {
        step(|| (self.prepare)(scene), |refs| (self.operate)(scene, refs))
    }

    fn count(&self, scene: &FolioScene, lines: &RecordLines) -> Result<OperationUse, EvaluateError> {
        let used = self.step(scene)?;
        let head = lines.of((self.head)(scene));
        let locked = used.locked.iter().map(|address| SteppedUse::line_of(*address));
        let (records, elsewhere): (Vec<_>, Vec<_>) = locked.partition(|line| lines.contains(*line));
        let on_head = records.iter().filter(|line| **line == head).count() as u64;
        let of_records = |all: &BTreeSet<u64>| all.iter().filter(|line| lines.contains(**line)).count() as u64;
        Ok(OperationUse {
            name: self.name,
            kind: self.kind,
            locked_head: on_head,
            locked_records: records.len() as u64 - on_head,
            locked_elsewhere: elsewhere.len() as u64,
            records: of_records(&used.lines),
            records_stored: of_records(&used.stored),
        })
    }
}

/// Counts all operations.
///
/// # Errors
/// [`EvaluateError::Memory`], and [`EvaluateError::Machine`] if the host permits no ptrace.
pub(super) fn measure() -> Result<Vec<OperationUse>, EvaluateError> {
    count(REFERENCES.iter().chain(&PAGES).chain(&RUNS))
}

/// Counts get and put, which have few instructions.
///
/// # Errors
/// As [`measure`].
pub(super) fn references() -> Result<Vec<OperationUse>, EvaluateError> {
    count(REFERENCES.iter())
}

fn count<'a>(operations: impl Iterator<Item = &'a FolioOperation>) -> Result<Vec<OperationUse>, EvaluateError> {
    let scene = FolioScene::new()?;
    if !step(|| (), |()| ())?.locked.is_empty() {
        return Err(failed("the stops around an operation lock something"));
    }
    let lines = RecordLines::find(&scene)?;
    operations.map(|operation| operation.count(&scene, &lines)).collect()
}
