//! The report: every mutant with its fate, and the share that tests kill.

use super::build::Rejection;
use super::interval::wilson;
use super::justified::Justified;
use super::mutant::Mutation;
use super::results::{Fate, MutantResult};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The counts of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    killed: usize,
    timed_out: usize,
    justified: usize,
    open: usize,
    not_viable: usize,
}

impl Counts {
    fn add(&mut self, fate: &Fate, is_justified: bool) {
        match fate {
            Fate::Killed(_) => self.killed += 1,
            Fate::TimedOut(_) => self.timed_out += 1,
            Fate::Survived { .. } if is_justified => self.justified += 1,
            Fate::Survived { .. } => self.open += 1,
            Fate::Rejected(_) => self.not_viable += 1,
        }
    }

    const fn dead(self) -> usize {
        self.killed + self.timed_out
    }

    const fn viable(self) -> usize {
        self.dead() + self.justified + self.open
    }

    /// The mutants that change something which a test should notice, as far as is known.
    const fn effective(self) -> usize {
        self.dead() + self.open
    }

    /// The share that tests kill of so many mutants, and its interval, in per cent.
    fn share_of(self, mutants: usize) -> String {
        let (low, high) = wilson(self.dead(), mutants);
        let share = self.dead() as f64 / mutants.max(1) as f64;
        format!("{:.1} % (95 % interval {:.1}–{:.1} %)", share * 100.0, low * 100.0, high * 100.0)
    }

    /// Whether the whole interval of the killed share is below `floor`, from 0 to 1.
    pub(crate) fn is_below(self, floor: f64) -> bool {
        wilson(self.dead(), self.viable()).1 < floor
    }
}

/// Writes the report, and counts.
pub(crate) fn report(results: &[MutantResult], justified: &[Justified]) -> (String, Counts) {
    let (mut text, mut counts) = (String::new(), Counts::default());
    let mut groups: BTreeMap<String, Counts> = BTreeMap::new();
    let mut lines: Vec<(&str, usize, String)> = Vec::new();
    for result in results {
        let reason = justified.iter().find(|entry| entry.is_about(&result.mutation)).map(|entry| entry.reason.as_str());
        counts.add(&result.fate, reason.is_some());
        let mutation = &result.mutation;
        for group in [mutation.package.clone(), format!("{:?}", mutation.operator).to_lowercase()] {
            groups.entry(group).or_default().add(&result.fate, reason.is_some());
        }
        let Mutation { id, file, line, function, original, replacement, .. } = mutation;
        let (fate, detail) = match (&result.fate, reason) {
            (Fate::Killed(test), _) => ("killed", format!("by {test}")),
            (Fate::TimedOut(test), _) => ("timed out", format!("in {test}")),
            (Fate::Survived { .. }, Some(reason)) => ("justified", reason.to_owned()),
            (Fate::Survived { tests }, None) => ("SURVIVED", format!("{tests} tests reach it")),
            (Fate::Rejected(Rejection::NotViable), _) => ("not viable", "does not compile".to_owned()),
            (Fate::Rejected(Rejection::BesideAnError), _) => ("not viable", "an error follows it".to_owned()),
        };
        lines.push((
            file,
            *line,
            format!("{fate:10} {id} {file}:{line} {function}: `{original}` → `{replacement}`  [{detail}]"),
        ));
    }
    lines.sort();
    // Writing to a `String` cannot fail.
    lines.iter().for_each(|(_, _, line)| text.push_str(&format!("{line}\n")));
    let _ = writeln!(
        text,
        "\n{:24} {:>6} {:>6} {:>9} {:>9} {:>6}",
        "", "viable", "killed", "timed out", "justified", "open"
    );
    for (name, of) in &groups {
        let Counts { killed, timed_out, justified, open, .. } = of;
        let _ = writeln!(text, "{name:24} {:>6} {killed:>6} {timed_out:>9} {justified:>9} {open:>6}", of.viable());
    }
    let Counts { killed, timed_out, justified, open, not_viable } = counts;
    let _ = writeln!(
        text,
        "\n{} viable mutants ({not_viable} more do not compile): killed {killed}, timed out {timed_out}, \
         survived {} (justified {justified}, open {open})\nkilled: {}\nkilled, without those that are justified: {}",
        counts.viable(),
        justified + open,
        counts.share_of(counts.viable()),
        counts.share_of(counts.effective())
    );
    (text, counts)
}

#[cfg(test)]
mod tests {
    use super::super::FLOOR;
    use super::super::justified::parse;
    use super::*;

    fn result(id: &str, fate: Fate) -> MutantResult {
        let mutation = Mutation { id: id.to_owned(), ..Mutation::example() };
        MutantResult { mutation, fate, seconds: 0.0 }
    }

    fn one_of_each_fate() -> [MutantResult; 4] {
        let test = || "p t x".to_owned();
        [
            result("1", Fate::Killed(test())),
            result("2", Fate::TimedOut(test())),
            result("3", Fate::Survived { tests: 4 }),
            result("4", Fate::Rejected(Rejection::NotViable)),
        ]
    }

    #[test]
    fn justified_mutants_are_in_one_share_and_not_in_the_other() {
        let justified = parse(
            "[[mutant]]\nfile = 'a.rs'\nfunction = 'f'\noriginal = 'a'\nreplacement = 'b'\nreason = 'It is the same.'\n",
        )
        .expect("an entry");
        let (text, counts) = report(&one_of_each_fate(), &justified);
        assert_eq!((counts.viable(), counts.effective()), (3, 2));
        assert!(text.contains("killed: 66.7 %"), "{text}");
        assert!(text.contains("killed, without those that are justified: 100.0 %"), "{text}");
        assert!(text.contains("justified  3 a.rs:1 f: `a` → `b`  [It is the same.]"), "{text}");
    }

    #[test]
    fn a_run_fails_if_its_whole_interval_is_below_nine_tenths() {
        let below = |killed, timed_out, justified, open| {
            Counts { killed, timed_out, justified, open, not_viable: 5000 }.is_below(FLOOR)
        };
        assert!(below(850, 0, 0, 150), "85 %, at most 87");
        assert!(below(870, 0, 130, 0), "87 %, at most 89: a reason does not kill");
        assert!(!below(890, 0, 0, 110), "89 %, perhaps 91");
        assert!(!below(800, 100, 0, 100), "90 %, with those that end by the time limit");
        assert!(!below(17, 0, 0, 3), "85 % of few, perhaps 95");
        assert!(below(0, 0, 20, 20));
        assert!(!below(0, 0, 0, 0), "no mutant says nothing");
    }

    #[test]
    fn only_viable_mutants_are_in_the_share() {
        let (text, counts) = report(&one_of_each_fate(), &[]);
        assert_eq!((counts.viable(), counts.dead(), counts.effective()), (3, 2, 3));
        assert!(
            text.contains(
                "3 viable mutants (1 more do not compile): killed 1, timed out 1, survived 1 (justified 0, open 1)"
            ),
            "{text}"
        );
        assert!(text.contains("killed: 66.7 %"), "{text}");
        assert!(text.contains("SURVIVED   3 a.rs:1 f: `a` → `b`  [4 tests reach it]"), "{text}");
    }
}
