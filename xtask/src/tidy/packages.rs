//! Each package that can be published has a README, both licences, and no address that is made up.
//!
//! A README is generated from the opening of the crate, unless the package names one of its own.
//!
//! Not guaranteed: that an address which is not the reserved one exists.

use super::{Breach, Finding, Generated};
use crate::cargo::{Package, Workspace};
use crate::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The licences, which each package needs, because it is published without the rest.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// Packages whose README is written by hand.
const OWN_README: [&str; 1] = ["pagewright-check"];

/// Checks all packages, or writes their READMEs.
pub(crate) fn run(workspace: &Workspace, generated: Generated) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.is_published()) {
        let Some(folder) = package.manifest_path.parent() else { continue };
        let at = |name: &str| workspace.shown(&folder.join(name)).to_owned();
        if package.repository.is_some() {
            findings.push(Finding { path: at("Cargo.toml"), line: 0, breach: Breach::MadeUpRepository });
        }
        for licence in LICENCES {
            let of_workspace = fs::read(workspace.workspace_root.join(licence)).ok();
            if of_workspace.is_none() || fs::read(folder.join(licence)).ok() != of_workspace {
                findings.push(Finding { path: at(licence), line: 0, breach: Breach::NoLicence });
            }
        }
        if OWN_README.contains(&package.name.as_str()) {
            continue;
        }
        let root = package.targets.first().map(|target| target.src_path.as_path());
        let opening = root.map(opening).transpose()?.unwrap_or_default();
        let text = readme(package, &opening, &examples(folder));
        findings.extend(generated.document(workspace, at("README.md"), &text)?);
    }
    Ok(findings)
}

/// The first line of the crate's documentation.
fn opening(root: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(root).map_err(Error::file(root))?;
    Ok(text.lines().next().and_then(|line| line.strip_prefix("//! ")).unwrap_or_default().to_owned())
}

/// The names of the package's examples, in order.
fn examples(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder.join("examples")).into_iter().flatten().flatten();
    let name = |file: fs::DirEntry| {
        let path = file.path();
        path.extension().is_some_and(|ext| ext == "rs").then(|| path.file_stem()?.to_str().map(str::to_owned))?
    };
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort();
    names
}

fn readme(package: &Package, opening: &str, examples: &[String]) -> String {
    let name = &package.name;
    let mut text = format!(
        "# {name}\n\n{opening}\n\nThis package is part of Pagewright, a virtual-memory subsystem for x86-64 and arm64 \
         with a simulated\nSMP machine that finds stale translations.\n"
    );
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\n| | |\n| --- | --- |\n| documentation | `cargo doc --open -p {name}` |");
    for example in examples {
        let _ = writeln!(text, "| example | `cargo run -p {name} --example {example}` |");
    }
    text.push_str("\nLicensed under MIT or Apache-2.0, at your choice.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readme_has_the_opening_and_each_example() {
        let package: Package = serde_json::from_value(serde_json::json!({
            "name": "pagewright-x", "manifest_path": "/x/Cargo.toml", "dependencies": [], "targets": [],
            "publish": null, "repository": null
        }))
        .expect("a package");
        let text = readme(&package, "Counts frames.", &["count".to_owned()]);
        assert!(text.starts_with("# pagewright-x\n\nCounts frames.\n"), "{text}");
        assert!(text.contains("| example | `cargo run -p pagewright-x --example count` |"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_package_that_is_not_published_needs_nothing() {
        let package = |publish: &[&str]| -> Package {
            let publish = serde_json::json!({"name": "x", "manifest_path": "/x/Cargo.toml", "dependencies": [],
                "targets": [], "publish": publish, "repository": null});
            serde_json::from_value(publish).expect("a package")
        };
        assert!(!package(&[]).is_published());
        assert!(package(&["crates-io"]).is_published());
    }
}
