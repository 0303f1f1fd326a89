//! Random programs, each determined by a shape, a seed, and the operations that are kept.
//!
//! ```text
//!   hot-2-14-6/77/all          theme, CPUs, setup operations, body operations / seed / all kept
//!   hot-2-14-6/77/0-3.9.16     the same, minimised: the operations that are kept
//!   fast-4-8-240/1/all         a program of fast mode
//!   fast-4-8-240-huge/1/all    the same, whose pages are few of some blocks of 2 MiB
//! ```
//!
//! Removing an operation leaves the others unchanged, because it is drawn all the same.

use super::generator::Generator;
use super::operation::ProgramStep;
use pagewright_sim::{NodeConfig, NodeDistance};
use pagewright_types::CpuMask;
use std::fmt;
use std::str::FromStr;

pagewright_types::named_table! {
    /// The pages and calls on which an interleaved program concentrates.
    ///
    /// Without a theme, few of its operations would collide. The results of overlapping calls
    /// cannot be predicted, so the reference memory does not follow a program of the theme `Calls`;
    /// rights, reuse, counts and leaks are checked.
    pub enum Theme {
        Mixed = "mixed", "None.";
        Hot = "hot", "All CPUs change the rights of one page, which children share.";
        Copies = "copies", "All CPUs access one page, which children share: copy-on-write.";
        Moving = "moving", "CPU 0 takes rights from one page while the other CPUs switch to and from its process.";
        Tables = "tables", "Page tables are freed and allocated.";
        Families = "families", "Processes share page tables, break and leave them, while pages that they share are pinned and paged out.";
        Lingering = "lingering", "All CPUs read one page, which moves and is reclaimed, while TLBs keep what was there.";
        Huge = "huge", "Huge pages of two blocks are mapped, shared, split, moved and paged out in parts.";
        Calls = "together", "All calls, and devices with pins, on a few pages.";
    }
}

/// The mode in which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramMode {
    /// One operation after another.
    Fast,
    /// One operation after another, most of them calls; allocations fail.
    Calls,
    /// The CPUs' operations are interleaved at every effect.
    Explore(Theme),
    /// One operation after another, here and on the host's Linux.
    Linux,
}

impl ProgramMode {
    /// The mode with this name, as [`name`](Self::name) gives it.
    fn named(name: &str) -> Option<Self> {
        let plain = [Self::Fast, Self::Calls, Self::Linux];
        plain.into_iter().find(|mode| mode.name() == name).or_else(|| Theme::named(name).map(Self::Explore))
    }

    /// The first word of a program's text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Calls => "calls",
            Self::Explore(theme) => theme.name(),
            Self::Linux => "linux",
        }
    }
}

/// The mode, the machine and the length of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramShape {
    /// The mode.
    pub mode: ProgramMode,
    /// Number of CPUs of the machine.
    pub cpus: u16,
    /// Number of operations that run first, one after another in every mode.
    pub setup: u16,
    /// Number of operations after the setup.
    pub body: u16,
    /// Whether its pages are few of some blocks of 2 MiB each, as those of the theme `Huge` are.
    pub huge: bool,
}

impl ProgramShape {
    /// The shape with pages of blocks of 2 MiB.
    #[must_use]
    pub const fn huge(self) -> Self {
        Self { huge: true, ..self }
    }

    /// Whether the pages are few of some blocks of 2 MiB each.
    pub(crate) fn is_huge(self) -> bool {
        self.huge || self.mode == ProgramMode::Explore(Theme::Huge)
    }
}

/// The NUMA nodes of the machines on which programs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramNodes {
    /// The nodes; if there are none, the machine has one, whose size the mode determines.
    ///
    /// A machine leaves out the CPUs that it does not have.
    pub nodes: Vec<NodeConfig>,
    /// Their distances, as a machine has them.
    pub distances: Vec<NodeDistance>,
}

impl ProgramNodes {
    /// One node, whose size the mode of a program determines.
    pub const ONE: Self = Self { nodes: Vec::new(), distances: Vec::new() };

    /// The nodes of a machine with `cpus` CPUs; one node has `bytes`.
    pub(super) fn on_machine(&self, cpus: u16, bytes: u64) -> Vec<NodeConfig> {
        if self.nodes.is_empty() {
            return vec![NodeConfig { bytes, cpus: CpuMask::EMPTY }];
        }
        let existing = |of: &CpuMask| of.iter().filter(|cpu| cpu.raw() < cpus).collect();
        self.nodes.iter().map(|node| NodeConfig { cpus: existing(&node.cpus), ..*node }).collect()
    }
}

/// A random program.
///
/// Its text ([`Display`](fmt::Display), [`FromStr`]) reproduces it on the same nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomProgram {
    /// Mode, machine and length.
    pub shape: ProgramShape,
    /// The nodes of its machine, which its text leaves out.
    pub nodes: ProgramNodes,
    /// The seed of its operations.
    pub seed: u64,
    /// By operation: whether it is kept.
    kept: Vec<bool>,
}

/// The end of the shape's text, if its pages are of blocks of 2 MiB.
const HUGE: &str = "-huge";
/// Limit of the numbers in a program's text.
const MAX_NUMBER: u16 = 4096;

impl RandomProgram {
    /// The program with all operations.
    pub fn new(shape: ProgramShape, seed: u64) -> Self {
        let operations = usize::from(shape.setup) + usize::from(shape.body);
        Self { shape, nodes: ProgramNodes::ONE, seed, kept: vec![true; operations] }
    }

    /// The program on a machine with these nodes.
    #[must_use]
    pub fn on_nodes(self, nodes: &ProgramNodes) -> Self {
        Self { nodes: nodes.clone(), ..self }
    }

    /// The program of the same seed whose pages are few of some blocks of 2 MiB.
    #[must_use]
    pub fn huge(self) -> Self {
        Self { shape: self.shape.huge(), ..self }
    }

    /// The program with all operations.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self::new(self.shape, self.seed).on_nodes(&self.nodes)
    }

    /// The operations of the setup, and those of the body.
    pub fn steps(&self) -> (Vec<ProgramStep>, Vec<ProgramStep>) {
        let (mut setup, mut body) = (Vec::new(), Vec::new());
        let mut generator = Generator::new(self.shape, self.seed, self.nodes.nodes.len());
        for (index, kept) in self.kept.iter().enumerate() {
            let is_setup = index < usize::from(self.shape.setup);
            let step = if is_setup { generator.setup_step(index) } else { generator.body_step() };
            if *kept {
                if is_setup { &mut setup } else { &mut body }.push(step);
            }
        }
        (setup, body)
    }

    /// The number of operations that are kept.
    pub fn len(&self) -> usize {
        self.kept.iter().filter(|kept| **kept).count()
    }

    /// Whether no operation is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The program without `count` of its operations; `first` is an index among those kept.
    #[must_use]
    pub fn without(&self, first: usize, count: usize) -> Self {
        let mut less = self.clone();
        let left = less.kept.iter_mut().filter(|kept| **kept);
        left.skip(first).take(count).for_each(|kept| *kept = false);
        less
    }
}

impl fmt::Display for ProgramShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let huge = if self.huge { HUGE } else { "" };
        write!(f, "{}-{}-{}-{}{huge}", self.mode.name(), self.cpus, self.setup, self.body)
    }
}

impl fmt::Display for RandomProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.shape, self.seed)?;
        if self.kept.iter().all(|kept| *kept) {
            return f.write_str("all");
        }
        let mut dot = "";
        let mut at = 0;
        while at < self.kept.len() {
            if !self.kept[at] {
                at += 1;
                continue;
            }
            let end = (at..self.kept.len()).find(|&index| !self.kept[index]).unwrap_or(self.kept.len());
            match end - at {
                1 => write!(f, "{dot}{at}")?,
                _ => write!(f, "{dot}{at}-{}", end - 1)?,
            }
            dot = ".";
            at = end;
        }
        Ok(())
    }
}

/// The text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a program such as hot-2-14-6/77/all")]
pub struct ParseProgramError(String);

impl FromStr for RandomProgram {
    type Err = ParseProgramError;

    fn from_str(text: &str) -> Result<Self, ParseProgramError> {
        parse(text).ok_or_else(|| ParseProgramError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<RandomProgram> {
    let mut parts = text.split('/');
    let (shape, seed, kept) = (parts.next()?, parts.next()?, parts.next()?);
    let mut program = RandomProgram::new(parse_shape(shape)?, seed.parse().ok()?);
    if parts.next().is_some() {
        return None;
    }
    if kept != "all" {
        program.kept.fill(false);
        for run in kept.split('.').filter(|run| !run.is_empty()) {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            program.kept.get_mut(first..last.checked_add(1)?)?.fill(true);
        }
    }
    Some(program)
}

fn parse_shape(text: &str) -> Option<ProgramShape> {
    let (text, huge) = text.strip_suffix(HUGE).map_or((text, false), |text| (text, true));
    let mut words = text.split('-');
    let name = words.next()?;
    let mode = ProgramMode::named(name)?;
    let mut number = || words.next()?.parse::<u16>().ok().filter(|number| *number <= MAX_NUMBER);
    let shape = ProgramShape { mode, cpus: number()?, setup: number()?, body: number()?, huge };
    (words.next().is_none() && shape.cpus > 0).then_some(shape)
}
