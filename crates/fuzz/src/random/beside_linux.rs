//! Draws every call, with raw flags, some of them bad.
//!
//! What both sides can't do alike is not drawn: sizes that one of the machines has no memory for,
//! addresses of the processes' own two mappings, and another process's end while a call concerns
//! it.

use super::generate::{FILE_PAGES, Generator, Window};
use super::operation::Operation;
use super::program::Mode;
use super::syscall::{Descriptor, Syscall};
use pagewright_model::spec::ExclusiveCall;
use pagewright_types::{Access, PAGE_SIZE, VirtAddr};

/// `MAP_*` that go together with the kind and the place.
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
/// Every advice that Linux knows, and some that it does not.
const ADVICE: [u32; 30] =
    [0, 1, 2, 3, 4, 4, 8, 8, 9, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 22, 23, 23, 24, 102, 102, 103, 5, 7, 26, 200];
/// Those of them that Linux knows.
const KNOWN: &[u32] = ADVICE.split_at(26).0;
/// `RLIMIT_*` that are about memory: what programs start with, in bytes.
const LIMITS: [(u32, u64); 4] = [(9, u64::MAX), (2, u64::MAX), (3, 8 << 20), (8, 32 * PAGE_SIZE)];
const RLIMIT_DATA: u32 = 2;
/// `PROT_*`: rights, SEM, GROWSDOWN, GROWSUP, both, and unknown ones.
const PROTECTION: [u32; 12] = [0, 1, 3, 7, 8, 0xb, 0x100_0003, 0x100_0001, 0x200_0003, 0x300_0003, 0x10, 0x8000_0003];
/// Where stacks end, out of the window's way.
const STACK: VirtAddr = VirtAddr::new(7 << 30);
/// Pages below that at which something is mapped or accessed: near each other, and as far as a
/// guard gap from each other, or not quite.
const STEPS: [u64; 16] = [1, 2, 3, 4, 16, 254, 255, 256, 257, 258, 259, 260, 300, 514, 515, 600];

impl Generator {
    /// The next operation of a program beside Linux.
    pub(super) fn beside_linux(&mut self) -> Operation {
        match self.below(128) {
            0..52 => self.access(),
            52..58 => self.switch(),
            58..80 => self.call(),
            80..82 => Operation::Syscall(Syscall::Maps),
            82 => Operation::Syscall(Syscall::Usage),
            83 => {
                let (addr, pages) = Window::of(Mode::Linux).with_neighbours();
                Operation::Syscall(Syscall::Pages { addr, pages })
            }
            84..88 => self.around_stack(),
            88..95 => Operation::Syscall(self.rarer()),
            _ => Operation::Syscall(self.syscall()),
        }
    }

    /// A call that only Linux judges.
    fn rarer(&mut self) -> Syscall {
        let user_end = self.user_end();
        let (addr, len) = self.argument(user_end);
        let process = self.below(4) as usize;
        match self.below(17) {
            16 => {
                let (addr, len) = (VirtAddr::new(self.below(4) * PAGE_SIZE), PAGE_SIZE);
                let flags = self.one_of(&[0x32, 0x32, 0x10_0022]);
                Syscall::Map { addr, len, prot: 3, flags, file: Descriptor::None, offset: 0 }
            }
            0..3 => Syscall::Protect { addr, len, prot: self.one_of(&PROTECTION) },
            3 => {
                let (vec, _) = self.range();
                Syscall::ResidentInto { addr, len, vec: vec.add(PAGE_SIZE - self.below(64)) }
            }
            4 | 5 => self.both_limits(),
            6..8 => Syscall::WriteOther { process, addr: addr.align_down(PAGE_SIZE).add(self.below(3) * 8) },
            8 | 9 => {
                let advice = self.one_of(&ADVICE);
                let (addr, len) = if KNOWN.contains(&advice) { (addr, len) } else { self.range() };
                Syscall::AdviseOther { process, addr, len, advice }
            }
            10..13 => Syscall::Splice { addr: addr.align_down(PAGE_SIZE).add(self.below(3) * 8) },
            _ => Syscall::Drain,
        }
    }

    /// Stacks that grow, and what they must keep away from.
    fn around_stack(&mut self) -> Operation {
        let below = self.below(STEPS.len() as u64) as usize;
        let (addr, len) = (VirtAddr::new(STACK.raw() - STEPS[below] * PAGE_SIZE), (1 + self.below(3)) * PAGE_SIZE);
        match self.below(8) {
            0 | 1 => {
                let (prot, flags) = (self.one_of(&[3, 3, 3, 1, 0]), self.one_of(&[0x32, 0x132, 0x132, 0x2132]));
                let file = Descriptor::None;
                Operation::Syscall(Syscall::Map { addr, len, prot, flags, file, offset: 0 })
            }
            2 if self.once_in(4) => Operation::Unmap { addr, len },
            2 => {
                let prot = self.one_of(&[0x100_0000, 0x100_0001, 0x100_0003, 0x100_0003]);
                Operation::Syscall(Syscall::Protect { addr, len, prot })
            }
            _ => {
                let access = if self.once_in(2) { Access::Read } else { Access::Write };
                Operation::Access { va: addr.add(8), access }
            }
        }
    }

    fn both_limits(&mut self) -> Syscall {
        let Syscall::Exclusive(ExclusiveCall::Limit { resource, bytes }) = self.limit() else {
            unreachable!("a limit was drawn")
        };
        let (soft, hard) = match self.below(8) {
            0 => (bytes, u64::MAX),
            // Linux then looks at the other.
            1..3 => (0, self.below(128) * PAGE_SIZE),
            3 => (bytes, bytes / 2),
            _ => (bytes / 2, bytes),
        };
        Syscall::BothLimits { resource, soft, hard }
    }

    /// A call with raw flags.
    pub(super) fn syscall(&mut self) -> Syscall {
        let user_end = self.user_end();
        let (addr, len) = self.argument(user_end);
        match self.below(32) {
            0..4 => self.raw_map(addr, len),
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
                // Unknown advice about bad ranges may be refused for either reason.
                let first = if KNOWN.contains(&advice) { (addr, len) } else { self.range() };
                Syscall::Exclusive(ExclusiveCall::AdviseRanges { ranges: [first, self.range()], advice })
            }
            _ => self.read_other(addr),
        }
    }

    fn one_of(&mut self, values: &[u32]) -> u32 {
        values[self.below(values.len() as u64) as usize]
    }

    fn raw_map(&mut self, addr: VirtAddr, len: u64) -> Syscall {
        let kind = self.one_of(&[1, 2, 2, 2, 3, 0]);
        let (fixed, vacant, anonymous) = (0x10, 0x10_0000, 0x20);
        let place = self.one_of(&[0, fixed, fixed, fixed, vacant, vacant]);
        let flag = self.one_of(&MAP_FLAGS);
        let (file, what) = match self.below(4) {
            0 => (Descriptor::Both, 0),
            1 => (Descriptor::Reading, 0),
            _ => (Descriptor::None, if self.once_in(16) { 0 } else { anonymous }),
        };
        let offset = match self.below(16) {
            0 => self.below(PAGE_SIZE),
            1 => !(PAGE_SIZE - 1),
            _ => self.below(FILE_PAGES) * PAGE_SIZE,
        };
        // A length that overflows together with an offset may be refused for either reason.
        let len = if len > 1 << 40 { PAGE_SIZE } else { len };
        let prot = self.one_of(&[3, 3, 3, 1, 2, 0, 5, 7]);
        Syscall::Map { addr, len, prot, flags: kind | place | flag | what, file, offset }
    }

    fn remap(&mut self, addr: VirtAddr, old_len: u64) -> Syscall {
        let (new_addr, new_len) = self.argument(VirtAddr::new(0x7fff_ffff_f000));
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
        // A limit of no data is none, and the one to which it may be raised is looked at.
        let least = u64::from(resource == RLIMIT_DATA);
        let bytes = match self.below(8) {
            0..4 => most,
            // Nothing at all is a limit with an errno of its own (EPERM of mlock).
            4 => least * PAGE_SIZE,
            _ => self.below(128).max(least) * PAGE_SIZE,
        };
        Syscall::Exclusive(ExclusiveCall::Limit { resource, bytes: bytes.min(most) })
    }

    fn file_call(&mut self) -> Syscall {
        let offset = self.below(FILE_PAGES + 2) * PAGE_SIZE + self.below(3) * 8;
        match self.below(16) {
            0..4 => Syscall::Read { offset },
            4..8 => Syscall::Write { offset },
            8..12 => {
                let flags = self.one_of(&[0, 1, 3, 3, 2, 0x10]);
                let len = if self.once_in(8) { 0 } else { self.below(4 * PAGE_SIZE) };
                // The reference memory knows cells.
                let len = if self.is_beside_linux() { len } else { len / 8 * 8 };
                Syscall::Allocate { flags, offset, len }
            }
            12 => Syscall::AddSeals {
                file: if self.once_in(4) { Descriptor::Reading } else { Descriptor::Both },
                seals: self.one_of(&[0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x6]),
            },
            _ => Syscall::GetSeals,
        }
    }

    fn read_other(&mut self, addr: VirtAddr) -> Syscall {
        let process = self.below(4) as usize;
        let addr = addr.align_down(PAGE_SIZE);
        match VirtAddr::new(u64::MAX - 2 * PAGE_SIZE) > addr {
            true => Syscall::ReadOther { process, addr: addr.add(PAGE_SIZE - 16), len: self.below(5) * 8 },
            false => Syscall::ReadOther { process, addr, len: 8 },
        }
    }
}
