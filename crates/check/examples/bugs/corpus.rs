//! TLB maintenance bugs that kernels shipped, each as a one-page program in two versions.
//!
//! Each bug has a module. [`Version::Shipped`] does what the kernel did, [`Version::Fixed`] what
//! the kernel's fix did. [`BUGS`] lists them. The example `bugs` runs them, the test `bugs` asserts
//! their results, and [`markdown`] writes `docs/named-bugs.md`.
//!
//! Not guaranteed: that a program keeps more of its kernel than its module says.

mod kernel;

mod asterinas_1952;
mod asterinas_862;
mod linux_60bae7370896;
mod linux_cve_2018_18281;
mod linux_cve_2022_39188;
mod litebox_848;
mod netbsd_cow;
mod osv_1475;
mod sel4_107;
mod tgoskits_2008;
mod tgoskits_2009;
mod unikraft_1149;
mod zephyr_113559;
mod zephyr_115708;
mod zephyr_98344;

use kernel::{Space, pages, reads};
use pagewright_check::{
    Aarch64, Check, CheckFinding, CheckOutcome, Cpu, CpuProgram, Harness, Isa, IsaKind, Pfn, ReplayToken, Rights, Rule,
    X86_64, program,
};
use std::fmt;
use std::rc::Rc;

/// The two versions of a bug's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The program with the bug.
    Shipped,
    /// The program with the kernel's fix.
    Fixed,
}

/// What finds a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// A rule of the oracle.
    Rule(Rule),
    /// The program, which reads a value that it must not see.
    Value,
}

impl FoundBy {
    /// Whether `finding` was made by this.
    pub(crate) fn is(self, finding: &CheckFinding) -> bool {
        match self {
            Self::Rule(rule) => finding.rule() == Some(rule),
            Self::Value => matches!(finding, CheckFinding::Reported(_)),
        }
    }
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(Rule::Reuse) => f.write_str("O1, a freed frame is reachable"),
            Self::Rule(Rule::Rights) => f.write_str("O2, a removed right is kept"),
            Self::Rule(Rule::Memory) => f.write_str("O3, a wrong result"),
            Self::Rule(Rule::Counts) => f.write_str("O4, a wrong count"),
            Self::Value => f.write_str("a value that the program reads"),
        }
    }
}

/// How to run the program of a bug.
pub(crate) enum RunMode<'a> {
    /// Search many schedules.
    Search {
        /// The seed of all random choices.
        seed: u64,
        /// The most schedules to try.
        schedules: u32,
    },
    /// Search all schedules within bounds.
    Exhaustive {
        /// The most preemptions in a schedule.
        preemptions: u32,
        /// The most acts of the machine in a schedule.
        acts: u32,
        /// The most schedules to try.
        schedules: u32,
    },
    /// Replay the schedule of a token.
    Replay(&'a ReplayToken),
}

impl RunMode<'_> {
    /// Runs `kernel` on CPU 0 while a thread on CPU 1 reads page 0, which is mapped with `rights`.
    fn run_beside_reader<I: Isa, K: FnOnce(&Cpu<I>) + 'static>(
        &self,
        rights: Rights,
        kernel: impl Fn(Rc<Space>, Pfn) -> K,
    ) -> CheckOutcome {
        self.run(Check::<I>::new().cpus(2), |harness| {
            let space = Space::run_everywhere(harness);
            let frame = space.map_new(harness, 0, rights, 1);
            vec![program(kernel(space, frame)), program(|cpu| reads(cpu, 1))]
        })
    }

    /// Runs an unmap of page 0 on CPU 0, as [`RunMode::run_beside_reader`] does.
    ///
    /// The kernel's function `name` executes `tlbi` between its barriers.
    fn run_unmap(&self, name: &'static str, tlbi: impl Fn(&Cpu<Aarch64>) + Copy + 'static) -> CheckOutcome {
        self.run_beside_reader(Rights::RW, |space, _| {
            move |cpu: &Cpu<Aarch64>| {
                cpu.call(name, |cpu| {
                    cpu.will_reduce(pages(0), Rights::empty());
                    space.clear(cpu, 0);
                    cpu.publish();
                    tlbi(cpu);
                    cpu.complete();
                });
            }
        })
    }

    /// Runs `kernel` on CPU 0 and `other` on CPU 2 while a thread on CPU 1 reads page 0.
    fn run_around_reader(
        &self,
        kernel: impl Fn(&Space, &Cpu<X86_64>) + Copy + 'static,
        other: impl Fn(&Space, &Cpu<X86_64>) + Copy + 'static,
    ) -> CheckOutcome {
        self.run(Check::<X86_64>::new().cpus(3), |harness| {
            let space = Space::run_everywhere(harness);
            space.map_new(harness, 0, Rights::RW, 1);
            let same = Rc::clone(&space);
            vec![
                program(move |cpu| kernel(&space, cpu)),
                program(|cpu| reads(cpu, 1)),
                program(move |cpu| other(&same, cpu)),
            ]
        })
    }

    fn run<I: Isa>(&self, check: Check<I>, setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>) -> CheckOutcome {
        let check = check.memory("128K");
        match *self {
            Self::Search { seed, schedules } => check.seed(seed).schedules(schedules).explore(setup),
            Self::Exhaustive { preemptions, acts, schedules } => {
                check.exhaustive(preemptions, acts).schedules(schedules).explore(setup)
            }
            Self::Replay(token) => check.replay(token, setup).unwrap_or_else(|foreign| panic!("{foreign}")),
        }
    }
}

/// One bug.
pub(crate) struct Bug {
    /// The kernel, and the number of the report.
    pub(crate) name: &'static str,
    /// The report or the fix.
    pub(crate) link: &'static str,
    /// What was wrong, in one line.
    pub(crate) what: &'static str,
    /// The instruction set on which the program runs here.
    pub(crate) isa: IsaKind,
    /// What finds it.
    pub(crate) found_by: FoundBy,
    /// Runs its program.
    pub(crate) check: fn(Version, &RunMode<'_>) -> CheckOutcome,
}

/// All bugs.
pub(crate) const BUGS: &[Bug] = &[
    litebox_848::BUG,
    asterinas_862::BUG,
    asterinas_1952::BUG,
    osv_1475::BUG,
    netbsd_cow::BUG,
    sel4_107::BUG,
    linux_cve_2018_18281::BUG,
    linux_60bae7370896::BUG,
    linux_cve_2022_39188::BUG,
    zephyr_98344::BUG,
    zephyr_115708::BUG,
    zephyr_113559::BUG,
    unikraft_1149::BUG,
    tgoskits_2008::BUG,
    tgoskits_2009::BUG,
];

/// The text of `docs/named-bugs.md`.
pub(crate) fn markdown() -> String {
    let mut page = String::from(HEAD);
    for Bug { name, link, what, isa, found_by, .. } in BUGS {
        page.push_str(&format!("| [{name}]({link}) | {isa} | {what} | {found_by} |\n"));
    }
    page + FOOT
}

const HEAD: &str = "\
# Named bugs

This page lists TLB maintenance bugs that kernels shipped, each as a one-page program for
`pagewright-check` in two versions: with the bug, and with the kernel's fix. The search finds the
bug from every seed, by the rule in the last column. The fixed version is clean over the same number
of schedules.

O1 is found when a frame is freed while another CPU can still reach it, or, in Zephyr #113559, when
the frame is taken again.

`cargo run -p pagewright-check --example bugs -- --markdown` writes this page; the test `bugs` runs
every program. The top of each file in `crates/check/examples/bugs` says what the program keeps of
its kernel and what it leaves out.

| bug | on | what was wrong | found by |
| --- | --- | --- | --- |
";

const FOOT: &str = "
[found.md](found.md) lists what the check finds in published crates, unmodified.
";
