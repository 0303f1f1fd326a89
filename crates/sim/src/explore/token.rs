//! Replay tokens: one line that names a schedule.
//!
//! ```text
//!   pw1/f00dcafe/random/42/200,200,500,300,60,20          seed, rates
//!   pw1/f00dcafe/pct/42/3/500/200,200,500,300,60,20       seed, depth, length, rates
//!   pw1/f00dcafe/list/c0*5,d0:1,c1*3                      choices: kind, CPU, way, repetitions
//!   pw1/f00dcafe/list/-2,-0:3,c0*5                        without CPU 2's program, and without
//!                                                         operation 3 of CPU 0
//! ```
//!
//! The second word is a fingerprint of the machine and the settings. On another machine the
//! schedule would mean another run, so the token is refused there.

use super::run::ExploreSettings;
use super::schedule::{
    Agent, AgentKind, Choice, Chooser, PctChooser, ProgramPart, RandomChooser, Rates, RepeatedChoice, ReplayChooser,
    Schedule,
};
use crate::config::NodeConfig;
use crate::machine::Sim;
use crate::pointer_stores::PointerStores;
use pagewright_arch::Isa;
use pagewright_types::CpuId;
use std::fmt;
use std::str::FromStr;

/// How the choices of a schedule are made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleStrategy {
    /// At random; see [`RandomChooser`].
    Random {
        /// The seed of the choices.
        seed: u64,
        /// How often each kind of agent acts.
        rates: Rates,
    },
    /// By priorities; see [`PctChooser`].
    Pct {
        /// The seed of the choices.
        seed: u64,
        /// The number of priority changes.
        depth: u32,
        /// The number of steps among which the changes are.
        length: u32,
        /// How often speculation and eviction act.
        rates: Rates,
    },
    /// As listed; see [`ReplayChooser`].
    List(Schedule),
}

impl ScheduleStrategy {
    /// Makes a chooser that follows this strategy.
    pub fn chooser(&self) -> Box<dyn Chooser> {
        match self {
            Self::Random { seed, rates } => Box::new(RandomChooser::new(*seed, *rates)),
            Self::Pct { seed, depth, length, rates } => Box::new(PctChooser::new(*seed, *depth, *length, *rates)),
            Self::List(schedule) => Box::new(ReplayChooser::new(schedule)),
        }
    }
}

/// A hash of the machine and the settings that a token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MachineFingerprint(u32);

impl MachineFingerprint {
    /// The fingerprint of runs on `sim` under `settings`.
    pub fn of<I: Isa>(sim: &Sim<I>, settings: &ExploreSettings) -> Self {
        let config = sim.config();
        let words = [
            u64::from(config.cpus),
            u64::from(config.tagged)
                | u64::from(config.isolated) << 1
                | u64::from(config.repeat_invalidate) << 2
                | u64::from(config.bbm_level_2) << 3
                | u64::from(sim.pointer_stores() == PointerStores::Delayed) << 4
                | u64::from(config.invlpgb) << 5
                | u64::from(config.profile.has_ranges()) << 6
                | u64::from(config.five_levels) << 7
                | u64::from(config.granule.order().raw()) << 8,
            config.seed,
            u64::from(settings.max_steps),
            u64::from(settings.max_wait),
            u64::from(settings.walks),
        ];
        // A machine with one node, and one whose nodes have no CPUs of their own, has sizes only.
        let memory = config.nodes.iter().map(|node| node.bytes);
        let cpus_of = |(id, node): (u64, &NodeConfig)| {
            let cpus: Vec<_> = node.cpus.iter().map(|cpu| id << 32 | u64::from(cpu.raw())).collect();
            cpus
        };
        let placed = (0..).zip(&config.nodes).flat_map(cpus_of);
        let distances = config.distances.iter().map(|given| {
            let [one, other] = given.nodes.map(|node| u64::from(node.raw()));
            one << 32 | other << 16 | u64::from(given.distance)
        });
        let kernel = config.kernel_range.iter().flat_map(|range| [range.start().raw(), range.end().raw()]);
        let near = settings.speculate_near.iter().map(|va| va.raw());
        let name = config.profile.name().bytes().map(u64::from);
        let nodes = memory.chain(placed).chain(distances);
        let all = words.into_iter().chain(nodes).chain(kernel).chain(config.trapping_build).chain(near).chain(name);
        let sum = all.fold(0xcbf2_9ce4_8422_2325_u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        });
        Self((sum ^ sum >> 32) as u32)
    }
}

impl fmt::Display for MachineFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A schedule with the fingerprint of its machine and settings, as one line of text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplayToken {
    /// The fingerprint of the machine and the settings.
    pub fingerprint: MachineFingerprint,
    /// How the choices of the schedule are made.
    pub strategy: ScheduleStrategy,
}

impl ReplayToken {
    /// Whether the token has at most 1,000 characters.
    pub fn is_short(&self) -> bool {
        self.to_string().len() <= 1000
    }
}

/// Why a text is not a replay token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayTokenError {
    /// It does not begin with `pw1/`.
    #[error("`{0}` is not a replay token of this version (`pw1/…`)")]
    NotAToken(String),
    /// A part is missing or malformed.
    #[error("`{found}` in a replay token is not {expected}")]
    Part {
        /// The text of the part.
        found: String,
        /// The part that is expected there.
        expected: TokenPart,
    },
}

/// A part of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPart {
    /// Eight hexadecimal digits.
    Fingerprint,
    /// `random`, `pct` or `list`.
    Strategy,
    /// A number.
    Number,
    /// Six rates with commas between them.
    Rates,
    /// A choice such as `c0*5`.
    Choice,
    /// What is left out, such as `2` or `0:3` after a `-`.
    LeftOut,
    /// The end of the token.
    End,
}

impl fmt::Display for TokenPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fingerprint => "a fingerprint of eight hexadecimal digits",
            Self::Strategy => "`random`, `pct` or `list`",
            Self::Number => "a number",
            Self::Rates => "six rates with commas between them",
            Self::Choice => "a choice such as `c0*5` or `d1:2`",
            Self::LeftOut => "a CPU, or a CPU and an operation such as `0:3`, after a `-`",
            Self::End => "the end",
        })
    }
}

struct RatesText<'a>(&'a Rates);

impl fmt::Display for RatesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rates { drain, deliver, interrupt, walk, speculate, evict } = self.0;
        write!(f, "{drain},{deliver},{interrupt},{walk},{speculate},{evict}")
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.left_out.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match part {
                ProgramPart::Program(cpu) => write!(f, "{comma}-{cpu}")?,
                ProgramPart::Operation(cpu, number) => write!(f, "{comma}-{cpu}:{number}")?,
            }
        }
        let before = self.left_out.len();
        for (index, RepeatedChoice { choice: Choice { agent, way }, times }) in self.runs.iter().enumerate() {
            let comma = if before + index == 0 { "" } else { "," };
            write!(f, "{comma}{}{}", agent.kind.letter(), agent.cpu)?;
            if *way > 0 {
                write!(f, ":{way}")?;
            }
            if *times > 1 {
                write!(f, "*{times}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ReplayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pw1/{}/", self.fingerprint)?;
        match &self.strategy {
            ScheduleStrategy::Random { seed, rates } => write!(f, "random/{seed}/{}", RatesText(rates)),
            ScheduleStrategy::Pct { seed, depth, length, rates } => {
                write!(f, "pct/{seed}/{depth}/{length}/{}", RatesText(rates))
            }
            ScheduleStrategy::List(schedule) => write!(f, "list/{schedule}"),
        }
    }
}

fn wrong(found: &str, expected: TokenPart) -> ReplayTokenError {
    ReplayTokenError::Part { found: found.to_owned(), expected }
}

fn number<T: FromStr>(text: &str) -> Result<T, ReplayTokenError> {
    text.parse().map_err(|_| wrong(text, TokenPart::Number))
}

fn rates(text: &str) -> Result<Rates, ReplayTokenError> {
    let numbers = text.split(',').map(number).collect::<Result<Vec<u32>, _>>()?;
    let [drain, deliver, interrupt, walk, speculate, evict] = numbers[..] else {
        return Err(wrong(text, TokenPart::Rates));
    };
    Ok(Rates { drain, deliver, interrupt, walk, speculate, evict })
}

fn run(text: &str) -> Result<RepeatedChoice, ReplayTokenError> {
    let bad = || wrong(text, TokenPart::Choice);
    let mut letters = text.chars();
    let kind = letters.next().and_then(AgentKind::of_letter).ok_or_else(bad)?;
    let (rest, times) = letters.as_str().split_once('*').unwrap_or((letters.as_str(), "1"));
    let (cpu, way) = rest.split_once(':').unwrap_or((rest, "0"));
    let cpu = CpuId::new(cpu.parse().map_err(|_| bad())?);
    let choice = Choice { agent: Agent { kind, cpu }, way: way.parse().map_err(|_| bad())? };
    Ok(RepeatedChoice { choice, times: times.parse().map_err(|_| bad())? })
}

fn left_out(text: &str) -> Result<ProgramPart, ReplayTokenError> {
    let bad = || wrong(text, TokenPart::LeftOut);
    let (cpu, operation) = text.split_once(':').map_or((text, None), |(cpu, number)| (cpu, Some(number)));
    let cpu = CpuId::new(cpu.parse().map_err(|_| bad())?);
    match operation {
        None => Ok(ProgramPart::Program(cpu)),
        Some(number) => Ok(ProgramPart::Operation(cpu, number.parse().map_err(|_| bad())?)),
    }
}

impl FromStr for Schedule {
    type Err = ReplayTokenError;

    fn from_str(text: &str) -> Result<Self, ReplayTokenError> {
        let mut schedule = Self::default();
        for text in text.split(',').filter(|part| !part.is_empty()) {
            match text.strip_prefix('-') {
                Some(part) => schedule.left_out.push(left_out(part)?),
                None => schedule.runs.push(run(text)?),
            }
        }
        Ok(schedule)
    }
}

impl FromStr for ReplayToken {
    type Err = ReplayTokenError;

    fn from_str(text: &str) -> Result<Self, ReplayTokenError> {
        let Some(rest) = text.strip_prefix("pw1/") else { return Err(ReplayTokenError::NotAToken(text.to_owned())) };
        let mut parts = rest.split('/');
        let mut part = move || parts.next().unwrap_or_default();
        let first = part();
        let fingerprint = u32::from_str_radix(first, 16).map_err(|_| wrong(first, TokenPart::Fingerprint))?;
        let strategy = match part() {
            "random" => ScheduleStrategy::Random { seed: number(part())?, rates: rates(part())? },
            "pct" => ScheduleStrategy::Pct {
                seed: number(part())?,
                depth: number(part())?,
                length: number(part())?,
                rates: rates(part())?,
            },
            "list" => ScheduleStrategy::List(part().parse()?),
            other => return Err(wrong(other, TokenPart::Strategy)),
        };
        match part() {
            "" => Ok(Self { fingerprint: MachineFingerprint(fingerprint), strategy }),
            more => Err(wrong(more, TokenPart::End)),
        }
    }
}
