//! What must be undone although the program is interrupted: folders and files that nobody wants go,
//! programs that nobody waits for end.
//!
//! Key types: [`Cleanup`], which undoes when it is dropped or when [`end`] is called, whatever
//! comes first; [`ScratchDir`], a folder that goes so. The program calls [`end`] when it is told to
//! stop; a library that is used by another program sets no handlers.
//!
//! Not guaranteed: anything after SIGKILL. What is left then lies in the system's folder for such
//! things, or beside the file that was to be written, with `.part` at its end.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Deed = Box<dyn FnOnce() + Send>;

/// What is to be undone, oldest first.
struct Open {
    next: u64,
    deeds: BTreeMap<u64, Deed>,
}

static OPEN: Mutex<Open> = Mutex::new(Open { next: 0, deeds: BTreeMap::new() });

fn open() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that will be undone, once.
#[derive(Debug)]
#[must_use = "it is undone when this is dropped"]
pub struct Cleanup(u64);

impl Cleanup {
    /// Undoes by `deed`, which must not wait for anybody else who undoes.
    pub fn new(deed: impl FnOnce() + Send + 'static) -> Self {
        let mut open = open();
        open.next += 1;
        let key = open.next;
        open.deeds.insert(key, Box::new(deed));
        Self(key)
    }

    /// There is nothing to undo any more.
    pub fn cancel(self) {
        open().deeds.remove(&self.0);
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // Under the lock: else the program could end in the middle of it.
        let mut open = open();
        if let Some(deed) = open.deeds.remove(&self.0) {
            deed();
        }
    }
}

/// Undoes everything, latest first, and ends the program with `status`.
///
/// Nobody begins anything meanwhile that would have to be undone.
pub fn exit(status: i32) -> ! {
    let mut open = open();
    while let Some((_, deed)) = open.deeds.pop_last() {
        deed();
    }
    std::process::exit(status)
}

/// A private folder in the system's place for such things, gone with the value.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    _gone: Cleanup,
}

impl ScratchDir {
    /// A new one; `purpose` is part of its name.
    ///
    /// # Errors
    /// Its path, and why it can't be made.
    pub fn new(purpose: &str) -> Result<Self, (PathBuf, io::Error)> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pagewright-{purpose}-{}-{number}", std::process::id()));
        let folder = path.clone();
        let gone = Cleanup::new(move || remove(&folder));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self { path, _gone: gone }),
            Err(source) => {
                gone.cancel();
                Err((path, source))
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Takes a folder away.
///
/// Who is interrupted may be about to make a file in it, so it is tried again.
fn remove(folder: &Path) {
    const TRIES: usize = 10;
    let gone = |_: &usize| match fs::remove_dir_all(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    // What is left then is left: there is nobody to tell.
    let _ = (0..TRIES).find(gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn it_is_undone_once_or_not_at_all() {
        let undone = Arc::new(AtomicUsize::new(0));
        let deed = |undone: &Arc<AtomicUsize>| {
            let undone = Arc::clone(undone);
            Cleanup::new(move || {
                undone.fetch_add(1, Ordering::Relaxed);
            })
        };
        drop(deed(&undone));
        assert_eq!(undone.load(Ordering::Relaxed), 1);
        deed(&undone).cancel();
        assert_eq!(undone.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_folder_goes_with_what_is_in_it_and_two_are_two() {
        let [one, two] = ["one", "two"].map(|_| ScratchDir::new("undo").expect("there is room"));
        fs::write(one.file("file"), b"something").expect("it can be written");
        assert_ne!(one.path(), two.path());
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }
}
