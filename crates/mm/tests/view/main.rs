//! The texts of `/proc`, compared with Linux's and with counts.
//!
//! Linux's are the lines that this machine's kernel prints about this very process.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::Lab;
use pagewright_lab::harness::files::ZeroFile;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::FileKind;
use pagewright_mm::space::FileMapping;
use pagewright_mm::view::{PagemapFlags, Pss, RecordWriter, TableBytes};
use pagewright_mm::{MapFlags, MapRequest, Mm, MmSetting, MmSettings, RemapFlags, RemapRequest, Space, ThpDisabled};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, PAGE_SIZE, PageRange, Rights, VirtAddr};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::fs;

const CPU: CpuId = CpuId::new(0);
const ALL: u64 = 1 << 36;

struct Bed<I: Isa> {
    lab: Lab<I>,
}

type TestProcess<I> = Arc<Space<Sim<I>>>;

impl<I: Isa> Bed<I> {
    fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let settings = MmSettings::default();
        // The mappings of the process that runs the test may be larger than the machine.
        settings.set(MmSetting::OvercommitMemory, 1).expect("a policy");
        Self { lab: Lab::new(config, settings).expect("a possible machine") }
    }

    fn mm(&self) -> &Mm<Sim<I>> {
        self.lab.mm()
    }

    fn process(&self) -> TestProcess<I> {
        self.lab.on(CPU, Mm::new_space).expect("memory for a space")
    }

    fn map(
        &self,
        space: &TestProcess<I>,
        range: PageRange,
        rights: Rights,
        flags: MapFlags,
        file: Option<(&str, u64)>,
    ) {
        let file = file.map(|(name, offset)| {
            (self.lab.on(CPU, |mm| mm.add_file(name, FileKind::File(Box::new(ZeroFile)), ALL)).expect("memory"), offset)
        });
        let kind = if file.is_some() { MapFlags::FIXED } else { MapFlags::FIXED | MapFlags::ANONYMOUS };
        let file = file.as_ref().map(|(file, offset)| FileMapping { file, offset: *offset, opened: Rights::RW });
        let request = MapRequest { addr: range.start(), len: range.len(), rights, flags: flags | kind, file };
        self.lab.on(CPU, |mm| mm.mmap(space, &request)).expect("a possible mapping");
    }

    fn touch(&self, space: &TestProcess<I>, va: VirtAddr, access: Access) {
        self.lab.run(CPU, space);
        self.lab.touch(CPU, space, va, access, 1).expect("mapped");
    }

    fn fork(&self, space: &TestProcess<I>) -> TestProcess<I> {
        self.lab.on(CPU, |mm| mm.fork(space)).expect("memory for a child")
    }

    fn end(&self, space: &TestProcess<I>) {
        self.lab.on(CPU, |mm| {
            mm.tlb().leave_space();
            mm.end_space(space);
        });
    }

    fn text(&self, show: impl FnOnce(&Mm<Sim<I>>, &mut dyn Write) -> fmt::Result) -> String {
        let mut text = String::new();
        self.lab.on(CPU, |mm| show(mm, &mut text)).expect("a string takes everything");
        text
    }
}

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::from_len(VirtAddr::new(start), pages * PAGE_SIZE).expect("a possible range")
}

/// A line of `maps` as Linux printed it.
struct Real<'a> {
    range: PageRange,
    rights: Rights,
    shared: bool,
    offset: u64,
    /// Device and inode, as they stand there.
    place: &'a str,
    name: &'a str,
}

impl<'a> Real<'a> {
    fn parse(line: &'a str) -> Self {
        let mut rest = line;
        let mut word = || {
            let (word, tail) = rest.split_once(' ').expect("a column and a space");
            rest = tail;
            word
        };
        let (range, letters, offset) = (word(), word(), word());
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
        let (start, end) = range.split_once('-').expect("a range");
        let name = rest.splitn(3, ' ').nth(2).expect("device, inode, name");
        let place = &rest[..rest.len() - name.len()].trim_end();
        let mut rights = Rights::empty();
        for (letter, right) in [('r', Rights::READ), ('w', Rights::WRITE), ('x', Rights::EXEC)] {
            rights.set(right, letters.contains(letter));
        }
        Self {
            range: PageRange::new(VirtAddr::new(hex(start)), VirtAddr::new(hex(end))),
            rights,
            shared: letters.ends_with('s'),
            offset: hex(offset),
            place,
            name: name.trim_start(),
        }
    }
}

/// The line with device and inode replaced by ours, and the name where it stood.
fn with_place(line: &str, real: &Real<'_>, place: &str) -> String {
    let (before, after) = line.split_once(&format!(" {} ", real.place)).expect("device and inode");
    let pad = after.len() - after.trim_start().len();
    if real.name.is_empty() {
        return format!("{before} {place} ");
    }
    format!("{before} {place}{:1$}{2}", "", pad + 1 + real.place.len() - place.len(), real.name)
}

/// `show_maps` prints each line of this process's map as Linux wrote it, byte for byte.
///
/// The test leaves out lines that no program could have made. Device and inode are ours.
#[test]
fn maps_prints_each_line_as_linux_does() {
    let bed = Bed::<X86_64>::new();
    let text = fs::read_to_string("/proc/self/maps").expect("Linux");
    let mut compared = 0;
    for line in text.lines() {
        let real = Real::parse(line);
        let kernels_own = real.name.starts_with("[v") || real.name.starts_with("[anon") || real.name.starts_with("[u");
        if kernels_own || real.range.end() > X86_64::USER_END {
            continue;
        }
        let space = bed.process();
        let mut flags = if real.shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        let file = real.name.starts_with('/').then_some((real.name, real.offset));
        match real.name {
            "[heap]" => {
                bed.lab.on(CPU, |mm| mm.set_brk_start(&space, real.range.start()));
                bed.lab.on(CPU, |mm| mm.brk(&space, real.range.end()));
            }
            "[stack]" => {
                flags |= MapFlags::GROWSDOWN;
                bed.lab.on(CPU, |mm| mm.set_stack_start(&space, real.range.end().align_down(PAGE_SIZE)));
                bed.map(&space, real.range, real.rights, flags, None);
            }
            _ => bed.map(&space, real.range, real.rights, flags, file),
        }
        let map = space.map().read();
        let id = map.iter().next().and_then(|(_, vma)| vma.file().map(|file| file.id().raw())).unwrap_or(0);
        drop(map);
        let ours = bed.text(|mm, out| mm.show_maps(&space, out));
        assert_eq!(ours, with_place(line, &real, &format!("00:00 {id}")) + "\n");
        bed.end(&space);
        compared += 1;
    }
    assert!(compared > 5, "the map of a program has a heap, a stack, a library and itself: {text}");
}

/// Lines whose form the process above may not have.
///
/// They have short addresses, long paths, a line end in a name, or shared memory.
#[test]
fn maps_pads_and_escapes_as_linux_does() {
    let bed = Bed::<Aarch64>::new();
    let space = bed.process();
    bed.map(&space, range(0x10000, 1), Rights::READ, MapFlags::PRIVATE, Some(("/a\nb", 0x1234_5000)));
    bed.map(&space, range(0x40_0000, 2), Rights::empty(), MapFlags::PRIVATE, None);
    bed.map(&space, range(0x50_0000, 1), Rights::all(), MapFlags::SHARED, None);
    let text = bed.text(|mm, out| mm.show_maps(&space, out));
    let expected = concat!(
        "00010000-00011000 r--p 12345000 00:00 1                                  /a\\012b\n",
        "00400000-00402000 ---p 00000000 00:00 0 \n",
        "00500000-00501000 rwxs 00000000 00:00 2                                  /dev/zero (deleted)\n",
    );
    assert_eq!(text, expected);
    assert_eq!(text.find("/a"), Some(73), "the name begins in column 73");
    bed.end(&space);
}

/// A writer of records that takes at most `limit` bytes at once, and wants at least `wanted`.
struct Part {
    text: String,
    whole: usize,
    wanted: usize,
    limit: usize,
}

impl Write for Part {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        if self.text.len() > self.limit { Err(fmt::Error) } else { Ok(()) }
    }
}

impl RecordWriter for Part {
    fn end_record(&mut self) -> bool {
        self.whole = self.text.len();
        self.whole < self.wanted
    }
}

/// Writes records from an address on.
type ShowFrom<I> = fn(&Mm<Sim<I>>, &Space<Sim<I>>, VirtAddr, &mut dyn RecordWriter) -> Option<VirtAddr>;

/// Reads to the end in parts, and calls `between` after each.
fn in_parts<I: Isa>(
    bed: &Bed<I>,
    space: &TestProcess<I>,
    show: ShowFrom<I>,
    (wanted, limit): (usize, usize),
    mut between: impl FnMut(&str),
) -> String {
    let (mut all, mut next) = (String::new(), Some(VirtAddr::ZERO));
    while let Some(from) = next {
        let mut part = Part { text: String::new(), whole: 0, wanted, limit };
        next = bed.lab.on(CPU, |mm| show(mm, space, from, &mut part));
        assert!(next.is_none_or(|next| next > from), "each part has a record");
        all.push_str(&part.text[..part.whole]);
        between(&part.text[..part.whole]);
    }
    all
}

/// INV-VIEW-RESUME.
fn parts_of_maps_and_smaps_make_the_whole<I: Isa>() {
    let bed = Bed::<I>::new();
    let space = busy(&bed);
    let maps = bed.text(|mm, out| mm.show_maps(&space, out));
    let smaps = bed.text(|mm, out| mm.show_smaps(&space, out));
    for (wanted, limit) in [(1, usize::MAX), (usize::MAX, 900), (1500, 2000), (200, 900)] {
        assert_eq!(in_parts(&bed, &space, Mm::show_maps_from, (wanted, limit.min(wanted.max(200))), |_| ()), maps);
        assert_eq!(in_parts(&bed, &space, Mm::show_smaps_from, (wanted, limit), |_| ()), smaps);
    }
    // A part has no more than is wanted of it.
    in_parts(&bed, &space, Mm::show_maps_from, (1, usize::MAX), |part| assert_eq!(part.lines().count(), 1));
    bed.end(&space);
}

#[test]
fn parts_of_a_text_make_the_whole() {
    parts_of_maps_and_smaps_make_the_whole::<X86_64>();
    parts_of_maps_and_smaps_make_the_whole::<Aarch64>();
}

/// INV-VIEW-RESUME.
#[test]
fn mappings_that_stay_between_two_parts_are_shown_once() {
    let bed = Bed::<X86_64>::new();
    let space = bed.process();
    for page in 0..10 {
        let rights = if page % 2 == 0 { Rights::READ } else { Rights::RW };
        bed.map(&space, range(0x50_0000 + page * PAGE_SIZE, 1), rights, MapFlags::PRIVATE, None);
    }
    let mut parts = 0;
    let text = in_parts(&bed, &space, Mm::show_maps_from, (1, usize::MAX), |_| {
        parts += 1;
        if parts == 3 {
            // Behind the reader, the mapping that it would show next, and one in front of it.
            for page in [0, 3, 5] {
                let range = range(0x50_0000 + page * PAGE_SIZE, 1);
                bed.lab.on(CPU, |mm| mm.munmap(&space, range.start(), range.len())).expect("mapped");
            }
            bed.map(&space, range(0x50_a000, 1), Rights::READ, MapFlags::PRIVATE, None);
        }
    });
    let starts: Vec<_> = text.lines().map(|line| &line[..8]).collect();
    let expected = ["00500000", "00501000", "00502000", "00504000", "00506000", "00507000", "00508000", "00509000"];
    assert_eq!(starts[..8], expected);
    assert_eq!(starts[8..], ["0050a000"]);
    bed.end(&space);
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::RefusedRecordLost, parts_of_maps_and_smaps_make_the_whole::<X86_64>);
}

/// The name before the colon, with the columns of its figures.
///
/// A parser of fixed columns depends on them.
fn shape(line: &str) -> (&str, Option<usize>) {
    let (name, _) = line.split_once(':').expect("a name and a colon");
    (name, (name != "VmFlags").then_some(line.len()))
}

/// Each of our lines has the columns of Linux's line of that name, and they come in Linux's order.
///
/// Returns how many both have.
fn assert_same_shape(ours: &str, linux: &str) -> usize {
    let linux: Vec<_> = linux.lines().map(shape).collect();
    let known: Vec<_> =
        ours.lines().map(shape).filter(|(name, _)| linux.iter().any(|(other, _)| other == name)).collect();
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    let expected: Vec<_> = linux.iter().copied().filter(|(name, _)| names.contains(name)).collect();
    assert_eq!(known, expected);
    known.len()
}

/// A program with one page of every sort that can be told apart.
fn busy<I: Isa>(bed: &Bed<I>) -> TestProcess<I> {
    let space = bed.process();
    bed.map(&space, range(0x40_0000, 4), Rights::RX, MapFlags::PRIVATE, Some(("/bin/program", 0)));
    bed.map(&space, range(0x50_0000, 4), Rights::RW, MapFlags::PRIVATE, None);
    bed.map(&space, range(0x60_0000, 4), Rights::RW, MapFlags::SHARED, None);
    bed.map(&space, range(0x70_0000, 4), Rights::RX, MapFlags::PRIVATE, Some(("/lib/library", 0)));
    bed.map(&space, range(0x7f_0000_0000, 4), Rights::RW, MapFlags::PRIVATE | MapFlags::GROWSDOWN, None);
    bed.lab.on(CPU, |mm| {
        mm.set_code(&space, range(0x40_0000, 3));
        mm.set_brk_start(&space, VirtAddr::new(0x80_0000));
        mm.brk(&space, VirtAddr::new(0x80_2000));
    });
    bed.touch(&space, VirtAddr::new(0x40_0000), Access::Exec);
    for page in range(0x50_0000, 3).iter() {
        bed.touch(&space, page, Access::Write);
    }
    bed.touch(&space, VirtAddr::new(0x50_3000), Access::Read);
    bed.touch(&space, VirtAddr::new(0x60_0000), Access::Write);
    bed.touch(&space, VirtAddr::new(0x60_1000), Access::Read);
    space
}

/// The program of [`busy`], on x86-64 as the host is.
fn busy_on_x86_64() -> (Bed<X86_64>, TestProcess<X86_64>) {
    let bed = Bed::new();
    let space = busy(&bed);
    (bed, space)
}

#[test]
fn smaps_has_the_lines_of_linux() {
    let (bed, space) = busy_on_x86_64();
    let ours = bed.text(|mm, out| mm.show_smaps(&space, out));
    let real = fs::read_to_string("/proc/self/smaps").expect("Linux");
    fn first(text: &str) -> &str {
        let end = text.find("VmFlags").expect("every entry ends with its flags");
        let end = end + text[end..].find('\n').expect("a whole line");
        text[..end].split_once('\n').expect("a line of maps").1
    }
    assert!(assert_same_shape(first(&ours), first(&real)) >= 20, "{real}");
    assert_eq!(first(&ours).lines().last(), Some("VmFlags: rd ex mr mw me sd "));
    let flags: Vec<_> = ours.lines().filter(|line| line.starts_with("VmFlags")).collect();
    assert_eq!(flags[2], "VmFlags: rd wr sh mr mw me ms sd ");
    assert_eq!(flags[5], "VmFlags: rd wr mr mw me gd ac sd ");
    let rollup = bed.text(|mm, out| mm.show_smaps_rollup(&space, out));
    let real = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux");
    let (head, ours) = rollup.split_once('\n').expect("lines");
    assert_eq!(head, format!("00400000-7f00004000 ---p 00000000 00:00 0 {:31}[rollup]", ""));
    assert!(assert_same_shape(ours, real.split_once('\n').expect("lines").1) >= 20, "{real}");
    bed.end(&space);
}

#[test]
fn status_has_the_lines_of_linux_and_the_figures_of_the_space() {
    let (bed, space) = busy_on_x86_64();
    let ours = bed.text(|mm, out| mm.show_status(&space, out));
    let real = fs::read_to_string("/proc/self/status").expect("Linux");
    let of_memory = |line: &&str| line.ends_with(" kB") || line.starts_with("THP_enabled:");
    let real: String = real.lines().filter(of_memory).map(|line| format!("{line}\n")).collect();
    assert_eq!(assert_same_shape(&ours, &real), 16, "{real}");
    for (disabled, enabled) in [(ThpDisabled::Yes, 0), (ThpDisabled::ExceptAdvised, 1), (ThpDisabled::No, 1)] {
        space.set_thp_disabled(disabled);
        let shown = bed.text(|mm, out| mm.show_status(&space, out));
        assert!(shown.ends_with(&format!(" kB\nTHP_enabled:\t{enabled}\n")), "{disabled:?}: {shown}");
    }
    let kilobytes = |name: &str| {
        let line = ours.lines().find(|line| line.split(':').next() == Some(name)).expect("a line of that name");
        line.split_whitespace().nth(1).and_then(|figure| figure.parse::<u64>().ok()).expect("a figure")
    };
    let expected = [
        ("VmPeak", 88),
        ("VmSize", 88),
        // One page of the program and the three around it; three written pages; two of shared
        // memory. The zero page counts nowhere.
        ("VmRSS", 36),
        ("RssAnon", 12),
        ("RssFile", 16),
        ("RssShmem", 8),
        ("VmData", 24),
        ("VmStk", 16),
        ("VmExe", 12),
        ("VmLib", 20),
        ("VmPTE", space.table().bytes() / 1024),
    ];
    for (name, figure) in expected {
        assert_eq!(kilobytes(name), figure, "{name} of\n{ours}");
    }
    bed.lab.on(CPU, |mm| mm.munmap(&space, VirtAddr::new(0x50_0000), 4 * PAGE_SIZE)).expect("mapped");
    let later = bed.text(|mm, out| mm.show_status(&space, out));
    assert!(later.contains("VmPeak:\t      88 kB\nVmSize:\t      72 kB\n"), "{later}");
    assert!(later.contains("VmHWM:\t      36 kB\nVmRSS:\t      24 kB\n"), "{later}");
    bed.end(&space);
}

#[test]
fn vmstat_has_every_gauge_and_counter_under_linux_names() {
    let bed = Bed::<Aarch64>::new();
    let space = busy(&bed);
    let text = bed.text(|mm, out| mm.show_vmstat(out));
    let lines: Vec<(&str, u64)> = text
        .lines()
        .map(|line| line.split_once(' ').expect("a name and a figure"))
        .map(|(name, figure)| (name, figure.parse().expect("a number")))
        .collect();
    let gauges = Gauge::ALL.iter().map(|gauge| (gauge.name(), bed.mm().gauge(*gauge)));
    let counters = Counter::ALL.iter().map(|counter| (counter.name(), bed.mm().counter(*counter)));
    assert_eq!(lines, gauges.chain(counters).collect::<Vec<_>>());
    let real = fs::read_to_string("/proc/vmstat").expect("Linux");
    for name in Gauge::ALL.iter().map(|gauge| gauge.name()).chain(["pgfault", "pgmajfault", "oom_kill"]) {
        assert!(real.lines().any(|line| line.split(' ').next() == Some(name)), "Linux has no {name}");
    }
    bed.end(&space);
}

/// INV-VIEW-PATHS: each figure follows from the number of words of all `pagemap`s that name a page.
///
/// Linux computes it from the mapcount, which is that number.
fn assert_shares_follow_from_the_words_of_all_spaces<I: Isa>(bed: &Bed<I>) {
    let (mut words, mut mappings) = (Vec::new(), HashMap::<_, u64>::new());
    bed.mm().for_each_space(|space| {
        let mut of_space = Vec::new();
        for start in AREAS {
            bed.mm()
                .pagemap(space, range(start, PAGES + 1), |_, word| of_space.extend(word.pfn().map(|pfn| (pfn, word))));
        }
        // The zero page has no figures and no mapcount.
        of_space.retain(|(pfn, _)| bed.mm().tlb().frames().folio(*pfn).mapcount() > 0);
        of_space.iter().for_each(|(pfn, _)| *mappings.entry(*pfn).or_default() += 1);
        words.push((space.id(), of_space));
    });
    let mut of_spaces = words.into_iter();
    bed.mm().for_each_space(|space| {
        let (id, words) = of_spaces.next().expect("the same spaces");
        assert_eq!(space.id(), id);
        let usage = bed.mm().mem_size_stats(space);
        assert_eq!(usage.rss, bed.mm().rss(space).bytes(), "the entries are what was counted when they were made");
        let shares = words.iter().map(|(pfn, _)| PAGE_SIZE * Pss::PARTS / mappings[pfn]);
        assert_eq!(usage.pss.parts(), shares.sum::<u64>());
        let by_kind = usage.pss_anon.parts() + usage.pss_file.parts() + usage.pss_shmem.parts();
        assert_eq!(by_kind, usage.pss.parts());
        let private = words.iter().filter(|(pfn, _)| mappings[pfn] == 1).count() as u64;
        assert_eq!(usage.private_clean + usage.private_dirty, private * PAGE_SIZE);
        assert_eq!(usage.shared_clean + usage.shared_dirty, usage.rss - private * PAGE_SIZE);
        for (pfn, word) in words {
            assert_eq!(word.flags().contains(PagemapFlags::EXCLUSIVE), mappings[&pfn] == 1, "{word:?}");
        }
    });
}

/// A parent with memory at [`AREAS`], of which all is touched, and ten children.
///
/// The fifth stores to its first page, which breaks its path to the table with all others.
fn with_ten_children(pages: u64, cow_page_tables: u64) -> (Bed<X86_64>, Vec<TestProcess<X86_64>>) {
    let bed = Bed::<X86_64>::new();
    bed.mm().settings().set(MmSetting::CowPageTables, cow_page_tables).expect("a possible value");
    let parent = bed.process();
    bed.map(&parent, range(AREAS[0], pages), Rights::RW, MapFlags::PRIVATE, None);
    range(AREAS[0], pages).iter().for_each(|va| bed.touch(&parent, va, Access::Write));
    let mut all = vec![parent];
    (0..10).for_each(|_| all.push(bed.fork(&all[0])));
    bed.touch(&all[5], VirtAddr::new(AREAS[0]), Access::Write);
    (bed, all)
}

/// Linux 6.18 prints these figures for the same processes, which have tables of their own there.
#[test]
fn a_page_in_tables_with_unequal_sharers_has_the_shares_of_linux() {
    // Always; and as the kernel does, which copies the tables of the smaller one.
    let shares = [(64, 2), (64, 3), (20_480, 3)];
    for (pages, cow_page_tables) in shares {
        let (parent, writer) = if pages == 64 { (23, 26) } else { (7447, 7450) };
        let (bed, all) = with_ten_children(pages, cow_page_tables);
        for (index, space) in all.iter().enumerate() {
            let smaps = bed.text(|mm, out| mm.show_smaps(space, out));
            let rollup = bed.text(|mm, out| mm.show_smaps_rollup(space, out));
            let (pss, private) = if index == 5 { (writer, 4) } else { (parent, 0) };
            for text in [smaps, rollup] {
                assert_eq!(figure(&text, "Pss:"), pss, "process {index} of {pages} pages");
                assert_eq!(figure(&text, "Private_Dirty:"), private);
                assert_eq!(figure(&text, "Shared_Dirty:"), pages * 4 - private);
            }
        }
        all.iter().for_each(|space| bed.end(space));
    }
}

/// INV-VIEW-PATHS, of pages and of tables.
///
/// The product of the share counts is four on two paths and two on the third.
#[test]
fn spaces_that_reach_a_page_on_paths_with_unequal_share_counts_have_equal_shares() {
    let bed = Bed::<X86_64>::new();
    let first = bed.process();
    bed.map(&first, range(AREAS[0], 1), Rights::RW, MapFlags::PRIVATE, None);
    bed.map(&first, range(1 << 30, 1), Rights::RW, MapFlags::PRIVATE, None);
    [AREAS[0], 1 << 30].iter().for_each(|va| bed.touch(&first, VirtAddr::new(*va), Access::Write));
    let second = bed.fork(&first);
    bed.touch(&second, VirtAddr::new(1 << 30), Access::Write);
    let third = bed.fork(&first);
    let pss = [&first, &second, &third].map(|space| bed.lab.on(CPU, |mm| mm.mem_size_stats(space)).pss.parts());
    let page = PAGE_SIZE * Pss::PARTS;
    assert_eq!(pss, [page / 3 + page / 2, page / 3 + page, page / 3 + page / 2]);
    // Tables on the way to both pages, the third level's included: the second has copied three.
    let bytes = [&first, &second, &third].map(|space| bed.lab.on(CPU, |mm| mm.table_bytes(space)));
    let tables = |private: u64, of_two: u64, of_three: u64| TableBytes {
        private: private * PAGE_SIZE,
        shared: (of_two + of_three) * PAGE_SIZE,
        proportional: private * PAGE_SIZE + of_two * (PAGE_SIZE / 2) + of_three * (PAGE_SIZE / 3),
    };
    assert_eq!(bytes, [tables(1, 3, 2), tables(4, 0, 2), tables(1, 3, 2)]);
    [first, second, third].iter().for_each(|space| bed.end(space));
}

/// The first figure of that name, in kB.
fn figure(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).expect("such a line");
    line.split_whitespace().nth(1).expect("a figure").parse().expect("a number")
}

#[derive(Clone, Debug)]
enum Step {
    Fork(usize),
    Touch {
        who: usize,
        area: usize,
        page: u64,
        write: bool,
    },
    Unmap {
        who: usize,
        area: usize,
        page: u64,
    },
    /// Moves some pages of an area to another place in it, or in another area.
    Move {
        who: usize,
        from: (usize, u64),
        to: (usize, u64),
    },
    End(usize),
}

const AREAS: [u64; 3] = [0x40_0000, 0x80_0000, 0xc0_0000];
const PAGES: u64 = 24;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..8usize).prop_map(Step::Fork),
        8 => (0..8usize, 0..AREAS.len(), 0..PAGES, any::<bool>())
            .prop_map(|(who, area, page, write)| Step::Touch { who, area, page, write }),
        1 => (0..8usize, 0..AREAS.len(), 0..PAGES).prop_map(|(who, area, page)| Step::Unmap { who, area, page }),
        2 => (0..8usize, (0..AREAS.len(), 0..PAGES), (0..AREAS.len(), 0..PAGES))
            .prop_map(|(who, from, to)| Step::Move { who, from, to }),
        1 => (0..8usize).prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..60)
}

fn shares_are_those_of_all_spaces_after<I: Isa>(steps: Vec<Step>) {
    let bed = Bed::<I>::new();
    let first = bed.process();
    bed.map(&first, range(AREAS[0], PAGES), Rights::RW, MapFlags::PRIVATE, None);
    bed.map(&first, range(AREAS[1], PAGES), Rights::RW, MapFlags::PRIVATE, Some(("/data", 0)));
    bed.map(&first, range(AREAS[2], PAGES), Rights::RW, MapFlags::SHARED, None);
    let mut alive = vec![first];
    for step in steps {
        let pick = |who: usize| who % alive.len();
        match step {
            Step::Fork(who) => {
                let child = bed.fork(&alive[pick(who)]);
                alive.push(child);
            }
            Step::Touch { who, area, page, write } => {
                let space = &alive[pick(who)];
                let va = VirtAddr::new(AREAS[area] + page * PAGE_SIZE);
                if space.map().read().find(va).is_some() {
                    bed.touch(space, va, if write { Access::Write } else { Access::Read });
                }
            }
            Step::Unmap { who, area, page } => {
                let va = VirtAddr::new(AREAS[area] + page * PAGE_SIZE);
                bed.lab.on(CPU, |mm| mm.munmap(&alive[pick(who)], va, 2 * PAGE_SIZE)).expect("memory to split with");
            }
            Step::Move { who, from, to } => {
                let [addr, new_addr] = [from, to].map(|(area, page)| VirtAddr::new(AREAS[area] + page * PAGE_SIZE));
                let (len, flags) = (2 * PAGE_SIZE, RemapFlags::MAYMOVE | RemapFlags::FIXED);
                let request = RemapRequest { addr, old_len: len, new_len: len, flags, new_addr };
                // Some pages are not mapped, and some ranges overlap.
                let _ = bed.lab.on(CPU, |mm| mm.mremap(&alive[pick(who)], &request));
            }
            Step::End(who) if alive.len() > 1 => {
                let space = alive.swap_remove(pick(who));
                bed.end(&space);
            }
            Step::End(_) => {}
        }
        assert_shares_follow_from_the_words_of_all_spaces(&bed);
    }
    let mut listed = Vec::new();
    bed.mm().for_each_space(|space| listed.push(space.id()));
    let mut expected: Vec<_> = alive.iter().map(|space| space.id()).collect();
    expected.sort();
    assert_eq!(listed, expected, "every space is visited once, oldest first");
    alive.iter().for_each(|space| bed.end(space));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shares_are_those_of_all_spaces_that_reach_a_page(steps in steps()) {
        shares_are_those_of_all_spaces_after::<X86_64>(steps.clone());
        shares_are_those_of_all_spaces_after::<Aarch64>(steps);
    }
}
