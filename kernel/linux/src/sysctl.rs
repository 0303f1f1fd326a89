//! Settings of the kernel outside the memory manager that programs change below `/proc/sys`.
//!
//! Not guaranteed: the other settings of Linux. Those that are constants here are text
//! ([`crate::machine_files`]).

use crate::errno::Errno;
use crate::shm;
use crate::system_name::SystemName;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::Ordering;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sysctl {
    Name(SystemName),
    /// The most bytes of a new segment of System V shared memory (`shm_ctlmax`).
    ShmMax,
}

impl Sysctl {
    /// All settings, with the paths of their files.
    pub(crate) const FILES: [(&str, Self); 3] = [
        ("/proc/sys/kernel/hostname", Self::Name(SystemName::Host)),
        ("/proc/sys/kernel/domainname", Self::Name(SystemName::Domain)),
        ("/proc/sys/kernel/shmmax", Self::ShmMax),
    ];

    /// The text of its file.
    pub(crate) fn show(self) -> String {
        match self {
            Self::Name(name) => name.show(),
            Self::ShmMax => format!("{}\n", shm::size_limit()),
        }
    }

    /// Changes it as a write of `bytes` at `start` of its file does.
    ///
    /// A number is written at the start of the file; other writes have no effect
    /// (`proc_first_pos_non_zero_ignore`).
    ///
    /// # Errors
    /// `EINVAL` for what is no number.
    pub(crate) fn store(self, start: u64, bytes: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Name(name) => name.store(start, bytes),
            Self::ShmMax if start > 0 => Ok(()),
            Self::ShmMax => {
                let number = core::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok());
                shm::SIZE_LIMIT.store(number.ok_or(Errno::EINVAL)?, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}
