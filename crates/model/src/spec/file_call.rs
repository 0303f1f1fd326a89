//! Calls about a file: size, allocation and holes, seals, reads and writes.
//!
//! A call is reported after it has returned. While it is in flight, nothing else may happen to the
//! file. Sizes and offsets are multiples of eight bytes.
//!
//! Not guaranteed: the contents of the last page past the end of the file.

use super::CallResult;
use super::file::File;
use super::page::PageBacking;
use super::{Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use alloc::string::{String, ToString};
use pagewright_types::{Errno, FileId, PAGE_SIZE, Rights, SpaceId};

/// A call about a file; flags and seals are Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// `ftruncate(2)`.
    Resize {
        /// The new size in bytes.
        bytes: u64,
    },
    /// `fallocate(2)`.
    Allocate {
        /// `FALLOC_FL_*`.
        flags: u32,
        /// The first byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// `fcntl` with `F_ADD_SEALS`.
    AddSeals {
        /// The rights with which the descriptor was opened.
        opened: Rights,
        /// `F_SEAL_*`.
        seals: u32,
    },
    /// `fcntl` with `F_GET_SEALS`.
    GetSeals,
    /// `pread(2)` of eight bytes.
    Read {
        /// The first byte.
        offset: u64,
        /// The bytes read, if any.
        got: u64,
    },
    /// `pwrite(2)` of eight bytes.
    Write {
        /// The first byte.
        offset: u64,
        /// The bytes written.
        value: u64,
    },
}

/// `F_SEAL_*`.
const SEAL: u32 = 0x1;
const SHRINK: u32 = 0x2;
const GROW: u32 = 0x4;
const WRITE: u32 = 0x8;
const FUTURE_WRITE: u32 = 0x10;
const EXEC: u32 = 0x20;
/// Either seal against writing.
pub(super) const ANY_WRITE: u32 = WRITE | FUTURE_WRITE;

/// `FALLOC_FL_*`.
const KEEP_SIZE: u32 = 0x1;
const PUNCH_HOLE: u32 = 0x2;

impl FileCall {
    /// The name of the call.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Resize { .. } => "ftruncate",
            Self::Allocate { .. } => "fallocate",
            Self::AddSeals { .. } => "fcntl(F_ADD_SEALS)",
            Self::GetSeals => "fcntl(F_GET_SEALS)",
            Self::Read { .. } => "pread",
            Self::Write { .. } => "pwrite",
        }
    }
}

impl File {
    fn check_unsealed(&self, seals: u32) -> Result<(), Errno> {
        if self.seals.unwrap_or(0) & seals == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn check_size(&self, end: u64) -> Result<(), Errno> {
        let (grows, shrinks) = (end > self.size(), end < self.size());
        self.check_unsealed(if grows { GROW } else { 0 } | if shrinks { SHRINK } else { 0 })
    }

    fn check_allocate(&self, flags: u32, offset: u64, len: u64) -> Result<CallResult, Errno> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let hole = flags & PUNCH_HOLE != 0;
        if flags & !(KEEP_SIZE | PUNCH_HOLE) != 0 || hole && flags & KEEP_SIZE == 0 || !self.shmem {
            return Err(Errno::EOPNOTSUPP);
        }
        if hole {
            self.check_unsealed(ANY_WRITE)?;
        } else if offset + len > self.size() {
            self.check_unsealed(GROW)?;
        }
        Ok(CallResult::Done)
    }
}

impl Spec {
    /// Reports that a call of a process about a file has returned.
    ///
    /// # Errors
    /// A [`crate::Violation`] if the result is impossible.
    ///
    /// # Panics
    /// If the file is unknown.
    pub fn file_call(
        &mut self,
        by: CpuStep,
        space: SpaceId,
        file: FileId,
        call: FileCall,
        result: CallResult,
    ) -> SpecVerdict {
        let expected = self.expected(file, &call);
        let needs = matches!(call, FileCall::Allocate { .. } | FileCall::Read { .. } | FileCall::Write { .. });
        if self.memory_may_fail && needs && result == CallResult::Failed(Errno::ENOMEM) {
            return Ok(());
        }
        let wrong = |expected: String| {
            let call = call.name();
            Err(Self::violation(by, SpecMismatch::Call { space, call, got: result, expected }))
        };
        match expected {
            Ok(right) if right != result => return wrong(right.to_string()),
            Err(errno) if result != CallResult::Failed(errno) => return wrong(errno.to_string()),
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
        if let (FileCall::Read { offset, got }, CallResult::Bytes(8)) = (call, result) {
            let (index, cell) = place(offset);
            let fits = |held: &File| held.can_hold(file, index, cell, got, &|base| self.files.initial(base, cell));
            if !self.files.0.get(&file).is_some_and(fits) {
                return wrong(alloc::format!("bytes other than {got:#x}"));
            }
        }
        self.do_file_call(file, call);
        Ok(())
    }

    fn expected(&self, id: FileId, call: &FileCall) -> Result<CallResult, Errno> {
        let file = self.files.0.get(&id).expect("a file that was added");
        match *call {
            FileCall::Resize { bytes } => file.check_size(bytes).map(|()| CallResult::Done),
            FileCall::Allocate { flags, offset, len } => file.check_allocate(flags, offset, len),
            FileCall::AddSeals { opened, seals } => self.sealing(id, opened, seals).map(|_| CallResult::Done),
            FileCall::GetSeals => file.seals.map(|seals| CallResult::Number(seals.into())).ok_or(Errno::EINVAL),
            FileCall::Read { offset, .. } => Ok(CallResult::Bytes(file.size().saturating_sub(offset).min(8))),
            FileCall::Write { offset, .. } => {
                file.check_unsealed(ANY_WRITE)?;
                if offset + 8 > file.size() {
                    file.check_unsealed(GROW)?;
                }
                Ok(CallResult::Bytes(8))
            }
        }
    }

    /// The seals of a file after `F_ADD_SEALS` (`memfd_add_seals`).
    fn sealing(&self, id: FileId, opened: Rights, seals: u32) -> Result<u32, Errno> {
        if !opened.contains(Rights::WRITE) {
            return Err(Errno::EPERM);
        }
        let known = SEAL | SHRINK | GROW | ANY_WRITE | EXEC;
        let present = self.files.0.get(&id).and_then(|file| file.seals);
        let Some(present) = present.filter(|_| seals & !known == 0) else { return Err(Errno::EINVAL) };
        if present & SEAL != 0 {
            return Err(Errno::EPERM);
        }
        // `F_SEAL_EXEC` on an executable file, as every file here is, implies the seals against
        // changes.
        let wanted = if seals & EXEC == 0 { seals } else { seals | SHRINK | GROW | ANY_WRITE };
        if wanted & WRITE & !present != 0 && (self.is_writably_mapped(id) || self.is_file_pinned(id)) {
            return Err(Errno::EBUSY);
        }
        Ok(present | wanted)
    }

    fn is_writably_mapped(&self, id: FileId) -> bool {
        let pages = self.processes.values().flat_map(|process| process.pages.values());
        let mut maps = pages.filter_map(|page| page.states.first()?.map);
        maps.any(|map| {
            let is_backed = matches!(map.backing, PageBacking::File { file, .. } if file == id);
            is_backed && map.shared && map.max_rights.contains(Rights::WRITE)
        })
    }

    fn do_file_call(&mut self, id: FileId, call: FileCall) {
        if let FileCall::Resize { bytes } = call {
            self.truncate_begins(id, bytes / PAGE_SIZE);
            return self.truncate_ends(id);
        }
        if let FileCall::AddSeals { opened, seals } = call
            && let Ok(all) = self.sealing(id, opened, seals)
            && let Some(file) = self.files.0.get_mut(&id)
        {
            file.seals = Some(all);
        }
        let Some(file) = self.files.0.get_mut(&id) else { return };
        match call {
            FileCall::Allocate { flags, offset, len } if flags & PUNCH_HOLE != 0 => {
                file.punch(id, offset, offset + len);
                let (first, end) = (offset.div_ceil(PAGE_SIZE), (offset + len) / PAGE_SIZE);
                self.forget_soft_dirty_of(|file, index| file == id && (first..end).contains(&index));
            }
            FileCall::Allocate { flags, offset, len } if flags & KEEP_SIZE == 0 => file.grow(offset + len),
            FileCall::Write { offset, value } => {
                let (index, cell) = place(offset);
                file.page_mut(id, index).set(cell, value);
                file.grow(offset + 8);
            }
            FileCall::Allocate { .. }
            | FileCall::AddSeals { .. }
            | FileCall::GetSeals
            | FileCall::Read { .. }
            | FileCall::Resize { .. } => {}
        }
        self.revise_faults();
    }
}

/// The page and the cell at a byte offset.
fn place(offset: u64) -> (u64, u16) {
    (offset / PAGE_SIZE, (offset % PAGE_SIZE / 8) as u16)
}
