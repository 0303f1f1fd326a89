//! Accesses, and the rights of a mapping.

use core::fmt;

bitflags::bitflags! {
    /// The rights of a mapping, with the values of `mmap(2)`'s `PROT_*` bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u8 {
        /// Loads.
        const READ = 1;
        /// Stores; both instruction sets also allow loads then.
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

    /// The rights that leaves of a mapping have: a page with any right can be read.
    #[inline]
    pub const fn readable(self) -> Self {
        if self.is_empty() { self } else { self.union(Self::READ) }
    }

    /// Whether these rights allow an access.
    #[inline]
    pub const fn allow(self, access: Access) -> bool {
        self.contains(access.needs())
    }
}

impl fmt::Display for Rights {
    /// As in `/proc/PID/maps`, without the letter for sharing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in [(Self::READ, "r"), (Self::WRITE, "w"), (Self::EXEC, "x")] {
            f.write_str(if self.contains(bit) { letter } else { "-" })?;
        }
        Ok(())
    }
}

/// The kind of a memory access.
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
    /// The right that the access needs.
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
