//! The names of the machine, which `uname` returns and programs may change (`struct new_utsname`).

use crate::errno::Errno;
use alloc::string::String;
use alloc::vec::Vec;
use spin::Mutex;

/// The greatest length in bytes (`__NEW_UTS_LEN`).
pub(crate) const LEN_MAX: usize = 64;

/// A name of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemName {
    /// `sethostname`, `/proc/sys/kernel/hostname`.
    Host,
    /// `setdomainname`, `/proc/sys/kernel/domainname`.
    Domain,
}

/// The names that programs set.
static NAMES: Mutex<[Option<Vec<u8>>; 2]> = Mutex::new([const { None }; 2]);

impl SystemName {
    /// The name.
    pub(crate) fn get(self) -> Vec<u8> {
        let at_boot: &[u8] = match self {
            Self::Host => b"pagewright",
            Self::Domain => b"(none)",
        };
        NAMES.lock()[self as usize].clone().unwrap_or_else(|| at_boot.into())
    }

    /// Sets the name.
    ///
    /// # Errors
    /// `EINVAL` if it is too long.
    pub(crate) fn set(self, name: &[u8]) -> Result<(), Errno> {
        if name.len() > LEN_MAX {
            return Err(Errno::EINVAL);
        }
        NAMES.lock()[self as usize] = Some(name.into());
        Ok(())
    }

    /// The text of its file.
    pub(crate) fn show(self) -> String {
        let mut text = String::from_utf8_lossy(&self.get()).into_owned();
        text.push('\n');
        text
    }

    /// Replaces the name from `start` on by the line that a program wrote there to its file.
    ///
    /// The name is cut if it is too long.
    /// A write after the end of the name has no effect (`_proc_do_string`).
    pub(crate) fn store(self, start: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut name = self.get();
        let Some(start) = usize::try_from(start).ok().filter(|start| *start <= name.len()) else { return Ok(()) };
        let line = bytes.split(|byte| matches!(byte, 0 | b'\n')).next().unwrap_or_default();
        name.truncate(start);
        name.extend(&line[..line.len().min(LEN_MAX - start)]);
        self.set(&name)
    }
}
