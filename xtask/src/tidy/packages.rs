//! Each package that can be published is complete: `cargo publish --workspace` needs no more.
//!
//! It has both licences, a README ([`readme`]), an example in its documentation, and
//! the metadata that a registry asks for. No file that it includes lies outside its folder. It has
//! no address that is made up.
//!
//! Not guaranteed: that an address which is not the reserved one exists, or that the package
//! builds. `cargo xtask package` packs and builds it.

use super::{Breach, Finding, Generated, readme};
use crate::cargo::{Package, Workspace};
use crate::error::Error;
use crate::source::File;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The licences, which each package needs, because it is published without the rest.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The number of keywords that crates.io accepts, and their length.
const KEYWORDS: usize = 5;
const KEYWORD_LENGTH: usize = 20;

/// Checks all packages, or writes their READMEs.
pub(crate) fn run(workspace: &Workspace, files: &[File], generated: Generated) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.is_published()) {
        let Some(folder) = package.manifest_path.parent() else { continue };
        let at = |name: &str| workspace.shown(&folder.join(name)).to_owned();
        let breaches = metadata(package).map(|breach| Finding { path: at("Cargo.toml"), line: 0, breach });
        findings.extend(breaches);
        for licence in LICENCES {
            let of_workspace = fs::read(workspace.workspace_root.join(licence)).ok();
            if of_workspace.is_none() || fs::read(folder.join(licence)).ok() != of_workspace {
                findings.push(Finding { path: at(licence), line: 0, breach: Breach::NoLicence });
            }
        }
        let folder_shown = workspace.shown(folder);
        let of_package = files.iter().filter(|file| is_packed(&file.path, folder_shown));
        findings.extend(of_package.flat_map(|file| outside(file, folder_shown)));
        let Some(root) = package.targets.first().map(|target| target.src_path.as_path()) else { continue };
        let text = fs::read_to_string(root).map_err(Error::file(root))?;
        if readme::example(&text).is_none() {
            findings.push(Finding { path: workspace.shown(root).to_owned(), line: 0, breach: Breach::NoExample });
        }
        let text = readme::text(package, &text, &examples(folder));
        findings.extend(generated.document(workspace, at("README.md"), &text)?);
    }
    Ok(findings)
}

/// What a registry would refuse or miss in the manifest.
fn metadata(package: &Package) -> impl Iterator<Item = Breach> {
    let has_good_keywords = !package.keywords.is_empty()
        && package.keywords.len() <= KEYWORDS
        && package.keywords.iter().all(|word| word.len() <= KEYWORD_LENGTH);
    let fields = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("keywords", has_good_keywords),
        ("categories", !package.categories.is_empty()),
    ];
    let made_up = package.repository.is_some().then_some(Breach::MadeUpRepository);
    fields.into_iter().filter(|(_, good)| !good).map(|(field, _)| Breach::BadMetadata { field }).chain(made_up)
}

/// Whether a file is part of the library or the program of the package in `folder`.
fn is_packed(file: &Path, folder: &Path) -> bool {
    file.strip_prefix(folder).is_ok_and(|inside| inside.starts_with("src") || inside.starts_with("examples"))
}

/// The files outside `folder` that a file includes.
fn outside(file: &File, folder: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for macro_call in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
        for (offset, _) in file.text.match_indices(macro_call) {
            let Some((included, _)) = file.text[offset + macro_call.len()..].split_once('"') else { continue };
            let path = lexical(&file.path.with_file_name("").join(included));
            if !path.starts_with(folder) {
                findings.push(Finding::at(file, offset, Breach::OutsidePackage { path }));
            }
        }
    }
    findings
}

/// The path without `.` and `..`; links are not followed, because a package has what they lead to.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = out.pop(),
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => out.push(part),
        }
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    fn package(fields: &serde_json::Value) -> Package {
        let mut all = serde_json::json!({"name": "x", "version": "0.1.0", "manifest_path": "/x/Cargo.toml", "dependencies": [],
            "targets": [], "description": "X.", "license": "MIT", "keywords": ["x"], "categories": ["os"]});
        for (name, value) in fields.as_object().expect("an object") {
            all[name] = value.clone();
        }
        serde_json::from_value(all).expect("a package")
    }

    #[test]
    fn a_package_that_is_not_published_needs_nothing() {
        let published = |to: &[&str]| package(&serde_json::json!({ "publish": to })).is_published();
        assert!(!published(&[]));
        assert!(published(&["crates-io"]));
    }

    #[test]
    fn metadata_that_a_registry_refuses_is_found() {
        let fields = |fields| metadata(&package(&fields)).collect::<Vec<_>>();
        assert_eq!(fields(serde_json::json!({})), []);
        let bad = |field| [Breach::BadMetadata { field }];
        assert_eq!(fields(serde_json::json!({ "description": null })), bad("description"));
        assert_eq!(fields(serde_json::json!({ "keywords": ["twenty-one-characters"] })), bad("keywords"));
        assert_eq!(fields(serde_json::json!({ "keywords": ["a", "b", "c", "d", "e", "f"] })), bad("keywords"));
        assert_eq!(fields(serde_json::json!({ "categories": [] })), bad("categories"));
        assert_eq!(fields(serde_json::json!({ "repository": "https://x" })), [Breach::MadeUpRepository]);
    }

    #[test]
    fn a_file_that_is_included_lies_in_the_package() {
        let folder = Path::new("crates/x");
        let found = |path: &str| {
            let file = File::new("crates/x/src/a/b.rs".into(), format!("const T: &str = include_str!(\"{path}\");"));
            outside(&file, folder).into_iter().map(|finding| finding.breach).collect::<Vec<_>>()
        };
        assert_eq!(found("../../c.md"), []);
        assert_eq!(found("../../../y/c.md"), [Breach::OutsidePackage { path: "crates/y/c.md".into() }]);
        assert!(is_packed(Path::new("crates/x/src/a.rs"), folder));
        assert!(!is_packed(Path::new("crates/x/tests/a.rs"), folder));
    }
}
