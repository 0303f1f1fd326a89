//! Exploring schedules: programs on several CPUs, interleaved at every effect.
//!
//! - [`run`] – one run: it takes a program for each CPU and a [`Chooser`] that decides which agent
//!   acts next, and returns a [`RunReport`].
//! - [`ScheduleStrategy`], [`ReplayToken`] – random schedules, PCT, or a list; a token is one line
//!   of text that replays the run bit for bit.
//! - [`shrink`] – reduces a failing schedule to the choices that the failure needs.
//! - [`StopPoint`], [`ScheduleStep`], [`StepAction`] – the log of a run.
//!
//! ```text
//!   program ─▶ effects, locks, accesses ──stop at each──▶ scheduler ◀── chooser ◀── seed, or a token
//!                                                            │
//!        store buffers, walks in flight, broadcasts, interrupts, evictions: agents like the CPUs
//! ```
//!
//! Fast mode uses nothing of this. The memory manager runs unchanged in both modes, because it
//! reaches locks and effects only through `sync` and `arch`.
//!
//! Not guaranteed: that every interleaving of the programs is reachable. A CPU stops at effects and
//! locks. Its plain atomics between two stops are one step, and are sequentially consistent.
//! `docs/machine.md` says what else is not modelled.

mod access;
mod acts;
pub(crate) mod coroutine;
pub(crate) mod footprint;
mod in_flight;
mod point;
mod run;
mod schedule;
mod shrink;
mod state;
mod step;
mod stores;
mod token;
mod walks;

pub use acts::{Act, ActName, MachineView};
pub use coroutine::{CoroutineBody, stops_so_far};
pub use footprint::Footprint;
#[doc(hidden)]
pub use footprint::FootprintPart;
pub(crate) use in_flight::{CpuInFlight, InFlight};
pub use point::StopPoint;
pub use run::{ExploreSettings, RunEnd, RunReport, run};
pub use schedule::{
    Agent, AgentKind, Choice, Chooser, PartialChooser, PctChooser, ProgramPart, RandomChooser, Rates, ReadyAgent,
    RepeatedChoice, ReplayChooser, Schedule,
};
pub use shrink::shrink;
pub use state::RunState;
pub(crate) use state::StateHash;
pub use step::{ScheduleStep, StepAction};
pub(crate) use stores::WalkersView;
pub use token::{MachineFingerprint, ReplayToken, ReplayTokenError, ScheduleStrategy, TokenPart};
pub(crate) use walks::WalkState;
