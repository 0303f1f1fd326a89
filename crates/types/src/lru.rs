//! The lists from which reclaim takes folios.

crate::named_table! {
    /// One of a node's LRU lists (`enum lru_list`), with the name of its size in `/proc/vmstat`.
    pub enum LruList {
        InactiveAnon = "nr_inactive_anon", "Inactive anonymous and shared memory.";
        ActiveAnon = "nr_active_anon", "Active anonymous and shared memory.";
        InactiveFile = "nr_inactive_file", "Inactive file pages, and anonymous pages that `MADV_FREE` marked.";
        ActiveFile = "nr_active_file", "Active file pages.";
        Unevictable = "nr_unevictable", "Pages that a locked mapping maps.";
    }
}
