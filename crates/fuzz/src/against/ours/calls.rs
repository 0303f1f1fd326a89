//! Operations as methods of the memory manager, with what a kernel's system-call layer does before
//! and after.

use super::{BUFFER, CPU, Machine, Ours, answer};
use crate::against::lack::{LIMITS, PIPE_PAGES};
use crate::against::maps;
use crate::against::seen::Seen;
use crate::against::usage::Usage;
use crate::random::alone::{asked_of, make};
use crate::random::{Descriptor, Object, Operation, Syscall, Where};
use pagewright_mm::file::{FallocateFlags, FileObject, Seals};
use pagewright_mm::gup::{Contents, GupFlags, UserPage};
use pagewright_mm::space::{FileMapping, Limit, Resource, Whose};
use pagewright_mm::user::IoVec;
use pagewright_mm::view::PageState;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmError, Protection, Space};
use pagewright_model::spec::{CallResult, ExclusiveCall};
use pagewright_sync::Arc;
use pagewright_types::{Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};
use std::sync::atomic::Ordering;

impl Ours {
    pub(super) fn plain(&self, mm: &Mm<Machine>, space: &Space<Machine>, operation: &Operation) -> Result<Seen, Errno> {
        let done = |()| Seen::Value(0);
        match *operation {
            Operation::Map { place, len, rights, object, populate } => {
                let (addr, at) = match place {
                    Where::Anywhere => (VirtAddr::ZERO, MapFlags::empty()),
                    Where::Fixed(at) => (at, MapFlags::FIXED),
                    Where::Vacant(at) => (at, MapFlags::FIXED_NOREPLACE),
                };
                let (kind, file, page) = match object {
                    Object::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, Descriptor::None, 0),
                    Object::SharedAnon => (MapFlags::SHARED | MapFlags::ANONYMOUS, Descriptor::None, 0),
                    Object::PrivateFile(page) => (MapFlags::PRIVATE, Descriptor::Both, page),
                    Object::SharedFile(page) => (MapFlags::SHARED, Descriptor::Both, page),
                    Object::SharedReadOnly(page) => (MapFlags::SHARED, Descriptor::Reading, page),
                };
                let populate = if populate { MapFlags::POPULATE } else { MapFlags::empty() };
                self.map(mm, space, (addr, len), rights, kind | at | populate, (file, page * PAGE_SIZE))
            }
            Operation::Unmap { addr, len } => answer(mm.munmap(space, addr, len).map(done)),
            Operation::Protect { addr, len, rights } => answer(mm.mprotect(space, addr, len, rights).map(done)),
            Operation::DontNeed { addr, len } => answer(mm.madvise(space, addr, len, Advice::DontNeed).map(done)),
            Operation::Break { to } => Ok(Seen::Value(mm.brk(space, to).raw())),
            Operation::Truncate { pages } => answer(mm.truncate(self.file(), pages * PAGE_SIZE).map(done)),
            Operation::Fork
            | Operation::Exit { .. }
            | Operation::Access { .. }
            | Operation::Roam { .. }
            | Operation::Switch { .. }
            | Operation::Lazy
            | Operation::Kernel(_)
            | Operation::Starve { .. }
            | Operation::Syscall(_) => unreachable!("{operation} is no call of one process"),
        }
    }

    fn file(&self) -> &Arc<FileObject<Machine>> {
        match &self.file {
            Some(file) => file,
            None => unreachable!("a program has its file from its beginning to its end"),
        }
    }

    fn map(
        &self,
        mm: &Mm<Machine>,
        space: &Space<Machine>,
        (addr, len): (VirtAddr, u64),
        rights: Rights,
        flags: MapFlags,
        (descriptor, offset): (Descriptor, u64),
    ) -> Result<Seen, Errno> {
        let opened = match descriptor {
            Descriptor::None => None,
            Descriptor::Both => Some(Rights::RW),
            Descriptor::Reading => Some(Rights::READ),
        };
        let file = match (flags.contains(MapFlags::ANONYMOUS), opened) {
            (true, _) => None,
            (false, None) => return Err(Errno::EBADF),
            (false, Some(opened)) => Some(FileMapping { file: self.file(), offset, opened }),
        };
        let request = MapRequest { addr, len, rights, flags, file };
        answer(mm.mmap(space, &request).map(|at| Seen::Value(at.raw())))
    }

    /// A call of one process.
    ///
    /// The offset even of an anonymous mapping is looked at, as Linux does.
    pub(super) fn syscall(
        &self,
        mm: &Mm<Machine>,
        space: &Space<Machine>,
        call: &Syscall,
        value: u64,
    ) -> Result<Seen, Errno> {
        let done = |()| Seen::Value(0);
        match *call {
            Syscall::Map { addr, len, prot, flags, file, offset } => {
                if offset % PAGE_SIZE != 0 {
                    return Err(Errno::EINVAL);
                }
                let rights = Rights::from_bits_truncate(prot as u8);
                self.map(mm, space, (addr, len), rights, MapFlags::from_bits_retain(flags), (file, offset))
            }
            Syscall::Exclusive(ExclusiveCall::Limit { resource, bytes }) => {
                let limit = Limit { soft: bytes, hard: self.first_hard_limit(resource) };
                set_limit(mm, space, resource, limit).map(|_| Seen::Value(0))
            }
            Syscall::Exclusive(call) => {
                let mut vec = vec![0; asked_of(&call)];
                let answered = make(mm, space, call, &mut vec);
                answer(answered.map(|answered| match (call, answered) {
                    (ExclusiveCall::Resident { .. }, _) => Seen::Bytes(0, vec),
                    (_, CallResult::Mapped(at)) => Seen::Value(at.raw()),
                    (_, CallResult::Bytes(bytes)) => Seen::Value(bytes),
                    (_, _) => Seen::Value(0),
                }))
            }
            Syscall::BothLimits { resource, soft, hard } => {
                let old = set_limit(mm, space, resource, Limit { soft, hard })?;
                Ok(Seen::Bytes(0, [old.soft.to_le_bytes(), old.hard.to_le_bytes()].concat()))
            }
            Syscall::Protect { addr, len, prot } => {
                answer(mm.mprotect(space, addr, len, Protection::from_bits_retain(prot)).map(done))
            }
            Syscall::ResidentInto { addr, len, vec } => answer(mm.mincore_to_user(space, addr, len, vec).map(done)),
            Syscall::Maps | Syscall::Usage | Syscall::Pages { .. } => Ok(self.shown(mm, space, call)),
            Syscall::Allocate { .. }
            | Syscall::AddSeals { .. }
            | Syscall::GetSeals
            | Syscall::Read { .. }
            | Syscall::Write { .. } => self.file_call(mm, call, value),
            Syscall::ReadOther { .. }
            | Syscall::WriteOther { .. }
            | Syscall::AdviseOther { .. }
            | Syscall::Splice { .. }
            | Syscall::Drain => unreachable!("{call} concerns more than one process"),
        }
    }

    /// What a limit may be raised to at first.
    fn first_hard_limit(&self, resource: u32) -> u64 {
        let hard = LIMITS.iter().zip(self.host.hard).find(|((known, _), _)| *known == resource);
        hard.map_or(u64::MAX, |(_, hard)| hard)
    }

    /// What procfs shows.
    fn shown(&self, mm: &Mm<Machine>, space: &Space<Machine>, call: &Syscall) -> Seen {
        if let Syscall::Pages { addr, pages } = *call {
            return Seen::Pages(self.pages(mm, space, addr, pages));
        }
        let (mut text, mut status) = (String::new(), String::new());
        // Writing to a String does not fail.
        if *call == Syscall::Maps {
            let _ = mm.show_maps(space, &mut text);
            return Seen::Maps(maps::parse(&text, |address| address));
        }
        let _ = (mm.show_smaps(space, &mut text), mm.show_status(space, &mut status));
        Seen::Usage(Usage::parse(&text, &status, |address| address))
    }

    /// The words of some pages, but for those of files that would be copied.
    fn pages(&self, mm: &Mm<Machine>, space: &Space<Machine>, addr: VirtAddr, pages: u64) -> Vec<u64> {
        let mut words = vec![0; pages as usize];
        mm.pagemap(space, PageRange::new(addr, addr.add(pages * PAGE_SIZE)), |va, word| {
            words[(va.since(addr) / PAGE_SIZE) as usize] = word.raw() & self.host.page_state;
        });
        let map = space.map().read();
        for (page, word) in words.iter_mut().enumerate() {
            let shared = map.find(addr.add(page as u64 * PAGE_SIZE)).is_some_and(|(_, vma)| vma.is_shared());
            if *word & PageState::FILE.bits() != 0 && !shared {
                *word = 0;
            }
        }
        words
    }

    /// A call that concerns the file.
    fn file_call(&self, mm: &Mm<Machine>, call: &Syscall, value: u64) -> Result<Seen, Errno> {
        let file = self.file();
        match *call {
            Syscall::Allocate { flags, offset, len } => {
                let flags = FallocateFlags::from_bits_retain(flags);
                answer(mm.fallocate(file, flags, offset, len).map(|()| Seen::Value(0)))
            }
            Syscall::AddSeals { file: descriptor, seals } => {
                let opened = match descriptor {
                    Descriptor::None => return Err(Errno::EBADF),
                    Descriptor::Both => Rights::RW,
                    Descriptor::Reading => Rights::READ,
                };
                answer(mm.add_seals(file, opened, Seals::from_bits_retain(seals)).map(|()| Seen::Value(0)))
            }
            Syscall::GetSeals => answer(file.seals().map(|seals| Seen::Value(seals.bits().into()))),
            Syscall::Read { offset } => {
                let mut bytes = vec![0; 8];
                answer(mm.read_at(file, offset, &mut bytes).map(|count| {
                    bytes.truncate(count);
                    Seen::Bytes(count as u64, bytes)
                }))
            }
            Syscall::Write { offset } => {
                answer(mm.write_at(file, offset, &value.to_le_bytes()).map(|count| Seen::Value(count as u64)))
            }
            Syscall::Map { .. }
            | Syscall::Exclusive(_)
            | Syscall::ReadOther { .. }
            | Syscall::BothLimits { .. }
            | Syscall::Protect { .. }
            | Syscall::ResidentInto { .. }
            | Syscall::WriteOther { .. }
            | Syscall::AdviseOther { .. }
            | Syscall::Splice { .. }
            | Syscall::Drain
            | Syscall::Usage
            | Syscall::Pages { .. }
            | Syscall::Maps => unreachable!("{call} does not concern the file"),
        }
    }

    /// A call that concerns another process, or its own as if it were another.
    pub(super) fn call_about(
        &self,
        mm: &Mm<Machine>,
        (process, space): (usize, &Space<Machine>),
        (other, their): (usize, &Space<Machine>),
        call: &Syscall,
        value: u64,
    ) -> Result<Seen, Errno> {
        let piece = |base, len| [IoVec { base, len }];
        if let Syscall::ReadOther { addr, len, .. } = *call {
            let count = mm.process_vm_readv((space, &piece(BUFFER, len)), (their, &piece(addr, len)), 0);
            let count = count.map_err(MmError::errno)?;
            let mut bytes = vec![0; count as usize];
            let left = mm.copy_from_user(space, BUFFER, &mut bytes);
            debug_assert_eq!(left, 0, "the bytes were just put there");
            Ok(Seen::Bytes(count, bytes))
        } else if let Syscall::WriteOther { addr, .. } = *call {
            let left = mm.copy_to_user(space, BUFFER, &value.to_le_bytes());
            debug_assert_eq!(left, 0, "nobody takes the buffer away");
            answer(mm.process_vm_writev((space, &piece(BUFFER, 8)), (their, &piece(addr, 8)), 0).map(Seen::Value))
        } else if let Syscall::AdviseOther { addr, len, advice, .. } = *call {
            let whose = if process == other { Whose::Own } else { Whose::Other };
            let advice = Advice::from_raw(advice).map_err(MmError::errno)?;
            answer(mm.process_madvise(their, whose, &[(addr, len)], advice).map(Seen::Value))
        } else {
            unreachable!("{call} concerns one process")
        }
    }

    /// `vmsplice`: the page stays referenced until it is read out of the pipe.
    pub(super) fn splice(&mut self, process: usize, addr: VirtAddr) -> Result<Seen, Errno> {
        if self.spliced.len() == PIPE_PAGES {
            return Err(Errno::EAGAIN);
        }
        let range = PageRange::from_len(addr.align_down(PAGE_SIZE), PAGE_SIZE).map_err(|_| Errno::EFAULT)?;
        let space = self.space(process);
        let pages = self.lab.on(CPU, |mm| mm.get_user_pages_fast(space, range, GupFlags::empty()));
        self.spliced.push_back((pages.map_err(MmError::errno)?, addr.page_offset()));
        Ok(Seen::Value(8))
    }

    /// What was spliced first, as its page shows it now.
    pub(super) fn drain(&mut self) -> Result<Seen, Errno> {
        let (pages, offset) = self.spliced.pop_front().ok_or(Errno::EAGAIN)?;
        let cell = |page: &UserPage| &self.lab.sim().ram()[((page.pfn().base().raw() + offset) / 8) as usize];
        let value = pages.iter().next().map_or(0, |page| cell(page).load(Ordering::Relaxed));
        self.lab.on(CPU, |mm| mm.release_user_pages(pages, Contents::Read));
        Ok(Seen::Bytes(8, value.to_le_bytes().to_vec()))
    }
}

/// `prlimit64`, of what the caller's own program may have.
fn set_limit(mm: &Mm<Machine>, space: &Space<Machine>, resource: u32, limit: Limit) -> Result<Limit, Errno> {
    let resource = Resource::from_raw(resource).ok_or(Errno::EINVAL)?;
    mm.set_limit(space, resource, limit).map_err(MmError::errno)
}
