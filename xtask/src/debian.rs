//! Files out of Debian's packages, of any architecture, without installing them.
//!
//! `apt-get` keeps its lists and downloads below the target directory here, so the system's own architectures and lists stay as they are; it
//! verifies signatures as always. No rights are needed.
//!
//! Not guaranteed: anything where there is no apt, or no network: then [`fetch`] is an error, and what needs the file is left out.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a package's file lies once it was fetched.
pub(crate) fn place(workspace: &Workspace, architecture: &str, package: &str) -> PathBuf {
    workspace.target_directory.join("debian").join(architecture).join(package)
}

/// Fetches a package and takes out what matches `pattern` (as `tar --wildcards` has it, from `./` on); returns the folder that it then lies in.
///
/// # Errors
/// [`Error::Program`], [`Error::Spawn`] when apt, dpkg or tar fails or is missing.
pub(crate) fn fetch(workspace: &Workspace, architecture: &str, package: &str, pattern: &str) -> Result<PathBuf, Error> {
    let folder = place(workspace, architecture, package);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let apt = Apt::new(workspace, architecture)?;
    cargo::output(apt.get().args(["download", package]).current_dir(&folder))?;
    let found = fs::read_dir(&folder).map_err(Error::file(&folder))?.flatten().map(|entry| entry.path());
    let archive = found.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).last();
    let archive = archive.ok_or_else(|| Error::NoPackage(package.to_owned()))?;
    let failed = |source| Error::Spawn { program: "dpkg-deb".to_owned(), source };
    let mut unpack =
        Command::new("dpkg-deb").arg("--fsys-tarfile").arg(&archive).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut take = Command::new("tar");
    take.args(["--extract", "--wildcards", pattern]).current_dir(&folder);
    take.stdin(unpack.stdout.take().map_or_else(Stdio::null, Stdio::from));
    cargo::status(&mut take)?;
    unpack.wait().map_err(failed)?;
    fs::remove_file(&archive).map_err(Error::file(&archive))?;
    Ok(folder)
}

/// The package on which another of these names depends by a name that begins with `prefix`, such as the kernel of today.
///
/// # Errors
/// As of [`fetch`]; [`Error::NoPackage`].
pub(crate) fn dependency(
    workspace: &Workspace,
    architecture: &str,
    package: &str,
    prefix: &str,
) -> Result<String, Error> {
    let apt = Apt::new(workspace, architecture)?;
    let printed = cargo::output(apt.command("apt-cache").args(["depends", package]))?;
    let printed = String::from_utf8_lossy(&printed);
    let mut names = printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let name = names.find(|name| name.starts_with(prefix));
    name.map(str::to_owned).ok_or_else(|| Error::NoPackage(package.to_owned()))
}

/// apt with lists of its own, up to date.
struct Apt {
    architecture: String,
    folder: PathBuf,
}

impl Apt {
    fn new(workspace: &Workspace, architecture: &str) -> Result<Self, Error> {
        let folder = workspace.target_directory.join("debian").join(architecture).join("apt");
        let apt = Self { architecture: architecture.to_owned(), folder };
        if !apt.folder.exists() {
            for part in ["lists/partial", "cache/archives/partial"] {
                let part = apt.folder.join(part);
                fs::create_dir_all(&part).map_err(Error::file(&part))?;
            }
            let status = apt.folder.join("status");
            fs::write(&status, "").map_err(Error::file(&status))?;
            if let Err(error) = cargo::output(apt.get().arg("update")) {
                // Half of the lists are worse than none: they would stay.
                let _ = fs::remove_dir_all(&apt.folder);
                return Err(error);
            }
        }
        Ok(apt)
    }

    fn get(&self) -> Command {
        self.command("apt-get")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let mut set = |name: &str, value: &Path| {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        };
        set("APT::Architecture", Path::new(&self.architecture));
        set("APT::Architectures", Path::new(&self.architecture));
        set("APT::Sandbox::User", Path::new("root"));
        set("Dir::State::lists", &self.folder.join("lists"));
        set("Dir::State::status", &self.folder.join("status"));
        set("Dir::Cache", &self.folder.join("cache"));
        if program == "apt-get" {
            command.arg("--quiet=2");
        }
        command
    }
}
