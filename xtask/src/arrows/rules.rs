//! Which crate may use which: the house as a table.
//!
//! Two columns stand on the same ground: the subject (`frame` → `tlb` → `table` → `mm`) and its
//! judge (`model`, `sim` → `check`). They meet only above both, in `lab` and `fuzz`, so
//! that the oracle's independence is a fact of the Cargo graph. `table`, `mm` and what stands on
//! them reach frames through `tlb` alone, whose allocator settles debts first.

/// Whether a crate may contain unsafe code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsafeCode {
    /// Its root says `#![forbid(unsafe_code)]`.
    Forbidden,
    /// It is one of the few where unsafe code lives.
    Allowed,
}

/// What a crate builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Bare metal: its root says `#![no_std]`, and it uses only crates that do.
    NoStd,
    /// A hosted system.
    Std,
}

/// Which side of the house a crate is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Used by both sides.
    Shared,
    /// What is judged.
    ///
    /// Its tests may use the judge, and the lab, where both meet.
    Subject,
    /// What judges.
    ///
    /// Its tests may not use the subject either.
    Judge,
    /// Above both.
    Above,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The package.
    pub(crate) name: &'static str,
    /// The packages of this workspace that it may use.
    pub(crate) may_use: &'static [&'static str],
    /// Its side.
    pub(crate) column: Column,
    /// What it builds on.
    pub(crate) ground: Ground,
    /// Whether it may contain unsafe code.
    pub(crate) unsafe_code: UnsafeCode,
}

const TYPES: &str = "pagewright-types";
const PLANT: &str = "pagewright-plant";
const ARCH: &str = "pagewright-arch";
const SYNC: &str = "pagewright-sync";
const FRAME: &str = "pagewright-frame";
const TLB: &str = "pagewright-tlb";
const TABLE: &str = "pagewright-table";
const BTREE: &str = "pagewright-btree";
const MM: &str = "pagewright-mm";
const SYSCALL: &str = "pagewright-syscall";
const HOST: &str = "pagewright-host";
const MODEL: &str = "pagewright-model";
const SIM: &str = "pagewright-sim";
const CHECK: &str = "pagewright-check";
pub(super) const LAB: &str = "pagewright-lab";
const CAPTURE: &str = "pagewright-capture";
const FUZZ: &str = "pagewright-fuzz";

const fn library(
    name: &'static str,
    may_use: &'static [&'static str],
    column: Column,
    unsafe_code: UnsafeCode,
) -> Rule {
    Rule { name, may_use, column, ground: Ground::NoStd, unsafe_code }
}

const fn hosted(name: &'static str, may_use: &'static [&'static str], column: Column) -> Rule {
    Rule { name, may_use, column, ground: Ground::Std, unsafe_code: UnsafeCode::Forbidden }
}

/// The table, from the ground up.
///
/// A crate that is not in it may not be in the workspace.
pub(crate) const RULES: &[Rule] = &[
    library(TYPES, &[], Column::Shared, UnsafeCode::Forbidden),
    // Planted bugs; the judge makes none.
    library(PLANT, &[TYPES], Column::Shared, UnsafeCode::Forbidden),
    library(ARCH, &[TYPES], Column::Shared, UnsafeCode::Forbidden),
    library(SYNC, &[TYPES, PLANT, ARCH], Column::Shared, UnsafeCode::Allowed),
    library(FRAME, &[TYPES, PLANT, ARCH, SYNC], Column::Subject, UnsafeCode::Allowed),
    library(TLB, &[TYPES, PLANT, ARCH, SYNC, FRAME], Column::Subject, UnsafeCode::Forbidden),
    library(TABLE, &[TYPES, PLANT, ARCH, SYNC, TLB], Column::Subject, UnsafeCode::Forbidden),
    library(BTREE, &[], Column::Subject, UnsafeCode::Forbidden),
    library(MM, &[BTREE, TYPES, PLANT, ARCH, SYNC, TLB, TABLE], Column::Subject, UnsafeCode::Forbidden),
    library(SYSCALL, &[TYPES, ARCH, SYNC, MM], Column::Subject, UnsafeCode::Forbidden),
    // Real memory for what depends on real caches. Its tests run the memory manager on it.
    hosted(HOST, &[TYPES, PLANT, ARCH, SYNC, TLB, MM], Column::Above),
    // Bare metal, so that the kernel can be judged where it runs.
    library(MODEL, &[TYPES], Column::Judge, UnsafeCode::Forbidden),
    hosted(SIM, &[TYPES, ARCH, SYNC], Column::Judge),
    hosted(CHECK, &[TYPES, ARCH, SYNC, SIM, MODEL], Column::Judge),
    hosted(LAB, &[TYPES, PLANT, ARCH, SYNC, TLB, MM, SYSCALL, SIM, MODEL, CHECK], Column::Above),
    hosted(CAPTURE, &[TYPES, ARCH, SYNC, MM, SIM, LAB], Column::Above),
    hosted(FUZZ, &[TYPES, PLANT, ARCH, SYNC, MM, SYSCALL, SIM, MODEL, CHECK, LAB], Column::Above),
    // The program names machines, settings and instruction sets.
    hosted("pagewright", &[TYPES, ARCH, TLB, MM, HOST, SIM, CHECK, LAB, CAPTURE, FUZZ], Column::Above),
    // Documents are generated from the tables of counters and of Linux's calls.
    hosted("xtask", &[TYPES, SYSCALL], Column::Above),
];

/// The library crates, which are built for bare metal.
pub(crate) fn libraries() -> impl Iterator<Item = &'static str> {
    RULES.iter().filter(|rule| rule.ground == Ground::NoStd).map(|rule| rule.name)
}

/// The rule for a package, if it has one.
pub(crate) fn of(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrow_points_down_so_there_is_no_circle() {
        for (height, rule) in RULES.iter().enumerate() {
            for used in rule.may_use {
                let below = RULES.iter().position(|other| other.name == *used).expect("a rule for each crate used");
                assert!(below < height, "{} may use {used}", rule.name);
            }
        }
    }

    #[test]
    fn bare_metal_stands_on_bare_metal() {
        for rule in RULES.iter().filter(|rule| rule.ground == Ground::NoStd) {
            for used in rule.may_use {
                assert_eq!(of(used).map(|rule| rule.ground), Some(Ground::NoStd), "{} may use {used}", rule.name);
            }
        }
    }

    #[test]
    fn judge_and_subject_never_see_each_other() {
        for rule in RULES {
            for used in rule.may_use {
                let used = of(used).expect("a rule for each crate used");
                assert!(
                    !matches!(
                        (rule.column, used.column),
                        (Column::Judge, Column::Subject) | (Column::Subject, Column::Judge)
                    ),
                    "{} may use {}",
                    rule.name,
                    used.name
                );
            }
        }
    }
}
