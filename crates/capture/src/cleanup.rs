//! Cleanup actions, which run even if the program is interrupted.
//!
//! A [`Cleanup`] runs its action when it is dropped. [`exit`] runs all pending actions and ends the
//! program; the program's signal handler calls it. This library installs no handler itself.
//! [`ScratchDir`] is a temporary folder that is removed in this way.
//!
//! Not guaranteed: anything after SIGKILL. Temporary folders then remain in the system's folder for
//! temporary files, and an incomplete output file remains beside its final name, with the extension
//! `.part`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Action = Box<dyn FnOnce() + Send>;

/// The pending actions.
struct Pending {
    last_key: u64,
    /// By key, so from the oldest to the newest.
    actions: BTreeMap<u64, Action>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { last_key: 0, actions: BTreeMap::new() });

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An action that runs when this value is dropped, or on [`exit`].
#[derive(Debug)]
#[must_use = "the action runs when this is dropped"]
pub struct Cleanup(u64);

impl Cleanup {
    /// Registers `action`.
    ///
    /// The action runs under a lock, so it must not create, cancel or drop a `Cleanup`.
    pub fn new(action: impl FnOnce() + Send + 'static) -> Self {
        let mut pending = pending();
        pending.last_key += 1;
        let key = pending.last_key;
        pending.actions.insert(key, Box::new(action));
        Self(key)
    }

    /// Removes the action without running it.
    pub fn cancel(self) {
        pending().actions.remove(&self.0);
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // The action runs under the lock, so that `exit` cannot end the program during it.
        let mut pending = pending();
        if let Some(action) = pending.actions.remove(&self.0) {
            action();
        }
    }
}

/// Runs all pending actions, the newest first, and ends the program with `status`.
///
/// No action can be registered meanwhile.
pub fn exit(status: i32) -> ! {
    let mut pending = pending();
    while let Some((_, action)) = pending.actions.pop_last() {
        action();
    }
    std::process::exit(status)
}

/// A private folder in the system's folder for temporary files, removed when this value is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    _removal: Cleanup,
}

impl ScratchDir {
    /// Creates a folder whose name contains `purpose`.
    ///
    /// # Errors
    /// The path of the folder, and the error of creating it.
    pub fn new(purpose: &str) -> Result<Self, (PathBuf, io::Error)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pagewright-{purpose}-{}-{number}", std::process::id()));
        let folder = path.clone();
        let removal = Cleanup::new(move || remove(&folder));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self { path, _removal: removal }),
            Err(source) => {
                removal.cancel();
                Err((path, source))
            }
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file `name` in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Removes a folder.
///
/// An interrupted thread may create a file in it meanwhile, so the removal is repeated if it fails.
fn remove(folder: &Path) {
    const TRIES: usize = 10;
    let is_removed = |_: &usize| match fs::remove_dir_all(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    // A final error cannot be reported any more.
    let _ = (0..TRIES).find(is_removed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn an_action_runs_once_or_is_cancelled() {
        let runs = Arc::new(AtomicUsize::new(0));
        let cleanup = |runs: &Arc<AtomicUsize>| {
            let runs = Arc::clone(runs);
            Cleanup::new(move || {
                runs.fetch_add(1, Ordering::Relaxed);
            })
        };
        drop(cleanup(&runs));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        cleanup(&runs).cancel();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_scratch_folder_has_its_own_path_and_is_removed_with_its_files() {
        let [one, two] = ["one", "two"].map(|_| ScratchDir::new("cleanup").expect("there is room"));
        fs::write(one.file("file"), b"something").expect("it can be written");
        assert_ne!(one.path(), two.path());
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }
}
