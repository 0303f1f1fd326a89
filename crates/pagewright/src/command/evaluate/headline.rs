//! The figures of an evaluation that the tour shows.
//!
//! Key types: [`Headline`], the figures of a mechanism; [`HEADLINES`], by evaluation. Each figure
//! of ours is obtained in the run that prints it, on inputs so small that all take less than a
//! minute.
//!
//! Not guaranteed: the figures of `evaluate NAME`, whose inputs are larger.

use super::{Context, EvaluateError, FigureKind, batch, clear, cow_table, migrc, thp};

/// A figure of ours: how it was obtained, and its text.
pub(crate) struct HeadlineFigure {
    pub(crate) kind: FigureKind,
    pub(crate) text: String,
}

/// The figures of a mechanism.
pub(crate) struct Headline {
    /// The published figure, with its program or machine.
    pub(crate) published: &'static str,
    pub(crate) ours: Vec<HeadlineFigure>,
    /// What a reader may want to know next, a line each.
    pub(crate) details: Vec<String>,
}

/// Obtains a headline.
pub(crate) type HeadlineOf = fn(&Context<'_>) -> Result<Headline, EvaluateError>;

/// The headlines by the name of their evaluation.
pub(crate) const HEADLINES: [(&str, HeadlineOf); 5] = [
    ("migrc", migrc::headline::headline),
    ("clear", clear::headline::headline),
    ("thp", thp::headline::headline),
    ("cow-table", cow_table::headline::headline),
    ("batch", batch::headline::headline),
];

impl HeadlineFigure {
    /// A figure that this run counted.
    pub(super) const fn counted(text: String) -> Self {
        Self { kind: FigureKind::Counted, text }
    }

    /// A figure that this run measured on this computer.
    pub(super) const fn measured(text: String) -> Self {
        Self { kind: FigureKind::Measured, text }
    }
}
