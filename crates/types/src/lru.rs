//! The lists from which reclaim takes folios.

/// One of a node's LRU lists (`enum lru_list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LruList {
    /// Inactive anonymous and shared memory.
    InactiveAnon,
    /// Active anonymous and shared memory.
    ActiveAnon,
    /// Inactive file pages, and anonymous pages that `MADV_FREE` marked.
    InactiveFile,
    /// Active file pages.
    ActiveFile,
    /// Pages that a locked mapping maps.
    Unevictable,
}

impl LruList {
    /// All lists.
    pub const ALL: [Self; 5] =
        [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile, Self::Unevictable];

    /// The name of its size in `/proc/vmstat`.
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
