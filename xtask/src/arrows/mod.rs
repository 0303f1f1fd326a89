//! `cargo xtask arrows`: dependencies between the crates of the workspace against the table in
//! [`rules`].
//!
//! Also that each crate's root says what its row claims (`#![no_std]`, `#![forbid(unsafe_code)]`).
//!
//! Not guaranteed: that crates from outside fit bare metal. `cargo xtask no-std` shows that by
//! building.

pub(crate) mod rules;

use crate::cargo::{DependencyKind, Package, Workspace};
use crate::error::Error;
use crate::source::scan;
use rules::{Column, Ground, RULES, Rule, UnsafeCode};
use std::fmt;

/// What is wrong with the graph.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// A crate that the table does not know.
    UnknownCrate {
        /// Which.
        name: String,
    },
    /// A dependency that the table does not allow.
    Arrow {
        /// Who depends.
        from: &'static str,
        /// On whom.
        to: String,
        /// For what; normal when `None`.
        kind: Option<DependencyKind>,
    },
    /// A crate root without an attribute that its row asks for.
    Attribute {
        /// Which crate.
        name: &'static str,
        /// Which attribute.
        wants: &'static str,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCrate { name } => {
                write!(f, "{name} is not in the table of crates (xtask/src/arrows/rules.rs)")
            }
            Self::Arrow { from, to, kind: None } => write!(f, "{from} may not use {to}"),
            Self::Arrow { from, to, kind: Some(DependencyKind::Dev) } => write!(f, "tests of {from} may not use {to}"),
            Self::Arrow { from, to, kind: Some(DependencyKind::Build) } => {
                write!(f, "the build script of {from} may not use {to}")
            }
            Self::Attribute { name, wants } => write!(f, "the root of {name} lacks {wants}"),
        }
    }
}

/// A crate as the check sees it.
struct Node<'a> {
    package: &'a Package,
    /// The text of each library or program root.
    roots: Vec<String>,
}

/// Loads the workspace, prints each fault and fails when there is one.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let mut nodes = Vec::new();
    for package in &workspace.packages {
        let mut roots = Vec::new();
        for target in &package.targets {
            if target.kind.iter().any(|kind| kind == "lib" || kind == "bin") {
                let text = std::fs::read_to_string(&target.src_path).map_err(Error::file(&target.src_path))?;
                roots.push(text);
            }
        }
        nodes.push(Node { package, roots });
    }
    let faults = check(&nodes);
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() {
        println!("arrows: {} crates, each within its row of the table", nodes.len());
        Ok(())
    } else {
        Err(Error::Findings { check: "arrows", count: faults.len() })
    }
}

fn check(nodes: &[Node<'_>]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for node in nodes {
        let Some(rule) = rules::of(&node.package.name) else {
            faults.push(Fault::UnknownCrate { name: node.package.name.clone() });
            continue;
        };
        for dependency in &node.package.dependencies {
            if dependency.path.is_some() && !allowed(rule, &dependency.name, dependency.kind) {
                faults.push(Fault::Arrow { from: rule.name, to: dependency.name.clone(), kind: dependency.kind });
            }
        }
        for root in &node.roots {
            faults.extend(missing(rule, root).map(|wants| Fault::Attribute { name: rule.name, wants }));
        }
    }
    faults
}

fn allowed(rule: &Rule, used: &str, kind: Option<DependencyKind>) -> bool {
    let judges = || used == rules::LAB || RULES.iter().any(|r| r.name == used && r.column == Column::Judge);
    let is_test = kind == Some(DependencyKind::Dev);
    rule.may_use.contains(&used) || (is_test && rule.column == Column::Subject && judges())
}

fn missing<'a>(rule: &'a Rule, root: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let code = scan::code(root);
    [
        (rule.ground == Ground::NoStd, "#![no_std]"),
        (rule.unsafe_code == UnsafeCode::Forbidden, "#![forbid(unsafe_code)]"),
    ]
    .into_iter()
    .filter(move |(wanted, attribute)| *wanted && !code.contains(attribute))
    .map(|(_, attribute)| attribute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Dependency;

    fn package(name: &str, uses: &[(&str, Option<DependencyKind>)]) -> Package {
        let dependencies = uses
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).into(), kind: *kind, path: Some("crates/x".into()) })
            .collect();
        Package { name: name.into(), dependencies, targets: Vec::new() }
    }

    fn faults(package: &Package, root: &str) -> Vec<Fault> {
        check(&[Node { package, roots: vec![root.into()] }])
    }

    const LIBRARY: &str = "#![no_std]\n#![forbid(unsafe_code)]\n";
    const HOSTED: &str = "#![forbid(unsafe_code)]\n";
    const DEV: Option<DependencyKind> = Some(DependencyKind::Dev);

    #[test]
    fn the_arrows_of_the_table_pass() {
        for rule in RULES {
            let uses: Vec<_> = rule.may_use.iter().map(|name| (*name, None)).collect();
            assert_eq!(faults(&package(rule.name, &uses), LIBRARY), []);
        }
    }

    #[test]
    fn an_arrow_up_sideways_or_past_the_allocator_is_found() {
        for (from, to) in [
            ("pagewright-types", "pagewright-arch"),
            ("pagewright-model", "pagewright-arch"),
            ("pagewright-sim", "pagewright-mm"),
            ("pagewright-check", "pagewright-table"),
            ("pagewright-mm", "pagewright-frame"),
            ("pagewright-table", "pagewright-frame"),
            ("pagewright-capture", "pagewright-frame"),
            ("pagewright-mm", "pagewright-sim"),
            ("pagewright-tlb", "pagewright-table"),
            ("pagewright", "pagewright-table"),
        ] {
            for kind in [None, Some(DependencyKind::Build)] {
                let found = faults(&package(from, &[(to, kind)]), LIBRARY);
                assert_eq!(found, [Fault::Arrow { from: rules::of(from).expect("a rule").name, to: to.into(), kind }]);
            }
        }
    }

    #[test]
    fn tests_of_the_subject_may_use_the_judge_and_not_the_other_way_round() {
        assert_eq!(
            faults(&package("pagewright-mm", &[("pagewright-sim", DEV), ("pagewright-check", DEV)]), LIBRARY),
            []
        );
        for judge in ["pagewright-sim", "pagewright-model", "pagewright-check"] {
            assert_eq!(faults(&package(judge, &[("pagewright-mm", DEV)]), LIBRARY).len(), 1, "{judge}");
        }
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        let found = faults(&package("pagewright-extra", &[]), LIBRARY);
        assert_eq!(found, [Fault::UnknownCrate { name: "pagewright-extra".into() }]);
    }

    #[test]
    fn a_root_without_its_attributes_is_found_and_one_in_a_comment_does_not_count() {
        let mm = package("pagewright-mm", &[]);
        let lacks = |wants| Fault::Attribute { name: "pagewright-mm", wants };
        assert_eq!(faults(&mm, "#![no_std]\n"), [lacks("#![forbid(unsafe_code)]")]);
        assert_eq!(faults(&mm, HOSTED), [lacks("#![no_std]")]);
        assert_eq!(faults(&mm, "// #![forbid(unsafe_code)]\n#![no_std]"), [lacks("#![forbid(unsafe_code)]")]);
        assert_eq!(faults(&package("pagewright-frame", &[]), "#![no_std]"), [], "unsafe code lives there");
    }

    #[test]
    fn a_dependency_from_outside_is_not_the_tables_business() {
        let mut mm = package("pagewright-mm", &[("bitflags", None)]);
        mm.dependencies[0].path = None;
        assert_eq!(faults(&mm, LIBRARY), []);
    }
}
