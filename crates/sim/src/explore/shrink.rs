//! Cutting a failing schedule down, by delta debugging (Zeller and Hildebrandt, TSE 2002).
//!
//! A schedule with parts left out still means something: the replay skips what no longer fits and
//! goes on calmly where it ends. So each candidate is simply tried. What is left is what the
//! failure needs: few switches, and few things that nobody asked for.

use super::schedule::Schedule;

/// Makes `schedule` as small as `budget` tries allow while `fails` says that it still fails.
///
/// `schedule` itself is believed to.
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

/// Puts runs of the same choice together that have become neighbours.
fn joined(schedule: &Schedule) -> Schedule {
    let mut runs: Vec<super::schedule::RepeatedChoice> = Vec::new();
    for run in &schedule.0 {
        match runs.last_mut() {
            Some(last) if last.choice == run.choice => last.times += run.times,
            Some(_) | None => runs.push(*run),
        }
    }
    Schedule(runs)
}

/// Leaves out ever smaller parts.
///
/// `None` when the budget is spent.
fn drop_parts(best: &mut Schedule, attempt: &mut impl FnMut(&Schedule) -> Option<bool>) -> Option<()> {
    let mut size = best.0.len().div_ceil(2).max(1);
    loop {
        // From the end: what comes late matters least to what came before it.
        let mut end = best.0.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut candidate = best.clone();
            candidate.0.drain(start..end);
            let candidate = joined(&candidate);
            if attempt(&candidate)? {
                *best = candidate;
                end = start.min(best.0.len());
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

/// Makes long runs of one choice shorter.
fn shorten(best: &mut Schedule, attempt: &mut impl FnMut(&Schedule) -> Option<bool>) -> Option<()> {
    for index in (0..best.0.len()).rev() {
        while best.0[index].times > 1 {
            let mut candidate = best.clone();
            candidate.0[index].times /= 2;
            if !attempt(&candidate)? {
                break;
            }
            *best = candidate;
        }
    }
    Some(())
}

/// Puts runs of one choice together that others stand between, so that there are fewer switches.
fn join(best: &mut Schedule, attempt: &mut impl FnMut(&Schedule) -> Option<bool>) -> Option<()> {
    let mut index = 0;
    while index < best.0.len() {
        let choice = best.0[index].choice;
        let before = best.0[..index].iter().rposition(|run| run.choice == choice);
        let mut smaller = false;
        for (from, to) in before.into_iter().flat_map(|before| [(index, before), (before, index)]) {
            let mut candidate = best.clone();
            let moved = candidate.0.remove(from);
            candidate.0.insert(to, moved);
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
    fn runs_of_one_choice_are_put_together_where_it_makes_no_difference() {
        let schedule: Schedule = "c0*3,c1,c0*2,d0,c1*2,c0,c1*4".parse().expect("a schedule");
        let times = |schedule: &Schedule, cpu: u16| -> u32 {
            let own = schedule.0.iter().filter(|run| run.choice.agent.kind == AgentKind::Cpu);
            own.filter(|run| run.choice.agent.cpu.raw() == cpu).map(|run| run.times).sum()
        };
        let small = shrink(schedule, 1000, |schedule| {
            times(schedule, 0) >= 6 && times(schedule, 1) >= 7 && schedule.to_string().contains("d0")
        });
        assert_eq!((small.switches(), small.0.len()), (1, 3), "{small}");
    }

    #[test]
    fn only_what_the_failure_needs_is_left() {
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
    fn a_spent_budget_leaves_a_schedule_that_fails() {
        let schedule: Schedule = "c0*7,c1*2,c0*9,d0,c1*40".parse().expect("a schedule");
        let mut tries = 0;
        let small = shrink(schedule, 3, |schedule| {
            tries += 1;
            schedule.to_string().contains('d')
        });
        assert!(tries == 3 && small.to_string().contains('d'));
    }
}
