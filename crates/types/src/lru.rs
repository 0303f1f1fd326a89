//! Names of the lists from which reclaim chooses.

/// One of a node's lists of folios by use (`enum lru_list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LruList {
    /// Anonymous and shared memory that was not used lately.
    InactiveAnon,
    /// Anonymous and shared memory in use.
    ActiveAnon,
    /// Pages of files, and anonymous ones whose contents may go, that were not used lately.
    InactiveFile,
    /// Pages of files in use.
    ActiveFile,
    /// What some mapping has locked.
    Unevictable,
}

impl LruList {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile, Self::Unevictable];

    /// What `/proc/vmstat` calls its size.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InactiveAnon => "nr_inactive_anon",
            Self::ActiveAnon => "nr_active_anon",
            Self::InactiveFile => "nr_inactive_file",
            Self::ActiveFile => "nr_active_file",
            Self::Unevictable => "nr_unevictable",
        }
    }
}
