//! All that can be seen of a machine's memory, and of its bookkeeping.
//!
//! A call that changes nothing leaves it as it was.

use super::scene::{Scene, levels};
use pagewright_arch::Isa;
use pagewright_lab::harness::{CPU, TestWorld};
use pagewright_mm::MmSetting;
use pagewright_mm::counters::Gauge;
use pagewright_types::snapshot::SnapshotRecord;
use pagewright_types::{Access, PAGE_SIZE, PageRange, Pfn, SpaceId, VirtAddr};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// What can be seen of one space.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    maps: String,
    smaps: String,
    status: String,
    /// The break, and what limits count: pages mapped, of data, locked, charged.
    accounts: String,
    /// The word of each page that has one.
    pagemap: BTreeMap<VirtAddr, u64>,
}

/// What can be seen of one file.
#[derive(Debug, PartialEq, Eq)]
struct FileSeen {
    size: u64,
    seals: Option<u32>,
    charged: u64,
}

/// Everything at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    spaces: BTreeMap<SpaceId, Seen>,
    files: BTreeMap<String, FileSeen>,
    /// Gauges, and pages promised.
    levels: Vec<u64>,
    /// What the memory manager says of every folio, table and space: references, mappings, sharers.
    records: Vec<SnapshotRecord>,
    /// What is in each folio.
    contents: BTreeMap<Pfn, u64>,
}

fn hash<I: Isa>(world: &TestWorld<I>, pfn: Pfn) -> u64 {
    let words = &world.lab.sim().ram()[pfn.base().raw() as usize / 8..][..PAGE_SIZE as usize / 8];
    // FNV-1a, by words.
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ word.load(Ordering::Relaxed)).wrapping_mul(0x100_0000_01b3)
    })
}

impl State {
    /// Everything; where fork shares tables, without what a break changes, which no program sees.
    ///
    /// A break takes frames for tables, and adds references and mappings to pages.
    pub(crate) fn of<I: Isa>(world: &TestWorld<I>) -> Self {
        let mut state = Self::exactly(world);
        if world.on(CPU, |mm| mm.settings().get(MmSetting::CowPageTables)) > 0 {
            let place = |gauge| Gauge::ALL.iter().position(|other| *other == gauge).expect("one of them");
            state.levels[place(Gauge::FreePages)] += state.levels[place(Gauge::PageTablePages)];
            state.levels[place(Gauge::PageTablePages)] = 0;
            state.records.clear();
        }
        state
    }

    /// The same without proportional sizes, which are shares of what other spaces have, too.
    ///
    /// A break by one of three sharers of a table makes its share of each page greater.
    pub(crate) fn without_proportions(mut self) -> Self {
        for space in self.spaces.values_mut() {
            let lines = space.smaps.lines().filter(|line| !line.starts_with("Pss:") && !line.starts_with("Pss_"));
            space.smaps = lines.collect::<Vec<_>>().join("\n");
        }
        self
    }

    fn exactly<I: Isa>(world: &TestWorld<I>) -> Self {
        let mut records = Vec::new();
        let (mut spaces, mut files) = (BTreeMap::new(), BTreeMap::new());
        world.on(CPU, |mm| {
            mm.snapshot(&mut |record| records.push(record));
            mm.for_each_space(|space| {
                let [mut maps, mut smaps, mut status] = [const { String::new() }; 3];
                let written = [
                    mm.show_maps(space, &mut maps),
                    mm.show_smaps(space, &mut smaps),
                    mm.show_status(space, &mut status),
                ];
                assert_eq!(written, [Ok(()); 3], "a string takes everything");
                let (accounts, mapped) = {
                    let map = space.map().read();
                    let mapped: Vec<PageRange> = map.iter().map(|(start, vma)| vma.range(start)).collect();
                    (format!("{:?} {:?} {:?}", map.heap(), map.totals(), map.limits()), mapped)
                };
                let mut pagemap = BTreeMap::new();
                for range in mapped {
                    mm.pagemap(space, range, |va, word| {
                        pagemap.insert(va, word.raw());
                    });
                }
                spaces.insert(space.id(), Seen { maps, smaps, status, accounts, pagemap });
            });
            mm.for_each_file(|file| {
                let seals = file.seals().ok().map(|seals| seals.bits());
                let seen = FileSeen { size: file.size(), seals, charged: file.charged() };
                files.insert(format!("{:?} {}", file.id(), file.name()), seen);
            });
        });
        let folios = records
            .iter()
            .filter_map(|record| if let SnapshotRecord::Folio(folio) = record { Some(folio.pfn) } else { None });
        let contents = folios.map(|pfn| (pfn, hash(world, pfn))).collect();
        Self { spaces, files, levels: levels(world), records, contents }
    }

    /// Asserts that nothing has changed since `before`; says what has.
    #[track_caller]
    pub(crate) fn assert_like(&self, before: &Self, what: &str) {
        // The searches below only find words for a difference, and take long.
        if self == before {
            return;
        }
        for (id, space) in &self.spaces {
            let Some(old) = before.spaces.get(id) else { panic!("{what}: there is a space more") };
            for (name, now, old) in [
                ("maps", &space.maps, &old.maps),
                ("smaps", &space.smaps, &old.smaps),
                ("status", &space.status, &old.status),
                ("accounts", &space.accounts, &old.accounts),
            ] {
                let lines = old.lines().zip(now.lines()).find(|(old, now)| old != now);
                assert!(old == now, "{what}: {name} of {id:?} changed: {lines:?}");
            }
            assert_eq!(space.pagemap, old.pagemap, "{what}: pagemap of {id:?}");
        }
        assert_eq!(self.files, before.files, "{what}: files");
        assert_eq!(self.levels, before.levels, "{what}: gauges");
        let gone = before.records.iter().find(|record| !self.records.contains(record));
        let come = self.records.iter().find(|record| !before.records.contains(record));
        assert_eq!((gone, come), (None, None), "{what}: counts");
        assert_eq!(self.contents, before.contents, "{what}: contents");
        panic!("{what}: the order of records, or a space less");
    }
}

/// What the programs see: the mappings of each process, and the first word of each readable page.
///
/// Names of files are left out, because they count up.
pub(crate) fn picture<I: Isa>(scene: &Scene<I>) -> Vec<String> {
    let mut lines = Vec::new();
    for process in scene.processes() {
        let mapped: Vec<_> = {
            let map = process.space.map().read();
            map.iter().map(|(start, vma)| (vma.range(start), vma.rights(), vma.flags(), vma.pgoff())).collect()
        };
        for (range, rights, flags, pgoff) in mapped {
            let words = range.iter().map(|va| match process.touch(CPU, va, Access::Read) {
                Ok(()) => process.read(CPU, va).to_string(),
                Err(error) => format!("{error}"),
            });
            lines.push(format!("{range} {rights} {flags:?} {pgoff} {:?}", words.collect::<Vec<_>>()));
        }
        lines.push(format!("{:?} {:?}", process.space.map().read().heap(), process.space.map().read().totals()));
    }
    scene.on(|mm| {
        for file in [&scene.file, &scene.memfd] {
            let mut bytes = vec![0; file.size() as usize];
            assert_eq!(mm.read_at(file, 0, &mut bytes), Ok(bytes.len()));
            let words = bytes.chunks_exact(PAGE_SIZE as usize).map(|page| page[..8].to_vec());
            lines.push(format!("{} {:?} {:?}", file.size(), file.seals(), words.collect::<Vec<_>>()));
        }
        lines.push(format!("{} promised", mm.committed()));
    });
    scene.world.lab.run(CPU, &scene.process.space);
    lines
}
