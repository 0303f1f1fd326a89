//! Shrinks a failing schedule by delta debugging (Zeller and Hildebrandt, TSE 2002).
//!
//! A schedule with choices left out can be run: the replay skips a choice that is not possible, and
//! follows the default schedule after the last one. So each candidate is run, and kept if it fails.
//! The result has few switches between CPUs, and few speculations and evictions.

use super::schedule::Schedule;

/// Shrinks `schedule` by at most `budget` calls of `fails`, which says whether a candidate fails.
///
/// `schedule` itself is assumed to fail.
pub fn shrink(schedule: Schedule, budget: u32, mut fails: impl FnMut(&Schedule) -> bool) -> Schedule {
    let mut best = schedule;
    let mut left = budget;
    let mut attempt = |candidate: &Schedule| {
        if left == 0 {
            return None;
        }
        left -= 1;
        Some(fails(candidate))
    };
    loop {
        let before = best.clone();
        let passes = drop_parts(&mut best, &mut attempt)
            .and_then(|()| shorten(&mut best, &mut attempt))
            .and_then(|()| join(&mut best, &mut attempt));
        if passes.is_none() {
            return best;
        }
        if best == before {
            return best;
        }
    }
}

/// Merges neighbours that repeat the same choice.
fn joined(schedule: &Schedule) -> Schedule {
    let mut runs: Vec<super::schedule::RepeatedChoice> = Vec::new();
    for run in &schedule.runs {
        match runs.last_mut() {
            Some(last) if last.choice == run.choice => last.times += run.times,
            Some(_) | None => runs.push(*run),
        }
    }
    Schedule { runs, left_out: schedule.left_out.clone() }
}

/// Leaves out parts, which become smaller; `None` when the budget is spent.
fn drop_parts(best: &mut Schedule, attempt: &mut impl FnMut(&Schedule) -> Option<bool>) -> Option<()> {
    let mut size = best.runs.len().div_ceil(2).max(1);
    loop {
        // From the end: a late choice has no effect on the choices before it.
        let mut end = best.runs.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut candidate = best.clone();
            candidate.runs.drain(start..end);
            let candidate = joined(&candidate);
            if attempt(&candidate)? {
                *best = candidate;
                end = start.min(best.runs.len());
            } else {
                end = start;
            }
        }
        if size == 1 {
            return Some(());
        }
        size = size.div_ceil(2);
    }
}

/// Halves the repetitions of each choice while the schedule fails.
fn shorten(best: &mut Schedule, attempt: &mut impl FnMut(&Schedule) -> Option<bool>) -> Option<()> {
    for index in (0..best.runs.len()).rev() {
        while best.runs[index].times > 1 {
            let mut candidate = best.clone();
            candidate.runs[index].times /= 2;
            if !attempt(&candidate)? {
                break;
            }
            *best = candidate;
        }
    }
    Some(())
}

/// Moves repetitions of one choice together, so that there are fewer switches.
fn join(best: &mut Schedule, attempt: &mut impl FnMut(&Schedule) -> Option<bool>) -> Option<()> {
    let mut index = 0;
    while index < best.runs.len() {
        let choice = best.runs[index].choice;
        let before = best.runs[..index].iter().rposition(|run| run.choice == choice);
        let mut smaller = false;
        for (from, to) in before.into_iter().flat_map(|before| [(index, before), (before, index)]) {
            let mut candidate = best.clone();
            let moved = candidate.runs.remove(from);
            candidate.runs.insert(to, moved);
            let candidate = joined(&candidate);
            if attempt(&candidate)? {
                *best = candidate;
                smaller = true;
                break;
            }
        }
        index += usize::from(!smaller);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::schedule::AgentKind;
    use super::*;

    #[test]
    fn repetitions_of_one_choice_are_moved_together() {
        let schedule: Schedule = "c0*3,c1,c0*2,d0,c1*2,c0,c1*4".parse().expect("a schedule");
        let times = |schedule: &Schedule, cpu: u16| -> u32 {
            let own = schedule.runs.iter().filter(|run| run.choice.agent.kind == AgentKind::Cpu);
            own.filter(|run| run.choice.agent.cpu.raw() == cpu).map(|run| run.times).sum()
        };
        let small = shrink(schedule, 1000, |schedule| {
            times(schedule, 0) >= 6 && times(schedule, 1) >= 7 && schedule.to_string().contains("d0")
        });
        assert_eq!((small.switches(), small.runs.len()), (1, 3), "{small}");
    }

    #[test]
    fn only_choices_that_the_failure_needs_remain() {
        let noise = "c0*7,s1:3,c1*2,w1*4,e0:12,c0*9,d0,c1*40,s0:2,w0*3,c0";
        let schedule: Schedule = noise.parse().expect("a schedule");
        let text = |schedule: &Schedule| schedule.to_string();
        let small = shrink(schedule, 1000, |schedule| {
            let text = text(schedule);
            text.contains("e0:12") && text.contains("d0")
        });
        assert_eq!(text(&small), "e0:12,d0");
    }

    #[test]
    fn a_spent_budget_returns_a_schedule_that_fails() {
        let schedule: Schedule = "c0*7,c1*2,c0*9,d0,c1*40".parse().expect("a schedule");
        let mut tries = 0;
        let small = shrink(schedule, 3, |schedule| {
            tries += 1;
            schedule.to_string().contains('d')
        });
        assert!(tries == 3 && small.to_string().contains('d'));
    }
}
