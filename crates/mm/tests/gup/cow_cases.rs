//! The cases of Linux's `cow` selftest on anonymous memory, whatever maps it.
//!
//! [`cow_cases`] makes a test of each case. A module that uses it brings a function `on_each`,
//! which runs a case on each [`Memory`] of the module: `gup/cow.rs` on pages of their own,
//! `thp/cow.rs` on pages of large folios. Every case acts on all pages of its memory, as the
//! selftest does.
//!
//! | `cow.c` | test |
//! | --- | --- |
//! | "Basic COW after fork()" | `basic_cow_after_fork` |
//! | "… with mprotect() optimization" | `basic_cow_after_mprotect` |
//! | "vmsplice() + unmap in child" | `vmsplice_and_unmap_in_the_child` |
//! | "… with mprotect() optimization" | `vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent` |
//! | "vmsplice() before fork(), unmap in parent after fork()" | `vmsplice_before_fork_and_unmap_in_the_parent` |
//! | "vmsplice() + unmap in parent after fork()" | `vmsplice_after_fork_and_unmap_in_the_parent` |
//! | "R/O-mapping a page registered as iouring fixed buffer" | `fixed_buffer_mapped_read_only` |
//! | "fork() with an iouring fixed buffer" | `fork_with_a_fixed_buffer` |
//! | "R/O GUP pin on R/O-mapped shared page", and "R/O GUP-fast pin …" | `read_only_pin_of_a_shared_page`, `read_only_fast_pin_of_a_shared_page` |
//! | "… on R/O-mapped previously-shared page", both | `read_only_pin_of_a_previously_shared_page`, `read_only_fast_pin_of_a_previously_shared_page` |
//! | "… on R/O-mapped exclusive page", both | `read_only_pin_of_an_exclusive_page`, `read_only_fast_pin_of_an_exclusive_page` |
//!
//! `vmsplice` leaves plain references in a pipe; here they are references for reading. A fixed
//! buffer of `io_uring` is a longterm pin for writing. As in the selftest, an exclusive page is
//! mapped read-only by removing the right to write, clearing the soft-dirty bits, and granting the
//! right again, which then leaves the entry read-only.

use pagewright_arch::Isa;
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestDevice, TestProcess, at, recount};
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_table::LeafView;
use pagewright_types::{Counter, Rights, VirtAddr};

/// Makes a test of each case, which `on_each` of the module that uses it runs.
macro_rules! cow_cases {
    () => {
        use crate::gup::cow_cases::{FAST_PIN, Memory, PIN, ReadOnly};
        pagewright_arch::on_both! {
            basic_cow_after_fork: on_each(&|memory: Memory<I>| memory.basic_cow(false)),
            basic_cow_after_mprotect: on_each(&|memory: Memory<I>| memory.basic_cow(true)),
            vmsplice_and_unmap_in_the_child: on_each(&|memory: Memory<I>| memory.vmsplice_in_child(false)),
            vmsplice_and_unmap_in_the_child_after_mprotect_of_the_parent: on_each(&|memory: Memory<I>| memory.vmsplice_in_child(true)),
            vmsplice_before_fork_and_unmap_in_the_parent: on_each(&|memory: Memory<I>| memory.vmsplice_in_parent(true)),
            vmsplice_after_fork_and_unmap_in_the_parent: on_each(&|memory: Memory<I>| memory.vmsplice_in_parent(false)),
            fixed_buffer_mapped_read_only: on_each(&|memory: Memory<I>| memory.fixed_buffer(false)),
            fork_with_a_fixed_buffer: on_each(&|memory: Memory<I>| memory.fixed_buffer(true)),
            read_only_pin_of_a_shared_page: on_each(&|memory: Memory<I>| memory.read_pin(&ReadOnly::Shared, PIN)),
            read_only_fast_pin_of_a_shared_page: on_each(&|memory: Memory<I>| memory.read_pin(&ReadOnly::Shared, FAST_PIN)),
            read_only_pin_of_a_previously_shared_page: on_each(&|memory: Memory<I>| memory.read_pin(&ReadOnly::PreviouslyShared, PIN)),
            read_only_fast_pin_of_a_previously_shared_page: on_each(&|memory: Memory<I>| memory.read_pin(&ReadOnly::PreviouslyShared, FAST_PIN)),
            read_only_pin_of_an_exclusive_page: on_each(&|memory: Memory<I>| memory.read_pin(&ReadOnly::Exclusive, PIN)),
            read_only_fast_pin_of_an_exclusive_page: on_each(&|memory: Memory<I>| memory.read_pin(&ReadOnly::Exclusive, FAST_PIN)),
        }
    };
}
pub(crate) use cow_cases;

/// A longterm pin for reading.
pub(crate) const PIN: GupCall = GupCall::Pin(GupFlags::LONGTERM);
/// The same by the lockless walk.
pub(crate) const FAST_PIN: GupCall = GupCall::PinFast(GupFlags::LONGTERM);
const BUFFER: GupCall = GupCall::PinFast(GupFlags::WRITE.union(GupFlags::LONGTERM));
const SPLICE: GupCall = GupCall::Get(GupFlags::empty());
/// What page 0 has before a case stores to it; page `n` has `n` more.
const OLD: u64 = 0x0101_0101;
/// What a case stores to page 0.
const NEW: u64 = 0xffff_ffff;

/// The two values of the setting `cow_page_tables` that need no `prctl`.
pub(crate) const SHARES: [&str; 2] = ["never", "always"];

/// The memory of a case, and the parent.
pub(crate) struct Memory<I: Isa> {
    pub(crate) parent: TestProcess<I>,
    pub(crate) base: VirtAddr,
    pub(crate) pages: u64,
    /// As many pages that follow these in the folio, and that no case touches.
    pub(crate) untouched: Option<VirtAddr>,
}

/// The history of memory that is mapped read-only when it is pinned (`enum ro_pin_test`).
pub(crate) enum ReadOnly {
    Shared,
    PreviouslyShared,
    Exclusive,
}

/// Makes the entries of pages read-only under a mapping that is writable.
fn map_read_only<I: Isa>(process: &TestProcess<I>, va: VirtAddr, pages: u64) {
    process.protect(va, pages, Rights::READ);
    process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
    process.protect(va, pages, Rights::RW);
}

fn is_writable(leaf: Option<LeafView>) -> bool {
    leaf.is_some_and(|leaf| leaf.rights().contains(Rights::WRITE))
}

impl<I: Isa> Memory<I> {
    /// The memory of `pages` pages that begins at `base`; fills it.
    pub(crate) fn new(parent: TestProcess<I>, base: VirtAddr, pages: u64) -> Self {
        let memory = Self { parent, base, pages, untouched: None };
        memory.store(&memory.parent, OLD);
        memory
    }

    /// Pages the memory out, of which no process has another part.
    pub(crate) fn swap_out(&self) {
        self.parent.world.swap_to(2 * self.pages as u32);
        self.parent.advise(self.base, self.pages, Advice::PageOut);
        assert_eq!(self.parent.space.rss().swapped(), self.pages);
    }

    fn store(&self, process: &TestProcess<I>, value: u64) {
        (0..self.pages).for_each(|page| process.write(CPU, at(self.base, page), value + page));
    }

    fn expect(&self, process: &TestProcess<I>, value: u64) {
        for page in 0..self.pages {
            assert_eq!(process.read(OTHER, at(self.base, page)), value + page, "page {page}");
        }
    }

    fn expect_by(&self, device: &TestDevice<I>, value: u64) {
        for page in 0..self.pages {
            assert_eq!(device.read(page as usize), value + page, "page {page} of the device");
        }
    }

    fn take(&self, process: &TestProcess<I>, call: GupCall) -> TestDevice<I> {
        let device = process.take(OTHER, self.base, self.pages, call).expect("memory");
        assert_eq!(device.pages.len() as u64, self.pages);
        device
    }

    fn leaves(&self) -> Vec<Option<LeafView>> {
        let leaf = |page| self.parent.world.on(CPU, |mm| recount::leaf(mm, &self.parent.space, at(self.base, page)));
        (0..self.pages).map(leaf).collect()
    }

    /// Ends the processes of the case, of which nothing is left.
    fn end(self, child: Option<TestProcess<I>>) {
        let processes: Vec<_> = [&self.parent].into_iter().chain(&child).collect();
        if let Some(base) = self.untouched {
            processes.iter().for_each(|process| {
                (0..self.pages).for_each(|page| assert_eq!(process.read(CPU, at(base, page)), OLD + self.pages + page));
            });
        }
        let world = &self.parent.world;
        world.recount(&processes);
        TestProcess::end_all_at_rest(&processes);
        world.assert_nothing_leaked();
        let (free, slots) = world.on(CPU, |mm| mm.swap_slots());
        assert_eq!(free, slots, "INV-SWAP-COUNT");
    }

    /// A pipe still shows what the memory had when it was spliced; then everything ends.
    fn end_with_the_old_contents(self, pipe: TestDevice<I>, child: TestProcess<I>) {
        self.expect_by(&pipe, OLD);
        pipe.release(MakeDirty::No);
        self.end(Some(child));
    }

    /// A child that shares the memory; with `mprotect`, the parent's entries are changed then.
    fn child(&self, mprotect: bool) -> TestProcess<I> {
        let child = self.parent.fork();
        if mprotect {
            self.parent.protect(self.base, self.pages, Rights::READ);
            self.parent.protect(self.base, self.pages, Rights::RW);
        }
        child
    }

    /// `child_memcmp_fn`.
    pub(crate) fn basic_cow(self, mprotect: bool) {
        let child = self.child(mprotect);
        self.store(&self.parent, NEW);
        self.expect(&child, OLD);
        self.expect(&self.parent, NEW);
        self.end(Some(child));
    }

    /// `child_vmsplice_memcmp_fn`: CVE-2020-29374.
    pub(crate) fn vmsplice_in_child(self, mprotect: bool) {
        let child = self.child(mprotect);
        let pipe = self.take(&child, SPLICE);
        child.unmap(self.base, self.pages);
        self.store(&self.parent, NEW);
        self.end_with_the_old_contents(pipe, child);
    }

    /// `do_test_vmsplice_in_parent`.
    pub(crate) fn vmsplice_in_parent(self, before_fork: bool) {
        let splice = || self.take(&self.parent, SPLICE);
        let early = before_fork.then(splice);
        let child = self.parent.fork();
        let pipe = early.unwrap_or_else(splice);
        self.parent.unmap(self.base, self.pages);
        self.store(&child, NEW);
        self.end_with_the_old_contents(pipe, child);
    }

    /// `do_test_iouring`.
    pub(crate) fn fixed_buffer(self, fork: bool) {
        let buffer = self.take(&self.parent, BUFFER);
        let child = fork.then(|| self.parent.fork());
        if !fork {
            map_read_only(&self.parent, self.base, self.pages);
        }
        self.agrees_after_store(&buffer, child.as_ref());
        buffer.release(MakeDirty::Yes);
        self.end(child);
    }

    /// `do_test_ro_pin`.
    pub(crate) fn read_pin(self, before: &ReadOnly, call: GupCall) {
        let initially = self.leaves();
        let child = match before {
            ReadOnly::Shared => Some(self.parent.fork()),
            ReadOnly::PreviouslyShared => {
                self.parent.fork().end();
                None
            }
            ReadOnly::Exclusive => {
                map_read_only(&self.parent, self.base, self.pages);
                None
            }
        };
        assert!(!self.leaves().into_iter().any(is_writable));
        let taken_back = self.parent.world.count(Counter::PwTableTakenBack);
        let pin = self.take(&self.parent, call);
        // A parent whose children are gone takes its table back as it was.
        let taken_back = self.parent.world.count(Counter::PwTableTakenBack) > taken_back;
        for (page, (initially, now)) in initially.into_iter().zip(self.leaves()).enumerate() {
            assert!(now.is_some_and(LeafView::is_exclusive), "page {page}: {now:?}");
            let was_writable = taken_back && is_writable(initially);
            assert_eq!(is_writable(now), was_writable, "page {page}: whether a pin for reading granted a right");
        }
        self.agrees_after_store(&pin, child.as_ref());
        pin.release(MakeDirty::No);
        self.end(child);
    }

    /// The device sees what the parent stores, and the reverse; a child sees neither.
    fn agrees_after_store(&self, device: &TestDevice<I>, child: Option<&TestProcess<I>>) {
        self.store(&self.parent, NEW);
        self.expect_by(device, NEW);
        device.agrees(&self.parent, OTHER, self.base, 5);
        child.inspect(|child| self.expect(child, OLD));
        self.parent.world.at_rest(&[device]);
    }
}
