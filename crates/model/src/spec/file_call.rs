//! Calls about a file and not about a process: its size, room and holes, seals, reads and writes.
//!
//! Each is told when it has answered, and nothing else may be under way about the file meanwhile.
//! Sizes are multiples of eight bytes here.
//!
//! Not guaranteed: what may be found behind the end of a file in its last page. Nothing is cut off
//! but cells.

use super::CallResult;
use super::file::File;
use super::page::PageBacking;
use super::{Spec, SpecVerdict};
use crate::violation::{CpuStep, SpecMismatch};
use alloc::string::{String, ToString};
use pagewright_types::{Errno, FileId, PAGE_SIZE, Rights, SpaceId};

/// A call.
///
/// Flags and seals are Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// `ftruncate(2)`.
    Resize {
        /// To so many bytes.
        bytes: u64,
    },
    /// `fallocate(2)`.
    Allocate {
        /// `FALLOC_FL_*`.
        flags: u32,
        /// From which byte on.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// `fcntl` with `F_ADD_SEALS`.
    AddSeals {
        /// What the descriptor was opened for.
        opened: Rights,
        /// `F_SEAL_*`.
        seals: u32,
    },
    /// `fcntl` with `F_GET_SEALS`.
    GetSeals,
    /// `pread(2)` of eight bytes.
    Read {
        /// From which byte on.
        offset: u64,
        /// What was read, if anything.
        got: u64,
    },
    /// `pwrite(2)` of eight bytes.
    Write {
        /// From which byte on.
        offset: u64,
        /// What is written.
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
/// Either of those against writing.
pub(super) const ANY_WRITE: u32 = WRITE | FUTURE_WRITE;

/// `FALLOC_FL_*`.
const KEEP_SIZE: u32 = 0x1;
const PUNCH_HOLE: u32 = 0x2;

impl FileCall {
    /// What users call it.
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
    fn is_sealed(&self, seals: u32) -> Result<(), Errno> {
        if self.seals.unwrap_or(0) & seals == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn may_end_at(&self, end: u64) -> Result<(), Errno> {
        let (grows, shrinks) = (end > self.size(), end < self.size());
        self.is_sealed(if grows { GROW } else { 0 } | if shrinks { SHRINK } else { 0 })
    }

    fn room(&self, flags: u32, offset: u64, len: u64) -> Result<CallResult, Errno> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let hole = flags & PUNCH_HOLE != 0;
        if flags & !(KEEP_SIZE | PUNCH_HOLE) != 0 || hole && flags & KEEP_SIZE == 0 || !self.shmem {
            return Err(Errno::EOPNOTSUPP);
        }
        if hole {
            self.is_sealed(ANY_WRITE)?;
        } else if offset + len > self.size() {
            self.is_sealed(GROW)?;
        }
        Ok(CallResult::Done)
    }
}

impl Spec {
    /// A call about a file, made by a process, has answered.
    ///
    /// # Errors
    /// A [`crate::Violation`] when it could not have answered so.
    ///
    /// # Panics
    /// When the file is unknown.
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
                return wrong(alloc::format!("other bytes than {got:#x}"));
            }
        }
        self.do_file_call(file, call);
        Ok(())
    }

    fn expected(&self, id: FileId, call: &FileCall) -> Result<CallResult, Errno> {
        let file = self.files.0.get(&id).expect("a file that was told of");
        match *call {
            FileCall::Resize { bytes } => file.may_end_at(bytes).map(|()| CallResult::Done),
            FileCall::Allocate { flags, offset, len } => file.room(flags, offset, len),
            FileCall::AddSeals { opened, seals } => self.sealing(id, opened, seals).map(|_| CallResult::Done),
            FileCall::GetSeals => file.seals.map(|seals| CallResult::Number(seals.into())).ok_or(Errno::EINVAL),
            FileCall::Read { offset, .. } => Ok(CallResult::Bytes(file.size().saturating_sub(offset).min(8))),
            FileCall::Write { offset, .. } => {
                file.is_sealed(ANY_WRITE)?;
                if offset + 8 > file.size() {
                    file.is_sealed(GROW)?;
                }
                Ok(CallResult::Bytes(8))
            }
        }
    }

    /// The seals that a file has afterwards (`memfd_add_seals`).
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
        // What can be run, as every file here, must not change.
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
            let shown = matches!(map.backing, PageBacking::File { file, .. } if file == id);
            shown && map.shared && map.max_rights.contains(Rights::WRITE)
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
                self.blur_all_of(|file, index| file == id && (first..end).contains(&index));
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

/// The page and the cell at a byte.
fn place(offset: u64) -> (u64, u16) {
    (offset / PAGE_SIZE, (offset % PAGE_SIZE / 8) as u16)
}
