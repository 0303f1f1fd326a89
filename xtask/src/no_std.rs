//! `cargo xtask no-std`: the library crates built for bare metal, both instruction sets. A dependency that needs an operating system
//! fails here.

use crate::arrows::rules;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::toolchain::{self, BareTarget};

/// Builds for each target in turn.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    for target in BareTarget::ALL {
        let toolchain = toolchain::probe(target)?;
        println!("no-std: {target} with {toolchain}");
        let mut build = toolchain.build(target, &workspace.target_directory.join("bare-metal"))?;
        for library in rules::libraries() {
            build.args(["--package", library]);
        }
        cargo::status(build.arg("--lib").current_dir(&workspace.workspace_root))?;
    }
    Ok(())
}
