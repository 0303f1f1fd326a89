//! The mechanisms of the tour.
//!
//! Key type: [`Mechanism`], a row. Figures have no place here: each run obtains its own
//! (`evaluate::HEADLINES`).

use super::judgement::{self, Judgement};
use crate::command::evaluate::EvaluateError;
use crate::command::mechanisms::{MECHANISMS as WORDS, MechanismWords};
use std::ops::RangeInclusive;

/// A mechanism.
pub(super) struct Mechanism {
    pub(super) words: &'static MechanismWords,
    /// Whether its figures need the computer for themselves.
    pub(super) alone: bool,
    /// Has the oracle judge it.
    pub(super) judge: fn() -> Result<Judgement, EvaluateError>,
}

/// The mechanisms, in the order of their words.
pub(super) const MECHANISMS: [Mechanism; WORDS.len()] = [
    Mechanism { words: &WORDS[0], alone: false, judge: judgement::lingering },
    Mechanism { words: &WORDS[1], alone: true, judge: judgement::clears },
    Mechanism { words: &WORDS[2], alone: true, judge: judgement::huge },
    Mechanism { words: &WORDS[3], alone: false, judge: judgement::families },
    Mechanism { words: &WORDS[4], alone: false, judge: judgement::batches },
];

/// How many lines the details of a mechanism may have.
pub(super) const DETAIL_LINES: RangeInclusive<usize> = 3..=10;
