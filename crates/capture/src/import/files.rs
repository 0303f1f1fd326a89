//! The files of a trace, and the descriptors of a process.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::nr;
use super::parser::Syscall;
use crate::trace::{CapturedFile, FileId};

/// `AT_FDCWD`, −100, which valgrind prints as an unsigned number of 32 bits.
const AT_FDCWD: u64 = 0xffff_ff9c;
const O_CLOEXEC: u64 = 0o2_000_000;
const MFD_CLOEXEC: u64 = 1;
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const FD_CLOEXEC: u64 = 1;

/// The files of a trace; two paths of one file have one number.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    by_name: HashMap<PathBuf, FileId>,
    by_path: HashMap<PathBuf, FileId>,
}

impl FileTable {
    /// Returns the number of a file, and its description if the file is new.
    pub(super) fn intern(&mut self, name: &Path) -> (FileId, Option<CapturedFile>) {
        if let Some(&id) = self.by_name.get(name) {
            return (id, None);
        }
        let path = fs::canonicalize(name).unwrap_or_else(|_| name.to_owned());
        let next = FileId(self.by_path.len() as u32 + 1);
        let id = *self.by_path.entry(path.clone()).or_insert(next);
        self.by_name.insert(name.to_owned(), id);
        let size = fs::metadata(&path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len());
        (id, (id == next).then(|| CapturedFile { id, path: path.to_string_lossy().into_owned(), size }))
    }
}

#[derive(Clone, Debug)]
struct Descriptor {
    path: PathBuf,
    close_on_exec: bool,
}

/// The open files of a process that have paths, and its working directory.
#[derive(Clone, Debug)]
pub(super) struct Descriptors {
    open: HashMap<u64, Descriptor>,
    directory: PathBuf,
    /// Number of memfds so far.
    memfds: u32,
}

impl Descriptors {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { open: HashMap::new(), directory, memfds: 0 }
    }

    /// The path of an open file; `[unknown]` for a descriptor that the log does not open.
    pub(super) fn path(&self, fd: u64) -> PathBuf {
        self.open.get(&fd).map_or_else(|| PathBuf::from("[unknown]"), |descriptor| descriptor.path.clone())
    }

    /// A path relative to the working directory of the process.
    pub(super) fn resolve(&self, path: &[u8]) -> PathBuf {
        self.directory.join(String::from_utf8_lossy(path).as_ref())
    }

    /// Closes the descriptors that `execve` closes.
    pub(super) fn exec(&mut self) {
        self.open.retain(|_, descriptor| !descriptor.close_on_exec);
    }

    /// Applies a call that succeeded with `result`.
    pub(super) fn apply(&mut self, call: &Syscall, result: u64) {
        let text = |at: usize| call.args.get(at).and_then(|arg| arg.text.as_deref());
        match call.number {
            nr::OPEN | nr::CREAT => {
                if let Some(path) = text(0) {
                    let path = self.resolve(path);
                    self.insert(result, path, call.number == nr::OPEN && call.arg(1) & O_CLOEXEC != 0);
                }
            }
            nr::OPENAT => {
                if let Some(path) = text(1) {
                    let base = if call.arg(0) == AT_FDCWD { self.directory.clone() } else { self.path(call.arg(0)) };
                    let path = base.join(String::from_utf8_lossy(path).as_ref());
                    self.insert(result, path, call.arg(2) & O_CLOEXEC != 0);
                }
            }
            nr::MEMFD_CREATE => {
                // Two memfds are different files, even if their names are the same.
                self.memfds += 1;
                let name = String::from_utf8_lossy(text(0).unwrap_or_default()).into_owned();
                let path = PathBuf::from(format!("[memfd:{name}:{}]", self.memfds));
                self.insert(result, path, call.arg(1) & MFD_CLOEXEC != 0);
            }
            nr::CLOSE => {
                self.open.remove(&call.arg(0));
            }
            nr::DUP | nr::DUP2 => self.duplicate(call.arg(0), result, false),
            nr::DUP3 => self.duplicate(call.arg(0), result, call.arg(2) & O_CLOEXEC != 0),
            nr::FCNTL => match call.arg(1) {
                F_DUPFD => self.duplicate(call.arg(0), result, false),
                F_DUPFD_CLOEXEC => self.duplicate(call.arg(0), result, true),
                F_SETFD => {
                    if let Some(descriptor) = self.open.get_mut(&call.arg(0)) {
                        descriptor.close_on_exec = call.arg(2) & FD_CLOEXEC != 0;
                    }
                }
                _ => {}
            },
            nr::CHDIR => {
                if let Some(path) = text(0) {
                    self.directory = self.resolve(path);
                }
            }
            nr::FCHDIR => self.directory = self.path(call.arg(0)),
            _ => {}
        }
    }

    fn insert(&mut self, fd: u64, path: PathBuf, close_on_exec: bool) {
        self.open.insert(fd, Descriptor { path, close_on_exec });
    }

    fn duplicate(&mut self, from: u64, to: u64, close_on_exec: bool) {
        match self.open.get(&from) {
            _ if from == to => {}
            Some(descriptor) => {
                let path = descriptor.path.clone();
                self.insert(to, path, close_on_exec);
            }
            // The descriptor is now a pipe or a socket.
            None => {
                self.open.remove(&to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::parser::{Arg, CallOutcome};

    fn call(number: u32, args: &[(u64, Option<&str>)]) -> Syscall {
        let args = args.iter().map(|&(value, text)| Arg { value, text: text.map(|text| text.as_bytes().to_vec()) });
        Syscall { slot: 1, number, args: args.collect(), outcome: CallOutcome::NotPrinted }
    }

    #[test]
    fn open_dup_chdir_and_exec_change_the_descriptors() {
        let mut fds = Descriptors::new("/home".into());
        fds.apply(&call(nr::OPENAT, &[(AT_FDCWD, None), (1, Some("a")), (O_CLOEXEC, None)]), 3);
        fds.apply(&call(nr::OPENAT, &[(AT_FDCWD, None), (1, Some("/b")), (0, None)]), 4);
        fds.apply(&call(nr::OPENAT, &[(4, None), (1, Some("c")), (0, None)]), 5);
        fds.apply(&call(nr::DUP2, &[(3, None), (9, None)]), 9);
        fds.apply(&call(nr::CHDIR, &[(1, Some("/etc"))]), 0);
        assert_eq!(fds.path(3), Path::new("/home/a"));
        assert_eq!(fds.path(5), Path::new("/b/c"));
        assert_eq!(fds.resolve(b"x"), Path::new("/etc/x"));
        fds.exec();
        assert_eq!(fds.path(3), Path::new("[unknown]"), "close-on-exec");
        assert_eq!(fds.path(9), Path::new("/home/a"), "dup2 clears close-on-exec");
        fds.apply(&call(nr::CLOSE, &[(9, None)]), 0);
        assert_eq!(fds.path(9), Path::new("[unknown]"));
    }

    #[test]
    fn two_paths_of_a_file_have_one_number() {
        let mut table = FileTable::default();
        let (id, info) = table.intern(Path::new("/usr/../usr"));
        assert_eq!(info.unwrap().path, "/usr");
        assert_eq!(table.intern(Path::new("/usr")), (id, None), "links and dots are resolved");
        assert_eq!(table.intern(Path::new("/no/such/file")).1.unwrap().size, None);
    }
}
