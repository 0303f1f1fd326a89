//! The table of allowed dependencies between crates.
//!
//! Two columns share the lowest crates: the subject (`frame` → `tlb` → `table` → `mm`) and its
//! judge (`model`, `sim` → `check`). They meet only above both, in `lab` and `fuzz`, so the Cargo
//! graph guarantees that the oracle is independent. `table`, `mm` and the crates above allocate
//! frames only through `tlb`, whose allocator settles debts first.

/// Whether a crate may contain unsafe code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsafeCode {
    /// No: the crate root has `#![forbid(unsafe_code)]`.
    Forbidden,
    /// Yes.
    Allowed,
}

/// The environment that a crate needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    /// None: the crate and all its dependencies are `#![no_std]`.
    NoStd,
    /// A hosted system.
    Std,
}

/// The column of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Both columns use the crate.
    Shared,
    /// The code under judgement; its tests may use the judge and the lab.
    Subject,
    /// The judge; not even its tests may use the subject.
    Judge,
    /// The crate is above both columns.
    Above,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The package.
    pub(crate) name: &'static str,
    /// The packages of this workspace that it may depend on.
    pub(crate) may_use: &'static [&'static str],
    /// The column.
    pub(crate) column: Column,
    /// The environment.
    pub(crate) environment: Environment,
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
/// The example of an embedder, which alone of the library crates the kernel does not link.
pub(crate) const EMBEDDING: &str = "pagewright-embedding";
const HOST: &str = "pagewright-host";
const MODEL: &str = "pagewright-model";
const SIM: &str = "pagewright-sim";
const CHECK: &str = "pagewright-check";
pub(super) const LAB: &str = "pagewright-lab";
const RECORDER: &str = "pagewright-recorder";
const CAPTURE: &str = "pagewright-capture";
const FUZZ: &str = "pagewright-fuzz";

const fn library(
    name: &'static str,
    may_use: &'static [&'static str],
    column: Column,
    unsafe_code: UnsafeCode,
) -> Rule {
    Rule { name, may_use, column, environment: Environment::NoStd, unsafe_code }
}

const fn hosted(name: &'static str, may_use: &'static [&'static str], column: Column) -> Rule {
    Rule { name, may_use, column, environment: Environment::Std, unsafe_code: UnsafeCode::Forbidden }
}

/// The table, from the lowest crate to the highest, with every crate of the workspace.
pub(crate) const RULES: &[Rule] = &[
    library(TYPES, &[], Column::Shared, UnsafeCode::Forbidden),
    // The judge plants no bugs.
    library(PLANT, &[TYPES], Column::Shared, UnsafeCode::Forbidden),
    library(ARCH, &[TYPES], Column::Shared, UnsafeCode::Forbidden),
    library(SYNC, &[TYPES, PLANT, ARCH], Column::Shared, UnsafeCode::Allowed),
    library(FRAME, &[TYPES, PLANT, ARCH, SYNC], Column::Subject, UnsafeCode::Allowed),
    library(TLB, &[TYPES, PLANT, ARCH, SYNC, FRAME], Column::Subject, UnsafeCode::Forbidden),
    library(TABLE, &[TYPES, PLANT, ARCH, SYNC, TLB], Column::Subject, UnsafeCode::Allowed),
    library(BTREE, &[], Column::Subject, UnsafeCode::Forbidden),
    library(MM, &[BTREE, TYPES, PLANT, ARCH, SYNC, TLB, TABLE], Column::Subject, UnsafeCode::Forbidden),
    library(SYSCALL, &[TYPES, ARCH, SYNC, MM], Column::Subject, UnsafeCode::Forbidden),
    // Real memory, for figures that depend on caches. Its tests run the memory manager.
    hosted(HOST, &[TYPES, PLANT, ARCH, SYNC, TLB, MM], Column::Above),
    // The example of an embedder. Its page shows each crate by itself, the allocator too.
    library(EMBEDDING, &[TYPES, ARCH, SYNC, FRAME, TLB, TABLE, MM], Column::Subject, UnsafeCode::Forbidden),
    // No std, so that the oracle also runs in the kernel.
    library(MODEL, &[TYPES], Column::Judge, UnsafeCode::Forbidden),
    hosted(SIM, &[TYPES, ARCH, SYNC], Column::Judge),
    hosted(CHECK, &[TYPES, ARCH, SYNC, SIM, MODEL], Column::Judge),
    // The instructions of code that is checked, by a signal handler.
    Rule { unsafe_code: UnsafeCode::Allowed, ..hosted("pagewright-trap", &[CHECK], Column::Judge) },
    // A wrapper of rustc for code that is checked; it judges nothing.
    hosted("cargo-pagewright", &[], Column::Judge),
    hosted(LAB, &[TYPES, PLANT, ARCH, SYNC, TLB, TABLE, MM, SYSCALL, SIM, MODEL, CHECK], Column::Above),
    // The plugin of QEMU, whose interface is of C, and the format of its log.
    Rule { unsafe_code: UnsafeCode::Allowed, ..hosted(RECORDER, &[], Column::Above) },
    hosted(CAPTURE, &[RECORDER, TYPES, ARCH, SYNC, MM, SIM, CHECK, LAB], Column::Above),
    hosted(FUZZ, &[TYPES, PLANT, ARCH, SYNC, MM, SYSCALL, SIM, MODEL, CHECK, LAB], Column::Above),
    // The program names machines, settings and instruction sets.
    hosted("pagewright", &[TYPES, ARCH, TLB, MM, HOST, SIM, CHECK, LAB, CAPTURE, FUZZ], Column::Above),
    // Only benchmarks use the crates.
    hosted(
        "pagewright-bench",
        &[TYPES, ARCH, SYNC, FRAME, TLB, BTREE, MM, MODEL, SIM, CHECK, CAPTURE, FUZZ],
        Column::Above,
    ),
    // It generates documents from the tables of counters and of Linux's calls, and boots the kernel
    // with planted bugs.
    hosted("xtask", &[TYPES, PLANT, SYSCALL], Column::Above),
];

/// The packages that must build for bare metal.
pub(crate) fn libraries() -> impl Iterator<Item = &'static str> {
    RULES.iter().filter(|rule| rule.environment == Environment::NoStd).map(|rule| rule.name)
}

/// The row of a package, if it has one.
pub(crate) fn of(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dependency_points_down_so_there_is_no_cycle() {
        for (height, rule) in RULES.iter().enumerate() {
            for used in rule.may_use {
                let below = RULES.iter().position(|other| other.name == *used).expect("a rule for each crate used");
                assert!(below < height, "{} may use {used}", rule.name);
            }
        }
    }

    #[test]
    fn bare_metal_crates_depend_only_on_bare_metal_crates() {
        for rule in RULES.iter().filter(|rule| rule.environment == Environment::NoStd) {
            for used in rule.may_use {
                assert_eq!(
                    of(used).map(|rule| rule.environment),
                    Some(Environment::NoStd),
                    "{} may use {used}",
                    rule.name
                );
            }
        }
    }

    #[test]
    fn judge_and_subject_never_depend_on_each_other() {
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
