//! Operations as calls of a process, through the decoder, and files of procfs.

use super::{CPU, Machine, Ours, with_errno};
use crate::against::initial_state::{CODE, DATA, LIMITS, PIPE_PAGES};
use crate::against::maps;
use crate::against::memory_usage::MemoryUsage;
use crate::against::observation::Observation;
use crate::random::registers::{CallOutput, CallRegisters, CallerNumbers};
use crate::random::{Operation, Syscall};
use pagewright_lab::LabCaller;
use pagewright_mm::file::FileObject;
use pagewright_mm::gup::{GupFlags, MakeDirty, UserPage};
use pagewright_mm::view::PagemapFlags;
use pagewright_mm::{Mm, MmError, Space};
use pagewright_sync::Arc;
use pagewright_types::{Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::sync::atomic::Ordering;

/// Address at which calls store their output; the words that they read are at [`DATA`].
const OUTPUT: u64 = DATA + 0x800;

impl Ours {
    fn file(&self) -> &Arc<FileObject<Machine>> {
        match &self.file {
            Some(file) => file,
            None => unreachable!("a program has a file from begin to finish"),
        }
    }

    /// Makes a memory call of a space, which may act on `other`.
    pub(super) fn memory_call(
        &self,
        mm: &Mm<Machine>,
        space: &Arc<Space<Machine>>,
        other: Option<&Arc<Space<Machine>>>,
        operation: &Operation,
        value: u64,
    ) -> Result<Observation, Errno> {
        let caller = LabCaller::new(mm, space).with_file(self.file(), Rights::RW).with_file(self.file(), Rights::READ);
        let caller = other.into_iter().fold(caller, LabCaller::with_process);
        let hard_limit = |resource| self.first_hard_limit(resource);
        let numbers = CallerNumbers {
            read_write: 1,
            read_only: 2,
            pid: 1,
            pidfd: 1,
            input: DATA,
            output: OUTPUT,
            hard_limit: &hard_limit,
        };
        let registers = CallRegisters::of(operation, value, &numbers);
        let Some(CallRegisters { call, arguments, input, output }) = registers else {
            unreachable!("{operation} is not a call of the decoder")
        };
        // As on the other side, write to the file and not through the mapping.
        let input: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
        mm.write_at(&self.control, DATA - CODE, &input).map_err(MmError::errno)?;
        let returned = caller.call(call, arguments)?;
        let count = match output {
            CallOutput::Nothing => return Ok(Observation::Value(returned)),
            CallOutput::Bytes(count) => count,
            CallOutput::AsReturned => returned as usize,
        };
        let mut bytes = vec![0; count];
        let left = mm.copy_from_user(space, VirtAddr::new(OUTPUT), &mut bytes);
        debug_assert_eq!(left, 0, "the call just stored these bytes");
        Ok(Observation::Bytes(returned, bytes))
    }

    /// The first hard limit of a resource.
    fn first_hard_limit(&self, resource: u32) -> u64 {
        let hard = LIMITS.iter().zip(self.host.hard).find(|((known, _), _)| *known == resource);
        hard.map_or(u64::MAX, |(_, hard)| hard)
    }

    /// `pread` of the file.
    pub(super) fn pread(&self, mm: &Mm<Machine>, offset: u64) -> Result<Observation, Errno> {
        let mut bytes = vec![0; 8];
        with_errno(mm.read_at(self.file(), offset, &mut bytes).map(|count| {
            bytes.truncate(count);
            Observation::Bytes(count as u64, bytes)
        }))
    }

    /// `pwrite` to the file.
    pub(super) fn pwrite(&self, mm: &Mm<Machine>, offset: u64, value: u64) -> Result<Observation, Errno> {
        with_errno(mm.write_at(self.file(), offset, &value.to_le_bytes()).map(|count| Observation::Value(count as u64)))
    }

    /// Reads a file of procfs.
    pub(super) fn read_procfs(&self, mm: &Mm<Machine>, space: &Space<Machine>, call: &Syscall) -> Observation {
        if let Syscall::ShowPagemap { addr, pages } = *call {
            return Observation::Pages(self.pagemap(mm, space, addr, pages));
        }
        let (mut text, mut status) = (String::new(), String::new());
        // Writing to a String does not fail.
        if *call == Syscall::ShowMaps {
            let _ = mm.show_maps(space, &mut text);
            return Observation::Maps(maps::parse(&text, |address| address));
        }
        let _ = (mm.show_smaps(space, &mut text), mm.show_status(space, &mut status));
        Observation::Usage(MemoryUsage::parse(&text, &status, |address| address))
    }

    /// The `pagemap` words of pages; those of private file mappings that are not copied are zero.
    fn pagemap(&self, mm: &Mm<Machine>, space: &Space<Machine>, addr: VirtAddr, pages: u64) -> Vec<u64> {
        let mut words = vec![0; pages as usize];
        mm.pagemap(space, PageRange::new(addr, addr.add(pages * PAGE_SIZE)), |va, word| {
            words[(va.since(addr) / PAGE_SIZE) as usize] = word.raw() & self.host.pagemap_bits;
        });
        let map = space.map().read();
        for (page, word) in words.iter_mut().enumerate() {
            let found = map.find(addr.add(page as u64 * PAGE_SIZE));
            let is_private_file = found.is_some_and(|(_, vma)| !vma.is_shared() && vma.file().is_some());
            if *word & PagemapFlags::FILE.bits() != 0 && is_private_file {
                *word = 0;
            }
        }
        words
    }

    /// `vmsplice`: holds a reference to the page until the pipe is read.
    pub(super) fn vmsplice(&mut self, process: usize, addr: VirtAddr) -> Result<Observation, Errno> {
        if self.spliced.len() == PIPE_PAGES {
            return Err(Errno::EAGAIN);
        }
        let range = PageRange::from_len(addr.align_down(PAGE_SIZE), PAGE_SIZE).map_err(|_| Errno::EFAULT)?;
        let space = self.space(process);
        let pages = self.lab.on(CPU, |mm| mm.get_user_pages_fast(space, range, GupFlags::empty()));
        self.spliced.push_back((pages.map_err(MmError::errno)?, addr.page_offset()));
        Ok(Observation::Value(8))
    }

    /// `read` of the pipe: the present bytes of the page that was spliced first.
    pub(super) fn read_pipe(&mut self) -> Result<Observation, Errno> {
        let (pages, offset) = self.spliced.pop_front().ok_or(Errno::EAGAIN)?;
        let cell = |page: &UserPage| &self.lab.sim().ram()[((page.pfn().base().raw() + offset) / 8) as usize];
        let value = pages.iter().next().map_or(0, |page| cell(page).load(Ordering::Relaxed));
        self.lab.on(CPU, |mm| mm.release_user_pages(pages, MakeDirty::No));
        Ok(Observation::Bytes(8, value.to_le_bytes().to_vec()))
    }
}
