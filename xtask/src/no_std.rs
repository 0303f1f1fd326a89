//! `cargo xtask no-std`: checks the library crates for bare metal, on both instruction sets.
//!
//! A dependency that needs an operating system fails the check. `cargo xtask kernel` generates
//! code.

use crate::arrows::rules;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::toolchain::{self, BareTarget};

/// Runs `cargo check` for each target.
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
