//! Draws calls with raw flags, some of them invalid, for all modes that make them.
//!
//! Not drawn, because the results on Linux would differ: sizes for which one of the machines lacks
//! memory, addresses of the tracee's code and data, and the end of a process on which another
//! process's call acts.

use super::generator::{FILE_PAGES, Generator};
use super::operation::Operation;
use super::syscall::{FileDescriptor, Syscall};
use pagewright_model::spec::{ExclusiveCall, RangeCall};
use pagewright_types::{Access, PAGE_SIZE, VirtAddr};

/// `MAP_*` flags beside the kind and the placement.
const MAP_FLAGS: [u32; 11] = [
    0x100,      // GROWSDOWN
    0x800,      // DENYWRITE
    0x1000,     // EXECUTABLE
    0x2000,     // LOCKED
    0x4000,     // NORESERVE
    0x8000,     // POPULATE
    0x1_8000,   // POPULATE, NONBLOCK
    0x2_0000,   // STACK
    0x8_0000,   // SYNC
    0x400_0000, // UNINITIALIZED
    0x80,       // unknown
];
/// `MADV_*` of Linux, then some that are unknown.
///
/// `huge.rs` draws those of huge pages; those of pages in error are left out.
const ADVICE: [u32; 30] =
    [0, 1, 2, 3, 4, 4, 8, 8, 9, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 22, 23, 23, 24, 102, 102, 103, 5, 7, 26, 200];
/// The values of [`ADVICE`] that Linux knows.
const KNOWN: &[u32] = ADVICE.split_at(26).0;
/// The `RLIMIT_*` of memory, and their first values in bytes.
const LIMITS: [(u32, u64); 4] = [(9, u64::MAX), (2, u64::MAX), (3, 8 << 20), (8, 32 * PAGE_SIZE)];
const RLIMIT_DATA: u32 = 2;
/// `PROT_*`: rights, SEM, GROWSDOWN, GROWSUP, both, and unknown bits.
const PROTECTION: [u32; 12] = [0, 1, 3, 7, 8, 0xb, 0x100_0003, 0x100_0001, 0x200_0003, 0x300_0003, 0x10, 0x8000_0003];
/// The end of stacks, far above the window and the heap.
const STACK: VirtAddr = VirtAddr::new(7 << 30);
/// Distances below [`STACK`], in pages, at which programs map and access memory.
///
/// Some are next to each other; others differ by about a stack guard gap (256 pages).
const STACK_OFFSETS: [u64; 16] = [1, 2, 3, 4, 16, 254, 255, 256, 257, 258, 259, 260, 300, 514, 515, 600];

impl Generator {
    /// The next operation of a program that also runs on Linux.
    pub(super) fn linux_operation(&mut self) -> Operation {
        match self.below(128) {
            0..52 => self.access(),
            52..58 => self.switch(),
            58..80 => self.call(),
            80..82 => Operation::Syscall(Syscall::ShowMaps),
            82 => Operation::Syscall(Syscall::ShowSmaps),
            83 => {
                let (addr, pages) = self.window.with_neighbours();
                Operation::Syscall(Syscall::ShowPagemap { addr, pages })
            }
            84..88 => self.stack_operation(),
            88..95 => Operation::Syscall(self.linux_only_call()),
            _ => Operation::Syscall(self.syscall()),
        }
    }

    /// A call that only the comparison with Linux checks.
    fn linux_only_call(&mut self) -> Syscall {
        let user_end = self.user_end();
        let (addr, len) = self.range_or_invalid(user_end);
        let process = self.below(4) as usize;
        match self.below(17) {
            16 => {
                let (addr, len) = (VirtAddr::new(self.below(4) * PAGE_SIZE), PAGE_SIZE);
                let flags = self.one_of(&[0x32, 0x32, 0x10_0022]);
                Syscall::Mmap { addr, len, prot: 3, flags, file: FileDescriptor::None, offset: 0 }
            }
            0..3 => Syscall::Mprotect { addr, len, prot: self.one_of(&PROTECTION) },
            3 => {
                let (vec, _) = self.range();
                Syscall::MincoreInto { addr, len, vec: vec.add(PAGE_SIZE - self.below(64)) }
            }
            4 | 5 => self.set_limits(),
            6..8 => Syscall::ProcessVmWritev { process, addr: addr.align_down(PAGE_SIZE).add(self.below(3) * 8) },
            8 | 9 => {
                let advice = self.one_of(&ADVICE);
                let (addr, len) = if KNOWN.contains(&advice) { (addr, len) } else { self.range() };
                Syscall::ProcessMadvise { process, addr, len, advice }
            }
            10..13 => Syscall::Vmsplice { addr: addr.align_down(PAGE_SIZE).add(self.below(3) * 8) },
            _ => Syscall::ReadPipe,
        }
    }

    /// Maps, unmaps or accesses memory around stacks that grow.
    fn stack_operation(&mut self) -> Operation {
        let index = self.below(STACK_OFFSETS.len() as u64) as usize;
        let (addr, len) =
            (VirtAddr::new(STACK.raw() - STACK_OFFSETS[index] * PAGE_SIZE), (1 + self.below(3)) * PAGE_SIZE);
        match self.below(8) {
            0 | 1 => {
                let (prot, flags) = (self.one_of(&[3, 3, 3, 1, 0]), self.one_of(&[0x32, 0x132, 0x132, 0x2132]));
                let file = FileDescriptor::None;
                Operation::Syscall(Syscall::Mmap { addr, len, prot, flags, file, offset: 0 })
            }
            2 if self.once_in(4) => Operation::Range(RangeCall::Munmap { addr, len }),
            2 => {
                let prot = self.one_of(&[0x100_0000, 0x100_0001, 0x100_0003, 0x100_0003]);
                Operation::Syscall(Syscall::Mprotect { addr, len, prot })
            }
            _ => {
                let access = if self.once_in(2) { Access::Read } else { Access::Write };
                Operation::Access { va: addr.add(8), access }
            }
        }
    }

    fn set_limits(&mut self) -> Syscall {
        let Syscall::Exclusive(ExclusiveCall::Limit { resource, bytes }) = self.limit() else {
            unreachable!("a limit was drawn")
        };
        let (soft, hard) = match self.below(8) {
            0 => (bytes, u64::MAX),
            // A soft limit of 0: Linux then checks the hard limit.
            1..3 => (0, self.below(128) * PAGE_SIZE),
            3 => (bytes, bytes / 2),
            _ => (bytes / 2, bytes),
        };
        Syscall::SetLimits { resource, soft, hard }
    }

    /// A call with raw flags.
    pub(super) fn syscall(&mut self) -> Syscall {
        let user_end = self.user_end();
        let (addr, len) = self.range_or_invalid(user_end);
        match self.below(32) {
            0..4 => self.raw_mmap(addr, len),
            4..9 => self.remap(addr, len),
            9..16 => self.advise(addr, len),
            16..18 => Syscall::Exclusive(ExclusiveCall::Lock { addr, len, flags: self.one_of(&[0, 0, 1, 2]) }),
            18 => Syscall::Exclusive(ExclusiveCall::Unlock { addr, len }),
            19 => match self.below(3) {
                0 => Syscall::Exclusive(ExclusiveCall::LockAll { flags: self.one_of(&[1, 2, 3, 5, 6, 7, 4, 0, 8]) }),
                _ => Syscall::Exclusive(ExclusiveCall::UnlockAll),
            },
            20 | 21 => {
                Syscall::Exclusive(ExclusiveCall::Sync { addr, len, flags: self.one_of(&[0, 1, 2, 4, 6, 3, 5, 8]) })
            }
            22..24 => Syscall::Exclusive(ExclusiveCall::Resident { addr, len }),
            24 if self.once_in(4) => {
                Syscall::Exclusive(ExclusiveCall::Seal { addr, len, flags: self.one_of(&[0, 0, 0, 0, 1]) })
            }
            24 if self.once_in(2) => self.limit(),
            24 | 25 => Syscall::Exclusive(ExclusiveCall::Resident { addr, len }),
            26 | 27 => self.file_call(),
            28 => {
                let advice = self.one_of(&ADVICE);
                // Unknown advice on an invalid range may fail for either reason.
                let first = if KNOWN.contains(&advice) { (addr, len) } else { self.range() };
                Syscall::Exclusive(ExclusiveCall::AdviseRanges { ranges: [first, self.range()], advice })
            }
            _ => self.process_vm_readv(addr),
        }
    }

    pub(super) fn one_of(&mut self, values: &[u32]) -> u32 {
        values[self.below(values.len() as u64) as usize]
    }

    fn raw_mmap(&mut self, addr: VirtAddr, len: u64) -> Syscall {
        let kind = self.one_of(&[1, 2, 2, 2, 3, 0]);
        let (fixed, vacant, anonymous) = (0x10, 0x10_0000, 0x20);
        let place = self.one_of(&[0, fixed, fixed, fixed, vacant, vacant]);
        let flag = self.one_of(&MAP_FLAGS);
        let (file, anonymous_flag) = match self.below(4) {
            0 => (FileDescriptor::ReadWrite, 0),
            1 => (FileDescriptor::ReadOnly, 0),
            _ => (FileDescriptor::None, if self.once_in(16) { 0 } else { anonymous }),
        };
        let offset = match self.below(16) {
            0 => self.below(PAGE_SIZE),
            1 => !(PAGE_SIZE - 1),
            _ => self.below(FILE_PAGES) * PAGE_SIZE,
        };
        // A length that overflows with the offset may fail for either reason.
        let len = if len > 1 << 40 { PAGE_SIZE } else { len };
        let prot = self.one_of(&[3, 3, 3, 1, 2, 0, 5, 7]);
        Syscall::Mmap { addr, len, prot, flags: kind | place | flag | anonymous_flag, file, offset }
    }

    fn remap(&mut self, addr: VirtAddr, old_len: u64) -> Syscall {
        if self.window.is_huge && self.once_in(2) {
            return self.remap_of_huge();
        }
        let (new_addr, new_len) = self.range_or_invalid(VirtAddr::new(0x7fff_ffff_f000));
        let old_len = if self.once_in(12) { 0 } else { old_len };
        let new_len = match self.below(3) {
            0 => old_len,
            1 if self.once_in(8) => 0,
            _ => new_len,
        };
        let (maymove, fixed, dontunmap) = (1, 2, 4);
        let moves = [
            0,
            maymove,
            maymove,
            maymove | fixed,
            maymove | fixed,
            maymove | dontunmap,
            maymove | fixed | dontunmap,
            fixed,
            dontunmap,
            8,
        ];
        Syscall::Exclusive(ExclusiveCall::Remap { addr, old_len, new_len, flags: self.one_of(&moves), new_addr })
    }

    fn advise(&mut self, addr: VirtAddr, len: u64) -> Syscall {
        Syscall::Exclusive(ExclusiveCall::Advise { addr, len, advice: self.one_of(&ADVICE) })
    }

    fn limit(&mut self) -> Syscall {
        let (resource, most) = LIMITS[self.below(4) as usize];
        // With a soft RLIMIT_DATA of 0, Linux checks the hard limit instead.
        let least = u64::from(resource == RLIMIT_DATA);
        let bytes = match self.below(8) {
            0..4 => most,
            // A limit of 0 has an errno of its own (mlock: EPERM).
            4 => least * PAGE_SIZE,
            _ => self.below(128).max(least) * PAGE_SIZE,
        };
        Syscall::Exclusive(ExclusiveCall::Limit { resource, bytes: bytes.min(most) })
    }

    fn file_call(&mut self) -> Syscall {
        let offset = self.below(FILE_PAGES + 2) * PAGE_SIZE + self.below(3) * 8;
        match self.below(16) {
            0..4 => Syscall::Pread { offset },
            4..8 => Syscall::Pwrite { offset },
            8..12 => {
                let flags = self.one_of(&[0, 1, 3, 3, 2, 0x10]);
                let len = if self.once_in(8) { 0 } else { self.below(4 * PAGE_SIZE) };
                // The reference memory follows cells of eight bytes.
                let len = if self.runs_on_linux() { len } else { len / 8 * 8 };
                Syscall::Fallocate { flags, offset, len }
            }
            12 => Syscall::AddSeals {
                file: if self.once_in(4) { FileDescriptor::ReadOnly } else { FileDescriptor::ReadWrite },
                seals: self.one_of(&[0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x6]),
            },
            _ => Syscall::GetSeals,
        }
    }

    fn process_vm_readv(&mut self, addr: VirtAddr) -> Syscall {
        let process = self.below(4) as usize;
        let addr = addr.align_down(PAGE_SIZE);
        match VirtAddr::new(u64::MAX - 2 * PAGE_SIZE) > addr {
            true => Syscall::ProcessVmReadv { process, addr: addr.add(PAGE_SIZE - 16), len: self.below(5) * 8 },
            false => Syscall::ProcessVmReadv { process, addr, len: 8 },
        }
    }
}
