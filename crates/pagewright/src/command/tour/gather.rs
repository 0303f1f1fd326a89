//! Obtains the figures and judgements of all mechanisms.
//!
//! Key type: [`Gathered`]. What is counted does not depend on other load, so two threads take jobs
//! in turn. What is measured, and what forks this process, runs after them and alone.

use super::judgement::Judgement;
use super::mechanisms::{MECHANISMS, Mechanism};
use crate::command::CommandError;
use crate::command::evaluate::{Context, EvaluateError, HEADLINES, Headline};
use crate::progress::StepProgress;
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// What a run obtained about a mechanism.
pub(super) struct Gathered {
    pub(super) mechanism: &'static Mechanism,
    /// The figures, or why this computer is too small for them.
    pub(super) headline: Result<Headline, String>,
    pub(super) judgement: Judgement,
}

/// Where the two parts of a mechanism's results go.
#[derive(Default)]
struct Slots {
    headline: OnceLock<Result<Headline, EvaluateError>>,
    judgement: OnceLock<Result<Judgement, EvaluateError>>,
}

/// A job of [`gather`].
#[derive(Clone, Copy)]
enum Job {
    Headline(usize),
    Judgement(usize),
}

/// Host threads that count.
const THREADS: usize = 2;

/// Obtains all figures and judgements.
///
/// # Errors
/// [`CommandError::Evaluate`], but for lack of memory, which is a result.
pub(super) fn gather(progress: &StepProgress) -> Result<Vec<Gathered>, CommandError> {
    let context = Context::of_headlines(progress);
    let slots: [Slots; MECHANISMS.len()] = Default::default();
    let run = &|job| match job {
        Job::Headline(of) => _ = slots[of].headline.set(headline(&context, &MECHANISMS[of])),
        Job::Judgement(of) => {
            context.show_step(&format!("judging: {}", MECHANISMS[of].words.name));
            _ = slots[of].judgement.set((MECHANISMS[of].judge)());
        }
    };
    let is_alone = |of: &usize| MECHANISMS[*of].alone;
    let all = 0..MECHANISMS.len();
    let counted = all.clone().filter(|of| !is_alone(of)).map(Job::Headline);
    let jobs = Mutex::new(counted.chain(all.clone().map(Job::Judgement)).collect::<VecDeque<_>>());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    // A job has a thread of its own, because it may pin its thread to a CPU.
    let run = |job| thread::scope(|scope| _ = scope.spawn(move || run(job)));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(job) = next() {
                    run(job);
                }
            });
        }
    });
    all.filter(is_alone).map(Job::Headline).for_each(run);
    MECHANISMS.iter().zip(slots).map(|(mechanism, slots)| Gathered::of(mechanism, slots)).collect()
}

/// Obtains the figures of a mechanism.
fn headline(context: &Context<'_>, mechanism: &Mechanism) -> Result<Headline, EvaluateError> {
    let of = HEADLINES.iter().find(|(name, _)| *name == mechanism.words.evaluation);
    let (_, headline) = of.ok_or_else(|| EvaluateError::Unknown { name: mechanism.words.evaluation.to_owned() })?;
    headline(context)
}

impl Gathered {
    fn of(mechanism: &'static Mechanism, slots: Slots) -> Result<Self, CommandError> {
        let missing = || EvaluateError::Machine(format!("{} was left out", mechanism.words.name));
        let headline = match slots.headline.into_inner().ok_or_else(missing)? {
            Err(EvaluateError::Memory(error)) => Err(error.to_string()),
            other => Ok(other?),
        };
        let judgement = slots.judgement.into_inner().ok_or_else(missing)??;
        Ok(Self { mechanism, headline, judgement })
    }
}
