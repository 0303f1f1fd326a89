//! `migrate_pages`, and `move_pages` in chunks of the caller's arrays (`kernel_move_pages`).

use crate::caller::CallingProcess;
use crate::request::{MigratePagesRequest, MovePagesRequest};
use crate::user_memory::{array, read_nodes};
use alloc::vec::Vec;
use pagewright_mm::migrate::PageStatus;
use pagewright_mm::{Mm, Space};
use pagewright_sync::Platform;
use pagewright_types::{Errno, NodeId, VirtAddr};

/// Pages whose addresses are read at once.
const CHUNK: u64 = 128;
/// Flags (`include/uapi/linux/mempolicy.h`).
const MPOL_MF_MOVE: u32 = 2;
const MPOL_MF_MOVE_ALL: u32 = 4;

impl MigratePagesRequest {
    /// Moves the pages; returns how many could not be moved (`kernel_migrate_pages`).
    pub(crate) fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let (from, to) = (read_nodes(caller, self.from)?, read_nodes(caller, self.to)?);
        let all = caller.may_move_all();
        let serve = |space: &Space<P>| {
            let existing = to.intersection(mm.node_mask());
            if existing != to && !all {
                return Err(Errno::EPERM.into());
            }
            if existing.is_empty() {
                return Err(Errno::EINVAL.into());
            }
            mm.migrate_pages(space, from, existing, all).map_err(|error| error.errno().into())
        };
        if self.pid == 0 { serve(caller.space()) } else { serve(&*caller.space_of_pid(self.pid)?) }
    }
}

impl MovePagesRequest {
    /// Moves the pages, or tells where they are; returns how many did not move.
    ///
    /// As in Linux, pages before the one that ends the call have moved when it fails.
    pub(crate) fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        if self.flags & !(MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let all = self.flags & MPOL_MF_MOVE_ALL != 0;
        if all && !caller.may_move_all() {
            return Err(Errno::EPERM.into());
        }
        if self.pid == 0 {
            return self.serve_on(mm, caller, caller.space(), all);
        }
        let other = caller.space_of_pid(self.pid)?;
        self.serve_on(mm, caller, &other, all)
    }

    fn serve_on<P: Platform, C: CallingProcess<P>>(
        &self,
        mm: &Mm<P>,
        caller: &C,
        space: &Space<P>,
        all: bool,
    ) -> Result<u64, C::Error> {
        let mut at = 0;
        while at < self.count {
            let count = (self.count - at).min(CHUNK);
            let pages: Vec<VirtAddr> =
                array(caller, self.pages, at, count, |word| VirtAddr::new(u64::from_le_bytes(word)))?;
            let Some(nodes) = self.nodes else {
                let mut statuses = Vec::new();
                mm.page_nodes(space, &pages, |_, status| statuses.push(status));
                for (index, status) in statuses.into_iter().enumerate() {
                    self.store(caller, at + index as u64, status)?;
                }
                at += count;
                continue;
            };
            let nodes: Vec<i32> = array(caller, nodes, at, count, i32::from_le_bytes)?;
            let exists = |node: &&i32| mm.has_node(**node);
            let known = nodes.iter().take_while(exists).count();
            let wanted: Vec<_> =
                pages.iter().zip(&nodes).take(known).map(|(va, node)| (*va, NodeId::new(*node as u8))).collect();
            let mut statuses = Vec::new();
            let stayed = mm.move_pages(space, &wanted, all, |index, status| statuses.push((index, status)));
            for (index, status) in statuses {
                self.store(caller, at + index as u64, status)?;
            }
            let stayed = stayed.map_err(|error| error.errno())?;
            if known < nodes.len() && stayed == 0 {
                return Err(Errno::ENODEV.into());
            }
            if stayed > 0 {
                return Ok(stayed as u64 + self.count - at - known as u64);
            }
            at += count;
        }
        Ok(0)
    }

    /// Stores the status of a page: its node, or an error number below 0.
    fn store<P: Platform, C: CallingProcess<P>>(
        &self,
        caller: &C,
        index: u64,
        status: PageStatus,
    ) -> Result<(), C::Error> {
        let word = status.map_or_else(|errno| -i32::from(errno.number()), |node| i32::from(node.raw()));
        let to = self.status.checked_add(index * 4).ok_or(Errno::EFAULT)?;
        caller.copy_to_user(to, &word.to_le_bytes())
    }
}
