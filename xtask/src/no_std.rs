//! `cargo xtask no-std`: checks the library crates for bare metal, on both instruction sets.
//!
//! A dependency that needs an operating system fails the check. `cargo xtask test` builds the
//! kernel instead, which links every library crate and takes longer.

use crate::arrows::rules;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::toolchain::{self, bare_triple};
use pagewright_types::IsaKind;

/// Runs `cargo check` for each target.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    for target in IsaKind::ALL {
        let toolchain = toolchain::probe(target)?;
        println!("no-std: {} with {toolchain}", bare_triple(target));
        let mut check = toolchain.cargo("check", &[target], &workspace.target_directory.join("bare-metal"))?;
        for library in rules::libraries() {
            check.args(["--package", library]);
        }
        cargo::status(check.arg("--lib").current_dir(&workspace.workspace_root))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_kernel_links_every_library_crate() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let load = |folder: &str| Workspace::load_at(&root.join(folder)).expect("cargo metadata");
        let (kernel, libraries) = (load("kernel"), load("."));
        let packages = || kernel.packages.iter().chain(&libraries.packages);
        let mut linked = BTreeSet::from(["pagewright-kernel".to_owned()]);
        let mut queue: Vec<_> = linked.iter().cloned().collect();
        while let Some(name) = queue.pop() {
            let package = packages().find(|package| package.name == name).expect("a package of a workspace");
            let ours = package.dependencies.iter().filter(|used| used.kind.is_none() && used.path.is_some());
            queue.extend(ours.map(|used| used.name.clone()).filter(|used| linked.insert(used.clone())));
        }
        for library in rules::libraries().filter(|library| *library != rules::EMBEDDING) {
            assert!(linked.contains(library), "the kernel does not link {library}");
        }
    }
}
