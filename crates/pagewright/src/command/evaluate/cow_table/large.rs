//! Operations that should cost the same in a large space as in a small one.
//!
//! Key type: [`LargeSpace`]: reads of `/proc/PID/status`, and `munmap` of one page, alone and as
//! the first operation after a fork that shared the tables.
//!
//! In both spaces, the pages that are unmapped are of one last-level table, and the first few are
//! not timed. So caches are warm, but where a child has ended before each operation.
//!
//! An edit for all sharers is a read fault of the child, which maps the page of a file in a table
//! that both share. The page counts in the parent's resident set, too, or the measurement fails.
//!
//! Not guaranteed: the time of the first operation after others have used the caches.

use super::super::plot::size;
use super::super::rounds::{by_figure, in_turns};
use super::super::{EvaluateError, Figures, Grid, Run, Stats};
use super::parent::{ForkMode, Parent, SpanClock, failed};
use pagewright_arch::X86_64;
use pagewright_host::TableMachine;
use pagewright_mm::file::FileKind;
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest};
use pagewright_types::{Access, Counter, Level, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::time::Duration;

/// Operations in a sample.
const IN_A_SAMPLE: u32 = 16;
/// Operations before them that are not timed.
const WARM_UP: u32 = 8;
/// The distance of the pages that they unmap, in pages.
const STRIDE: u64 = 8;

/// What an operation takes in spaces of each size.
pub(super) struct LargeSpace {
    /// Bytes of the small space and of the large one.
    pub(super) bytes: [u64; 2],
    /// Microseconds of a read of `/proc/PID/status`, by size.
    pub(super) status: [Vec<f64>; 2],
    /// The same while a child shares the tables.
    pub(super) status_shared: [Vec<f64>; 2],
    /// The first read after a read fault mapped a page of a file for all sharers, and later ones.
    pub(super) status_first: [Vec<f64>; 2],
    pub(super) status_edited: [Vec<f64>; 2],
    /// Microseconds of a `munmap` of one page of an own table, by size.
    pub(super) unmap: [Vec<f64>; 2],
    /// The same, where all tables are shared.
    pub(super) unmap_shared: [Vec<f64>; 2],
}

impl LargeSpace {
    /// Measures a small and a large space in turns.
    pub(super) fn measure(bytes: [u64; 2], rounds: usize) -> Result<Self, EvaluateError> {
        let [small, large] = bytes.map(SizedSpace::new);
        let spaces = [small?, large?];
        // Each figure of the small space, and of the large one.
        let samples: [_; 2] = in_turns(rounds, |of| spaces[of].sample())?;
        let [small, large] = samples.map(|rounds| by_figure(&rounds).into_iter());
        let mut figures = small.zip(large).map(|(small, large)| [small, large]);
        let [status, status_shared, status_first, status_edited, unmap, unmap_shared] =
            std::array::from_fn(|_| figures.next().unwrap_or_default());
        Ok(Self { bytes, status, status_shared, status_first, status_edited, unmap, unmap_shared })
    }

    fn rows(&self) -> [(&'static str, &'static str, &[Vec<f64>; 2]); 6] {
        [
            ("read of /proc/PID/status (VmRSS)", "status_us", &self.status),
            ("the same, tables shared", "status_shared_us", &self.status_shared),
            ("the first after an edit for all sharers", "status_first_us", &self.status_first),
            ("later ones", "status_edited_us", &self.status_edited),
            ("munmap of a page", "munmap_us", &self.unmap),
            ("the same, first after a shared fork", "munmap_shared_us", &self.unmap_shared),
        ]
    }

    /// What the large space takes in multiples of the small one, round by round.
    pub(super) fn growth(samples: &[Vec<f64>; 2]) -> Stats {
        let [small, large] = samples;
        Stats::of_ratios(large, small)
    }

    pub(super) fn figures(&self) -> Figures {
        let [small, large] = self.bytes.map(|bytes| format!("µs at {}", size(bytes)));
        let runs = self.bytes.into_iter().enumerate().map(|(of, bytes)| {
            let measured = self.rows().map(|(_, name, samples)| (name.to_owned(), Stats::of(samples[of].clone())));
            let run = Run::of("operations by size of the space".to_owned(), size(bytes));
            Run { measured: measured.into(), ..run }
        });
        Grid::of("Operations in a small and in a large space", self.rows())
            .text("operation", |(name, ..)| *name)
            .text(small, |(.., samples)| Stats::of(samples[0].clone()))
            .text(large, |(.., samples)| Stats::of(samples[1].clone()))
            .text("×", |(.., samples)| Self::growth(samples))
            .with_runs(runs)
    }
}

/// A space of one size.
struct SizedSpace {
    parent: Parent<TableMachine<X86_64>>,
    range: PageRange,
    /// A page of a private mapping of a file, not resident, under a last-level table that exists.
    file_page: VirtAddr,
}

impl SizedSpace {
    fn new(bytes: u64) -> Result<Self, EvaluateError> {
        let parent = Parent::without_contents(bytes)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        parent.set(ForkMode::Shared)?;
        let file = parent.mm.add_file("file", FileKind::Shmem, 2 * PAGE_SIZE).map_err(failed)?;
        let file = Some(FileMapping { file: &file, offset: 0, opened: Rights::RW });
        let (len, flags) = (2 * PAGE_SIZE, MapFlags::PRIVATE);
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file };
        let file_page = parent.mm.mmap(&parent.space, &request).map_err(failed)?;
        parent.store(&parent.space, file_page.add(PAGE_SIZE))?;
        Ok(Self { parent, range, file_page })
    }

    /// The figures of a round, in the order of the fields of [`LargeSpace`].
    fn sample(&self) -> Result<[f64; 6], EvaluateError> {
        let status = self.read_warm_status()?;
        let unmap = self.unmap()?;
        let [shared, first, edited] = self.read_shared_status()?;
        Ok([status, shared, first, edited, unmap, self.unmap_shared()?])
    }

    /// Microseconds of one of `reads` reads, while `edited` pages were mapped for all sharers.
    fn read_status(&self, reads: u32, edited: u64) -> Result<f64, EvaluateError> {
        let mut text = String::new();
        let clock = SpanClock::Monotonic.start();
        for _ in 0..reads {
            text.clear();
            self.parent.mm.show_status(&self.parent.space, &mut text).map_err(failed)?;
        }
        let took = clock.elapsed().as_secs_f64() * 1e6 / f64::from(reads);
        let rss = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().trim();
        let mapped = format!("{} kB", (self.range.len() + PAGE_SIZE * (1 + edited)) >> 10);
        if rss == mapped { Ok(took) } else { Err(failed(format!("VmRSS is {rss}, and {mapped} are resident"))) }
    }

    /// The same of a read after another, which has summed up what others have edited.
    fn read_warm_status(&self) -> Result<f64, EvaluateError> {
        self.read_status(1, 0)?;
        self.read_status(IN_A_SAMPLE, 0)
    }

    /// The same while a child shares the tables: warm, first after an edit for all, and later.
    fn read_shared_status(&self) -> Result<[f64; 3], EvaluateError> {
        let Self { parent, range, file_page } = self;
        let (child, _) = parent.fork()?;
        let shared = self.read_warm_status()?;
        let broken = parent.mm.counter(Counter::PwTableBroken);
        parent.mm.fault(&child, *file_page, Access::Read).map_err(failed)?;
        if parent.mm.counter(Counter::PwTableBroken) != broken {
            return Err(failed("a read broke shared tables"));
        }
        // Each is checked: the parent's resident set has the page that the child has mapped.
        let (first, later) = (self.read_status(1, 1)?, self.read_status(IN_A_SAMPLE, 1)?);
        parent.mm.end_space(&child);
        parent.take_back(*range)?;
        parent.mm.madvise(&parent.space, *file_page, PAGE_SIZE, Advice::DontNeed).map_err(failed)?;
        Ok([shared, first, later])
    }

    /// Microseconds of one `munmap` of a page, which is then mapped again.
    fn unmap(&self) -> Result<f64, EvaluateError> {
        for at in 0..WARM_UP {
            self.unmap_page(at)?;
        }
        let times = (WARM_UP..WARM_UP + IN_A_SAMPLE).map(|at| self.unmap_page(at));
        Ok(micros(times.sum::<Result<Duration, _>>()?))
    }

    /// As [`unmap`](Self::unmap), each the first operation after a fork.
    fn unmap_shared(&self) -> Result<f64, EvaluateError> {
        let mut took = Duration::ZERO;
        for at in 0..IN_A_SAMPLE {
            let (child, _) = self.parent.fork()?;
            took += self.unmap_page(at)?;
            self.parent.mm.end_space(&child);
            self.parent.store_to_all(self.table_of(at))?;
            self.parent.take_back(self.range)?;
        }
        Ok(micros(took))
    }

    /// The page of an operation, a quarter into the range.
    fn page(&self, at: u32) -> VirtAddr {
        let first = self.range.len() / PAGE_SIZE / 4;
        self.range.start().add((first + STRIDE * u64::from(at)) * PAGE_SIZE)
    }

    /// The part of the range under the last-level table of that page.
    fn table_of(&self, at: u32) -> PageRange {
        let start = self.page(at).align_down(Level::PTE.table_span());
        let span = PageRange::new(start, start.add(Level::PTE.table_span()));
        span.intersect(self.range).unwrap_or(self.range)
    }

    fn unmap_page(&self, at: u32) -> Result<Duration, EvaluateError> {
        let page = self.page(at);
        let clock = SpanClock::Monotonic.start();
        self.parent.mm.munmap(&self.parent.space, page, PAGE_SIZE).map_err(failed)?;
        let took = clock.elapsed();
        self.parent.populate(page, PAGE_SIZE)?;
        Ok(took)
    }
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6 / f64::from(IN_A_SAMPLE)
}
