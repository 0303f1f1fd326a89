//! What an access wants and what a mapping allows.

use core::fmt;

bitflags::bitflags! {
    /// What a mapping allows; the `PROT_*` bits of `mmap(2)` with the same values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        ///
        /// On both instruction sets a writable page is readable.
        const WRITE = 2;
        /// Instruction fetches.
        const EXEC = 4;
    }
}

impl Rights {
    /// Reading and writing.
    pub const RW: Self = Self::READ.union(Self::WRITE);
    /// Reading and executing.
    pub const RX: Self = Self::READ.union(Self::EXEC);

    /// Whether an access of this kind is allowed.
    #[inline]
    pub const fn allow(self, access: Access) -> bool {
        self.contains(access.needs())
    }
}

impl fmt::Display for Rights {
    /// As the second column of `/proc/PID/maps` has it, without the sharing letter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in [(Self::READ, "r"), (Self::WRITE, "w"), (Self::EXEC, "x")] {
            f.write_str(if self.contains(bit) { letter } else { "-" })?;
        }
        Ok(())
    }
}

/// One access of a program to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or a read-modify-write.
    Write,
    /// An instruction fetch.
    Exec,
}

impl Access {
    /// The right without which the access faults.
    #[inline]
    pub const fn needs(self) -> Rights {
        match self {
            Self::Read => Rights::READ,
            Self::Write => Rights::WRITE,
            Self::Exec => Rights::EXEC,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Exec => "execute",
        })
    }
}
