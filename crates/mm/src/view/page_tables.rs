//! `page_tables`: what the page tables of each space take.
//!
//! Linux has no such file. A table that several spaces share is counted whole in each of them as
//! shared, and in parts as proportional, as `smaps` counts pages.

use crate::mm::Mm;
use crate::rmap::{CandidateSpace, SpaceLock};
use crate::space::Space;
use arrayvec::ArrayVec;
use core::fmt::{self, Write};
use core::ops::ControlFlow;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{PAGE_SIZE, PageRange, Pfn};

/// Shared tables that are looked for together in the spaces that may reach them.
const BATCH: usize = 64;

/// Bytes of the page tables that a space reaches, its root included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// Of those that no other space reaches.
    pub private: u64,
    /// Of those that other spaces reach, too.
    pub shared: u64,
    /// Of all, each divided by the number of spaces that reach it, rounded down.
    ///
    /// The proportional bytes of all spaces add up to the tables that are allocated, except for the
    /// rounding.
    pub proportional: u64,
}

impl<P: Platform> Mm<P> {
    /// Returns what the page tables of a space take: its own, and those that it shares.
    ///
    /// The total of all is [`Gauge::PageTablePages`](crate::counters::Gauge). Exact at rest
    /// (INV-VIEW-PATHS). The share counts on the space's own path do not say how many spaces reach
    /// a table, so those that share tables are searched. The caller holds no lock.
    pub fn table_bytes(&self, space: &Space<P>) -> TableBytes {
        let (mut bytes, mut latest) = (TableBytes::default(), None);
        loop {
            let mut shared = ArrayVec::<(Pfn, PageRange), BATCH>::new();
            let walk = space.map().read().tables(&self.tlb).reached_tables(latest, |table, under, is_shared| {
                if !is_shared {
                    bytes.private += PAGE_SIZE;
                    bytes.proportional += PAGE_SIZE;
                } else if shared.try_push((table, under)).is_err() {
                    return ControlFlow::Break(());
                }
                latest = Some(under);
                ControlFlow::Continue(())
            });
            bytes.shared += shared.len() as u64 * PAGE_SIZE;
            bytes.proportional +=
                self.spaces_that_reach(space, &shared).map(|spaces| PAGE_SIZE / spaces.max(1)).sum::<u64>();
            if walk.is_continue() {
                return bytes;
            }
        }
    }

    /// Returns the number of spaces that reach each of some tables that `space` shares.
    ///
    /// Each comes with the addresses under it.
    fn spaces_that_reach(&self, space: &Space<P>, tables: &[(Pfn, PageRange)]) -> impl Iterator<Item = u64> + use<P> {
        let mut spaces = [0; BATCH];
        if !tables.is_empty() {
            // Tables are shared by fork.
            let tree = FolioOwner::Anon(self.fork_tree.root_of(space.fork_node()));
            self.visit_spaces(tree, SpaceLock::Wait, |candidate| {
                if let CandidateSpace::Held(other, map) = candidate
                    && other.table().has_shared()
                {
                    let tables = tables.iter().map(|(table, under)| map.tables(&self.tlb).reaches(*table, *under));
                    spaces.iter_mut().zip(tables).for_each(|(spaces, reaches)| *spaces += u64::from(reaches));
                }
                ControlFlow::Continue(())
            });
        }
        spaces.into_iter().take(tables.len())
    }

    /// Writes a line for each space, and the sums.
    ///
    /// Roots are included, unlike in `VmPTE`. The line of the sums has all tables of user memory
    /// once, and in proportion what rounding leaves of that.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_page_tables(&self, out: &mut dyn Write) -> fmt::Result {
        let mut result = writeln!(out, "space  private  shared  proportional");
        let (mut private, mut proportional) = (0, 0);
        self.for_each_space(|space| {
            let bytes = self.table_bytes(space);
            private += bytes.private;
            proportional += bytes.proportional;
            let kib = [bytes.private, bytes.shared, bytes.proportional].map(|bytes| bytes / 1024);
            result = result.and_then(|()| line(out, format_args!("{}", space.id().raw()), kib));
        });
        let shared = proportional.saturating_sub(private);
        result.and_then(|()| line(out, format_args!("all"), [private, shared, proportional].map(|bytes| bytes / 1024)))
    }
}

/// Writes the figures of one line, in kB.
fn line(out: &mut dyn Write, name: fmt::Arguments<'_>, [private, shared, proportional]: [u64; 3]) -> fmt::Result {
    writeln!(out, "{name} {private} kB {shared} kB {proportional} kB")
}
