//! Random programs: a pure function of their shape and a seed, as one line of text that gives them
//! again.
//!
//! ```text
//!   hot-2-14-6/77/all          theme, CPUs, calm operations, others / seed / everything
//!   hot-2-14-6/77/0-3.9.16     the same, and what minimising has left of it
//!   fast-4-8-240/1/all         operation by operation
//! ```
//!
//! An operation that is left out leaves the others as they are: it was drawn all the same.

use super::generate::Generator;
use super::operation::Step;
use std::fmt;
use std::str::FromStr;

/// What a program whose operations are interleaved is about: few of them meet unless they are drawn
/// to the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Theme {
    /// Anything.
    Mixed,
    /// Everybody changes one page, which children share.
    Hot,
    /// Everybody accesses one page, which children share.
    Copies,
    /// One CPU takes rights from a page while others come and go.
    Moving,
    /// Tables come and go.
    Tables,
    /// Calls of every sort, and devices, on a few pages.
    ///
    /// What they answer when they overlap can't be foretold, so the reference memory is not asked:
    /// rights, reuse, counts and leaks are judged.
    Calls,
}

impl Theme {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Mixed, Self::Hot, Self::Copies, Self::Moving, Self::Tables, Self::Calls];
}

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Operation by operation.
    Fast,
    /// The same: mostly calls, of every sort, and allocations that fail.
    Calls,
    /// Interleaved at every effect.
    Explore(Theme),
    /// Operation by operation, here and on the Linux underneath.
    Linux,
}

impl Mode {
    const ALL: [Self; 9] = [
        Self::Fast,
        Self::Calls,
        Self::Linux,
        Self::Explore(Theme::Mixed),
        Self::Explore(Theme::Hot),
        Self::Explore(Theme::Copies),
        Self::Explore(Theme::Moving),
        Self::Explore(Theme::Tables),
        Self::Explore(Theme::Calls),
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Calls => "calls",
            Self::Explore(Theme::Mixed) => "mixed",
            Self::Explore(Theme::Hot) => "hot",
            Self::Explore(Theme::Copies) => "copies",
            Self::Explore(Theme::Moving) => "moving",
            Self::Explore(Theme::Tables) => "tables",
            Self::Explore(Theme::Calls) => "together",
            Self::Linux => "linux",
        }
    }
}

/// What programs have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How they are run.
    pub mode: Mode,
    /// CPUs of their machine.
    pub cpus: u16,
    /// Operations that are run one after the other first.
    pub calm: u16,
    /// Operations after that.
    pub others: u16,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// What it has in common with others.
    pub shape: Shape,
    /// What it has not.
    pub seed: u64,
    /// By operation: whether it is kept.
    kept: Vec<bool>,
}

/// The most CPUs and operations that a text may ask for: far more than is of use.
const MOST: u16 = 4096;

impl Program {
    /// The whole program.
    pub fn new(shape: Shape, seed: u64) -> Self {
        let operations = usize::from(shape.calm) + usize::from(shape.others);
        Self { shape, seed, kept: vec![true; operations] }
    }

    /// Its operations: those that are run calmly, and the others.
    pub fn steps(&self) -> (Vec<Step>, Vec<Step>) {
        let (mut calm, mut others) = (Vec::new(), Vec::new());
        let mut generator = Generator::new(self.shape, self.seed);
        for (index, kept) in self.kept.iter().enumerate() {
            let is_calm = index < usize::from(self.shape.calm);
            let step = if is_calm { generator.calm(index) } else { generator.other() };
            if *kept {
                if is_calm { &mut calm } else { &mut others }.push(step);
            }
        }
        (calm, others)
    }

    /// How many operations are left.
    pub fn len(&self) -> usize {
        self.kept.iter().filter(|kept| **kept).count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Without some of what is left: `count` operations from the `first` on.
    #[must_use]
    pub fn without(&self, first: usize, count: usize) -> Self {
        let mut less = self.clone();
        let left = less.kept.iter_mut().filter(|kept| **kept);
        left.skip(first).take(count).for_each(|kept| *kept = false);
        less
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.mode.name(), self.cpus, self.calm, self.others)
    }
}

impl fmt::Display for Program {
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

/// A text that is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a program such as hot-2-14-6/77/all")]
pub struct NotAProgram(String);

impl FromStr for Program {
    type Err = NotAProgram;

    fn from_str(text: &str) -> Result<Self, NotAProgram> {
        parse(text).ok_or_else(|| NotAProgram(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Program> {
    let mut parts = text.split('/');
    let (shape, seed, kept) = (parts.next()?, parts.next()?, parts.next()?);
    let mut program = Program::new(parse_shape(shape)?, seed.parse().ok()?);
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

fn parse_shape(text: &str) -> Option<Shape> {
    let mut words = text.split('-');
    let name = words.next()?;
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == name)?;
    let mut number = || words.next()?.parse::<u16>().ok().filter(|number| *number <= MOST);
    let shape = Shape { mode, cpus: number()?, calm: number()?, others: number()? };
    (words.next().is_none() && shape.cpus > 0).then_some(shape)
}
