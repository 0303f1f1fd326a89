//! Exploring schedules: the same machine and the same programs, interleaved at every effect.
//!
//! - [`run`] – one run: a program for each CPU, a [`Chooser`] that decides who acts next, a
//!   [`Report`].
//! - [`Strategy`], [`Token`] – random schedules, PCT, or a list; as a line of text that replays the
//!   run bit for bit.
//! - [`shrink`] – what a failing schedule needs, and no more.
//! - [`Point`], [`Step`], [`What`] – where a CPU stops and what happened, for whoever explains it.
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
mod flight;
mod point;
mod run;
mod schedule;
mod shrink;
mod stores;
mod token;
mod unsettled;

pub use coroutine::Program;
pub(crate) use flight::Held;
pub use point::Point;
pub use run::{Outcome, Report, Settings, Step, What, run};
pub use schedule::{Agent, Choice, Chooser, Kind, Pct, Random, Rates, Ready, Replay, Run, Schedule};
pub use shrink::shrink;
pub(crate) use stores::WalkersView;
pub use token::{Fingerprint, Strategy, Token, TokenError, Wanted};
pub(crate) use unsettled::{Unsettled, UnsettledHere};
