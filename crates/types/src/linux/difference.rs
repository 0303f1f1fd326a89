//! Where answers are meant to differ from Linux's.

crate::named_table! {
    /// A difference that is meant, with its reason.
    pub enum Difference {
        FailedMove = "a failed mremap to a fixed address", "Linux unmaps the destination, and the end of a source that shrinks, before it looks whether the move is possible; here nothing has changed.";
        KeptApart = "neighbours with pages of their own", "Linux keeps mappings apart whose pages were made under different anon_vmas. The reverse map here is by spaces, so they become one; a later mremap over both succeeds.";
        StackFlag = "neighbours of which one has MAP_STACK", "Linux marks it as not for huge pages and keeps it apart; there are no huge pages here.";
        FailedMapCuts = "a failed mmap over a mapping", "Linux has cut the mapping by then, and leaves it cut; here nothing has changed.";
        ChargedPart = "a mapping that was writable in a child", "What loses the right to write is no longer charged if it has no pages of its own. What is one mapping here can be two on Linux, of which only one has pages, so more stays charged here, and apart from its neighbours.";
        MovedCopies = "a private mapping of a file that was moved", "Its own pages are known by the address at which the first was made, so it does not become one with a neighbour that has none. Linux knows them by the file's offset and joins the two.";
        FetchBringsIn = "a fetch from a page that is not there", "Linux on x86-64 brings the page in before the processor refuses to execute it; here, as on arm64, the right is asked for first.";
        PagedOut = "MADV_PAGEOUT of shared memory", "Linux drops pages to which nobody ever stored, and takes away the entries of the others even if there is no swap. Here all of them go to swap, and stay as they are without.";
        Allocated = "mincore of pages that were only allocated", "Linux fills what fallocate made when it is touched, and calls it not resident until then; here it is filled at once.";
        ForkCopies = "entries that fork copies", "Both copy the entries of mappings that have pages of their own. Where two of Linux's are one here, entries of the zero page are copied with the others, and mincore in the child finds them. Of shared memory with guards, Linux copies pages, too, and not the guards alone.";
        LockStays = "locked memory that was moved with MREMAP_DONTUNMAP", "Linux takes the old place's lock away and goes on counting it against RLIMIT_MEMLOCK; here what is counted is what is locked.";
        UsedByCalls = "pages that a call used", "Linux marks the page when it is faulted in for a call (mlock, MAP_POPULATE, vmsplice), and a page of a file when a mapping goes that used it; smaps calls it referenced where no access is. MADV_COLD takes such marks away. Here entries tell, MADV_FREE, and reads of files.";
        PastEnd = "a read past the end of a file", "Linux maps what the file has around it before it sends SIGBUS; here nothing has changed.";
        DirtyAtOnce = "smaps of shared memory that was stored to", "Linux learns from the entry through which a page was stored to when that entry goes, and until then calls the page clean under every other. Here the page is marked when it is first stored to.";
        AdviceFirst = "unknown advice about bad ranges", "process_madvise of Linux looks at the ranges first; advice is a type here, and is looked at before the call.";
    }
}
