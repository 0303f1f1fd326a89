//! Random programs under the oracle: memory calls and accesses of several processes on several
//! CPUs, all of them checked.
//!
//! - [`Program`] – a pure function of a [`Shape`] and a seed, as a line of text. [`Operation`] –
//!   what it does, one line each.
//! - [`fast`] – operation by operation. [`explore`] – interleaved at every effect, under many
//!   schedules.
//! - [`survey()`] – many programs in both modes. [`Bug`] – what was found, by as little as finds
//!   it; [`replay`] – once more.
//! - `world`: the machine under judgement, its memory manager, the reference memory, the processes.
//!   `calls`, `alone`, `filed`, `kernel`, `touch`: what is done in it; `registers`: calls as numbers
//!   and registers. `rest`: what is asked when
//!   all is done.
//!
//! ```text
//!   program ──▶ world ──▶ memory manager ──▶ machine ──▶ oracle (O1, O2)
//!                 └─────▶ reference memory (O3)   at rest: counts (O4), every page, no leak
//! ```
//!
//! Nothing here knows what the memory manager should do: what a call may answer and what a page may
//! show is the reference memory's business.
//!
//! Where calls that have their process for themselves overlap, nothing is told to the reference
//! memory, and everything else is judged.
//!
//! Not guaranteed: that programs do what users' programs do. They collide on a few pages, and some
//! of their arguments are bad.

mod alone;
mod beside_linux;
mod calls;
pub mod explore;
pub mod fast;
mod filed;
mod generate;
mod kernel;
mod minimise;
mod operation;
mod program;
pub(crate) mod registers;
mod rest;
mod survey;
mod swap;
mod syscall;
mod tally;
mod touch;
mod world;

pub(crate) use generate::{FILE_PAGES, HEAP, Window};
pub use kernel::Kernel;
pub(crate) use minimise::cut_down;
pub use minimise::{Bug, smallest};
pub use operation::{Object, Operation, Step, Where};
#[cfg(feature = "planted")]
pub use pagewright_plant::{PlantedBug, choose as plant};
pub use program::{Mode, NotAProgram, Program, Shape, Theme};
pub use survey::{
    Effort, ReplayError, Survey, calls_program, explored_program, fast_program, replay, survey, without_mechanism,
};
pub use syscall::{Descriptor, Syscall};
pub use tally::Done;
