//! Exploring schedules: the same machine and the same programs, interleaved at every effect.
//!
//! - [`run`] – one run: a program for each CPU, a [`Chooser`] that decides who acts next, a
//!   [`RunReport`].
//! - [`ScheduleStrategy`], [`ReplayToken`] – random schedules, PCT, or a list; as a line of text that replays the
//!   run bit for bit.
//! - [`shrink`] – what a failing schedule needs, and no more.
//! - [`StopPoint`], [`ScheduleStep`], [`StepAction`] – where a CPU stops and what happened, for whoever explains it.
//!
//! ```text
//!   program ─▶ effects, locks, accesses ──stop at each──▶ scheduler ◀── chooser ◀── seed, or a token
//!                                                            │
//!        store buffers, walks in flight, broadcasts, interrupts, evictions: agents like the CPUs
//! ```
//!
//! Nothing of this is used in fast mode, and the memory manager runs unchanged in both: it reaches
//! locks and effects only through `sync` and `arch`.
//!
//! Not guaranteed: that every interleaving of the program is reachable. A CPU stops at effects and
//! locks; what it does in plain atomics between two of them is one step, and sequentially
//! consistent. `docs/machine.md` says what else is not modelled.

mod access;
pub(crate) mod coroutine;
mod in_flight;
mod point;
mod run;
mod schedule;
mod shrink;
mod step;
mod stores;
mod token;
mod walks;

pub use coroutine::CoroutineBody;
pub(crate) use in_flight::{CpuInFlight, InFlight};
pub use point::StopPoint;
pub use run::{ExploreSettings, RunEnd, RunReport, run};
pub use schedule::{
    Agent, AgentKind, Choice, Chooser, PctChooser, RandomChooser, Rates, ReadyAgent, RepeatedChoice, ReplayChooser,
    Schedule,
};
pub use shrink::shrink;
pub use step::{ScheduleStep, StepAction};
pub(crate) use stores::WalkersView;
pub use token::{MachineFingerprint, ReplayToken, ReplayTokenError, ScheduleStrategy, TokenPart};
pub(crate) use walks::Held;
