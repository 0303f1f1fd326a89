//! `cargo xtask no-std`: the library crates checked for bare metal, both instruction sets.
//!
//! A dependency that needs an operating system fails here. Code is made of them when the kernel is
//! built.

use crate::arrows::rules;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::toolchain::{self, BareTarget};

/// Checks for each target in turn.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    for target in BareTarget::ALL {
        let toolchain = toolchain::probe(target)?;
        println!("no-std: {target} with {toolchain}");
        let mut check = toolchain.cargo("check", target, &workspace.target_directory.join("bare-metal"))?;
        for library in rules::libraries() {
            check.args(["--package", library]);
        }
        cargo::status(check.arg("--lib").current_dir(&workspace.workspace_root))?;
    }
    Ok(())
}
