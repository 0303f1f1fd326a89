//! `cargo xtask arrows`: checks the dependencies between crates against the table in [`rules`].
//!
//! It also checks that each crate root has the attributes of its row (`#![no_std]`,
//! `#![forbid(unsafe_code)]`).
//!
//! Not guaranteed: that external crates build for bare metal. `cargo xtask no-std` checks that.

pub(crate) mod rules;

use crate::cargo::{DependencyKind, Package, Workspace};
use crate::error::Error;
use crate::source::scan;
use rules::{Column, Environment, RULES, Rule, UnsafeCode};
use std::fmt;

/// A violation of the table.
#[derive(Debug, PartialEq, Eq)]
enum Violation {
    /// A crate that is not in the table.
    UnknownCrate {
        /// The crate.
        name: String,
    },
    /// A dependency that the table does not allow.
    Arrow {
        /// The crate with the dependency.
        from: &'static str,
        /// The crate that it depends on.
        to: String,
        /// The kind; `None` for a normal dependency.
        kind: Option<DependencyKind>,
    },
    /// A crate root without an attribute of its row.
    Attribute {
        /// The crate.
        name: &'static str,
        /// The missing attribute.
        attribute: &'static str,
    },
}

impl fmt::Display for Violation {
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
            Self::Attribute { name, attribute } => write!(f, "the root of {name} lacks {attribute}"),
        }
    }
}

/// A crate of the workspace.
struct Node<'a> {
    package: &'a Package,
    /// The source of each library or program root.
    roots: Vec<String>,
}

/// Checks the workspace, prints each violation, and fails if there is one.
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
    let violations = check(&nodes);
    crate::error::report("arrows", &violations, format_args!("{} crates, no violation", nodes.len()))
}

fn check(nodes: &[Node<'_>]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for node in nodes {
        let Some(rule) = rules::of(&node.package.name) else {
            violations.push(Violation::UnknownCrate { name: node.package.name.clone() });
            continue;
        };
        for dependency in &node.package.dependencies {
            if dependency.path.is_some() && !allowed(rule, &dependency.name, dependency.kind) {
                violations.push(Violation::Arrow {
                    from: rule.name,
                    to: dependency.name.clone(),
                    kind: dependency.kind,
                });
            }
        }
        for root in &node.roots {
            violations.extend(missing(rule, root).map(|attribute| Violation::Attribute { name: rule.name, attribute }));
        }
    }
    violations
}

fn allowed(rule: &Rule, used: &str, kind: Option<DependencyKind>) -> bool {
    let judges = || used == rules::LAB || RULES.iter().any(|r| r.name == used && r.column == Column::Judge);
    let is_test = kind == Some(DependencyKind::Dev);
    rule.may_use.contains(&used) || (is_test && rule.column == Column::Subject && judges())
}

fn missing<'a>(rule: &'a Rule, root: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let code = scan::code(root);
    [
        (rule.environment == Environment::NoStd, "#![no_std]"),
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
        Package { name: name.into(), manifest_path: "/Cargo.toml".into(), dependencies, ..Package::default() }
    }

    fn violations(package: &Package, root: &str) -> Vec<Violation> {
        check(&[Node { package, roots: vec![root.into()] }])
    }

    const LIBRARY: &str = "#![no_std]\n#![forbid(unsafe_code)]\n";
    const HOSTED: &str = "#![forbid(unsafe_code)]\n";
    const DEV: Option<DependencyKind> = Some(DependencyKind::Dev);

    #[test]
    fn the_dependencies_of_the_table_pass() {
        for rule in RULES {
            let uses: Vec<_> = rule.may_use.iter().map(|name| (*name, None)).collect();
            assert_eq!(violations(&package(rule.name, &uses), LIBRARY), []);
        }
    }

    #[test]
    fn a_dependency_up_sideways_or_past_the_allocator_is_found() {
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
                let found = violations(&package(from, &[(to, kind)]), LIBRARY);
                assert_eq!(
                    found,
                    [Violation::Arrow { from: rules::of(from).expect("a rule").name, to: to.into(), kind }]
                );
            }
        }
    }

    #[test]
    fn tests_of_the_subject_may_use_the_judge_but_not_vice_versa() {
        assert_eq!(
            violations(&package("pagewright-mm", &[("pagewright-sim", DEV), ("pagewright-check", DEV)]), LIBRARY),
            []
        );
        for judge in ["pagewright-sim", "pagewright-model", "pagewright-check"] {
            assert_eq!(violations(&package(judge, &[("pagewright-mm", DEV)]), LIBRARY).len(), 1, "{judge}");
        }
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        let found = violations(&package("pagewright-extra", &[]), LIBRARY);
        assert_eq!(found, [Violation::UnknownCrate { name: "pagewright-extra".into() }]);
    }

    #[test]
    fn a_root_without_its_attributes_is_found_even_if_a_comment_has_them() {
        let mm = package("pagewright-mm", &[]);
        let lacks = |attribute| Violation::Attribute { name: "pagewright-mm", attribute };
        assert_eq!(violations(&mm, "#![no_std]\n"), [lacks("#![forbid(unsafe_code)]")]);
        assert_eq!(violations(&mm, HOSTED), [lacks("#![no_std]")]);
        assert_eq!(violations(&mm, "// #![forbid(unsafe_code)]\n#![no_std]"), [lacks("#![forbid(unsafe_code)]")]);
        assert_eq!(
            violations(&package("pagewright-frame", &[]), "#![no_std]"),
            [],
            "this crate may contain unsafe code"
        );
    }

    #[test]
    fn external_dependencies_are_not_checked() {
        let mut mm = package("pagewright-mm", &[("bitflags", None)]);
        mm.dependencies[0].path = None;
        assert_eq!(violations(&mm, LIBRARY), []);
    }
}
