//! Files from Debian packages of any architecture, without installation.
//!
//! `apt-get` keeps its lists and downloads in the target directory, so the system's own lists and
//! architectures do not change. It verifies signatures as usual and needs no privileges.
//!
//! Not guaranteed: that apt and the network are available. Without them [`Archive::fetch`] fails.

use crate::cargo::{self, Workspace};
use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The mirror of releases for which the system's apt has no source.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The keys that sign Debian's releases.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The packages for one architecture.
#[derive(Clone, Copy)]
pub(crate) struct Archive<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) architecture: &'a str,
    /// The release, such as `trixie`; by default that of the system's apt sources.
    pub(crate) suite: Option<&'a str>,
}

impl Archive<'_> {
    fn folder(self) -> PathBuf {
        let name = self.suite.map_or(self.architecture.to_owned(), |suite| format!("{}-{suite}", self.architecture));
        self.workspace.target_directory.join("debian").join(name)
    }

    /// The folder of a package's files after [`Self::fetch`].
    pub(crate) fn place(self, package: &str) -> PathBuf {
        self.folder().join(package)
    }

    /// Downloads a package, and extracts the files that match `patterns` into the folder returned.
    ///
    /// Patterns are those of `tar --wildcards` and start at `./`.
    ///
    /// # Errors
    /// [`Error::Program`] or [`Error::Spawn`], if apt, dpkg or tar fails or is missing, or a
    /// pattern matches no file.
    pub(crate) fn fetch(self, package: &str, patterns: &[&str]) -> Result<PathBuf, Error> {
        let folder = self.place(package);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let apt = Apt::new(self)?;
        cargo::output(apt.get().args(["download", package]).current_dir(&folder))?;
        let found = fs::read_dir(&folder).map_err(Error::file(&folder))?.flatten().map(|entry| entry.path());
        let archive = found.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).last();
        let archive = archive.ok_or_else(|| Error::NoPackage(package.to_owned()))?;
        let failed = |source| Error::Spawn { program: "dpkg-deb".to_owned(), source };
        let mut unpack = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(&archive)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut take = Command::new("tar");
        take.args(["--extract", "--wildcards"]).args(patterns).current_dir(&folder);
        take.stdin(unpack.stdout.take().map_or_else(Stdio::null, Stdio::from));
        cargo::status(&mut take)?;
        unpack.wait().map_err(failed)?;
        fs::remove_file(&archive).map_err(Error::file(&archive))?;
        Ok(folder)
    }

    /// Downloads a package and all that it depends on, and extracts them into the folder returned.
    ///
    /// A package that is there already is not downloaded again.
    ///
    /// # Errors
    /// As [`Archive::fetch`].
    pub(crate) fn fetch_all(self, package: &str) -> Result<PathBuf, Error> {
        let folder = self.place(package);
        let done = folder.join("extracted");
        if done.exists() {
            return Ok(folder);
        }
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let apt = Apt::new(self)?;
        let downloads = ["install", "--yes", "--download-only", "--no-install-recommends", package];
        cargo::output(apt.get().args(downloads))?;
        let archives = apt.folder.join("cache/archives");
        let found = fs::read_dir(&archives).map_err(Error::file(&archives))?.flatten().map(|entry| entry.path());
        for archive in found.filter(|path| path.extension().is_some_and(|extension| extension == "deb")) {
            cargo::status(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&folder))?;
            fs::remove_file(&archive).map_err(Error::file(&archive))?;
        }
        fs::write(&done, "").map_err(Error::file(&done))?;
        Ok(folder)
    }

    /// The dependency of `package` whose name starts with `prefix`.
    ///
    /// It resolves a metapackage, such as that of the newest kernel.
    ///
    /// # Errors
    /// As [`Archive::fetch`], and [`Error::NoPackage`] without such a dependency.
    pub(crate) fn dependency(self, package: &str, prefix: &str) -> Result<String, Error> {
        let apt = Apt::new(self)?;
        let printed = cargo::output(apt.command("apt-cache").args(["depends", package]))?;
        let printed = String::from_utf8_lossy(&printed);
        let mut names = printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let name = names.find(|name| name.starts_with(prefix));
        name.map(str::to_owned).ok_or_else(|| Error::NoPackage(package.to_owned()))
    }
}

/// apt with its own lists, which are up to date.
struct Apt {
    architecture: String,
    folder: PathBuf,
    /// The list of sources, unless the system's is used.
    sources: Option<PathBuf>,
}

impl Apt {
    fn new(archive: Archive<'_>) -> Result<Self, Error> {
        let folder = archive.folder().join("apt");
        let sources = archive.suite.map(|_| folder.join("sources.list"));
        let apt = Self { architecture: archive.architecture.to_owned(), folder, sources };
        if !apt.folder.exists() {
            for part in ["lists/partial", "cache/archives/partial"] {
                let part = apt.folder.join(part);
                fs::create_dir_all(&part).map_err(Error::file(&part))?;
            }
            let status = apt.folder.join("status");
            fs::write(&status, "").map_err(Error::file(&status))?;
            if let Some((suite, sources)) = archive.suite.zip(apt.sources.as_ref()) {
                let line = format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n");
                fs::write(sources, line).map_err(Error::file(sources))?;
            }
            if let Err(error) = cargo::output(apt.get().arg("update")) {
                // The next run must not take incomplete lists for complete ones.
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
        if let Some(sources) = &self.sources {
            set("Dir::Etc::sourcelist", sources);
            set("Dir::Etc::sourceparts", Path::new("-"));
        }
        if program == "apt-get" {
            command.arg("--quiet=2");
        }
        command
    }
}
