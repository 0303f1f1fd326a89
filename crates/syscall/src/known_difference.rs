//! Where the results of calls differ from Linux's on purpose.

pagewright_types::named_table! {
    /// A difference from Linux that is intended, with its reason.
    pub enum KnownDifference {
        FailedMove = "a failed mremap to a fixed address", "Linux unmaps the destination, and the end of a source that shrinks, before it checks whether the move is possible. Here a failed call changes nothing.";
        KeptApart = "neighbours with pages of their own", "Linux keeps mappings apart whose pages belong to different anon_vmas. The reverse map here is by address space, so such neighbours merge unless fork separates them, and a later mremap across both succeeds.";
        FailedMapCuts = "a failed mmap over a mapping", "Linux has split the mapping by then and leaves it split. Here a failed call changes nothing.";
        MovedCopies = "a private mapping of a file that was moved", "Its private copies are indexed by the address at which the first was made, so the mapping does not merge with a neighbour that has none. Linux indexes them by file offset and merges the two.";
        FetchBringsIn = "a fetch from a page that is not present", "Linux on x86-64 faults the page in before the processor refuses to execute it. Here, as on arm64, the right to execute is checked first.";
        PagedOut = "MADV_PAGEOUT of shared memory", "Linux drops pages that were never written, and unmaps the others even if there is no swap. Here all of them go to swap, and without swap they stay mapped.";
        Allocated = "mincore of pages that were only allocated", "Linux fills a page that fallocate allocated when it is first touched, and until then reports it as not resident. Here it is filled at once.";
        ForkCopies = "entries that fork copies", "Both copy the entries of mappings that have pages of their own. Where two mappings of Linux are one here, entries of the zero page are copied too, and mincore in the child reports them. Of shared memory with guards, Linux copies every entry; here only the guards are copied.";
        SharedTables = "entries that a child shares", "Fork copies no entries of mappings whose pages a fault can find again. With shared page tables (cow_page_tables) the child has these entries too, so mincore, pagemap and RSS report their pages.";
        SplicedPage = "a page in a pipe, after a fork", "Linux's fork ends the exclusive use of every page, so the next store of the parent copies a page that a pipe holds, even after the child has ended. With shared page tables (cow_page_tables) the parent then has its tables back as they were, and the store changes the page in the pipe, as it does without a fork.";
        SplitZeroes = "pages of zeroes of a huge page that is split", "MADV_FREE, MADV_COLD or MADV_PAGEOUT of a part splits the page. Linux then maps the page of zeroes in place of those that have only zeroes, and frees the rest of a part that was mapped by page. Here the pages stay.";
        EmptiedTables = "page tables that MADV_DONTNEED empties", "Linux frees such a table if the range covers all of it (CONFIG_PT_RECLAIM, since 6.14), and a later fault may map a huge page there. Here the table stays until its memory is unmapped, and later faults map single pages. The tables of what a mremap to a fixed address replaces stay, too.";
        LockStays = "locked memory that was moved with MREMAP_DONTUNMAP", "Linux unlocks the old range and continues to count it against RLIMIT_MEMLOCK. Here exactly the locked memory is counted.";
        UsedByCalls = "pages that a call used", "Linux marks a page referenced when a call faults it in (mlock, MAP_POPULATE, vmsplice), and a file page when a mapping that accessed it is removed; smaps then reports it as referenced although no entry was accessed. MADV_COLD clears these marks. Here a page counts as referenced by its entries, MADV_FREE, and reads of its file.";
        PastEnd = "a read past the end of a file", "Linux maps the surrounding pages of the file before it sends SIGBUS. Here nothing changes.";
        DirtyAtOnce = "stores to shared memory, and smaps of it", "Linux marks a page dirty when the entry through which it was written is removed, and until then reports the page as clean under every other entry. Here the first store marks the page, so it faults; Linux maps a page writable when it is read.";
        AdviceFirst = "unknown advice about bad ranges", "process_madvise of Linux checks the ranges first. Here advice is a type, so it is checked before the call.";
    }
}
