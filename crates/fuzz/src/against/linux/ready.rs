//! Getting the root process ready: everything that it had is unmapped, its heap is put where
//! programs expect it, its privileges are dropped and its limits set, and what the kernel does not
//! have is found out.
//!
//! Not guaranteed: that a kernel that was built without something says so in the same way.

use super::calls::number;
use super::{ANSWER, ARGUMENT, LEAST_ERRNO, Linux, bytes_of};
use crate::against::AgainstError;
use crate::against::lack::{CODE, DATA, END, Host, LIMITS, Lack};
use crate::against::tracee::Tracee;
use crate::random::HEAP;
use crate::random::registers::PIDFD_SELF;
use nix::libc;
use pagewright_arch::{Isa, X86_64};
use pagewright_syscall::LinuxCall;
use pagewright_types::{PAGE_SIZE, VirtAddr};
use std::io::ErrorKind;

impl Linux {
    /// Gets a root process ready.
    pub(in crate::against) fn start() -> Result<Self, AgainstError> {
        let tracee = Tracee::start()?;
        let least = std::fs::read_to_string("/proc/sys/vm/mmap_min_addr").map_err(AgainstError::Control)?;
        let least_address = least.trim().parse().map_err(|_| AgainstError::Control(ErrorKind::InvalidData.into()))?;
        let host = Host { hard: [0; LIMITS.len()], page_state: 0, least_address };
        let (lacks, processes) = (Vec::new(), Vec::new());
        let mut linux = Self { tracee, host, base: 0, lacks, processes, both: 0, reading: 0, pipe: [0; 2] };
        linux.clear()?;
        linux.place_heap()?;
        linux.set_limits()?;
        linux.drop_privileges()?;
        // Ended children are not to wait for somebody to ask for them (SIG_IGN for SIGCHLD).
        linux.tracee.put(ARGUMENT, &bytes_of(&[1, 0, 0, 0]))?;
        linux.must("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGCHLD as u64, DATA, 0, 8, 0, 0])?;
        // No huge pages: the memory manager here has none.
        linux.must("prctl", libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0, 0])?;
        let private_anonymous = 0x22;
        let highest = linux.must("mmap", libc::SYS_mmap, [0, PAGE_SIZE, 0, private_anonymous, u64::MAX, 0])?;
        linux.must("munmap", libc::SYS_munmap, [highest, PAGE_SIZE, 0, 0, 0, 0])?;
        linux.base = highest + PAGE_SIZE;
        linux.probe()?;
        Ok(linux)
    }

    fn root(&self, number: i64, arguments: [u64; 6]) -> Result<i64, AgainstError> {
        let pid = self.tracee.pid();
        self.answer(pid, self.tracee.call(pid, number, arguments)?)
    }

    /// A call of the root's that has no reason to fail.
    fn must(&self, name: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, AgainstError> {
        let answer = self.root(number, arguments)?;
        if (LEAST_ERRNO..0).contains(&answer) {
            return Err(AgainstError::Setup { name, errno: nix::errno::Errno::from_raw(-answer as i32) });
        }
        Ok(answer as u64)
    }

    /// Unmaps what the shell had.
    fn clear(&self) -> Result<(), AgainstError> {
        let user_end = X86_64::USER_END.raw();
        self.must("munmap", libc::SYS_munmap, [0, CODE, 0, 0, 0, 0])?;
        self.must("munmap", libc::SYS_munmap, [END, user_end - END, 0, 0, 0, 0]).map(drop)
    }

    /// The heap begins where programs expect it, and is empty (`struct prctl_mm_map`).
    fn place_heap(&self) -> Result<(), AgainstError> {
        let (heap, somewhere) = (HEAP.raw(), CODE);
        let no_auxv_no_exe = u64::from(u32::MAX) << 32;
        let mut map = vec![somewhere, somewhere + 1, somewhere, somewhere, heap, heap];
        map.extend([somewhere; 5]);
        map.extend([0, no_auxv_no_exe]);
        self.tracee.put(ARGUMENT, &bytes_of(&map))?;
        let (what, bytes) = (libc::PR_SET_MM_MAP as u64, map.len() as u64 * 8);
        self.must("prctl(PR_SET_MM)", libc::SYS_prctl, [libc::PR_SET_MM as u64, what, DATA, bytes, 0, 0]).map(drop)
    }

    fn set_limits(&mut self) -> Result<(), AgainstError> {
        for (place, (resource, bytes)) in LIMITS.into_iter().enumerate() {
            self.must("prlimit64", libc::SYS_prlimit64, [0, resource.into(), 0, DATA + ANSWER, 0, 0])?;
            let old = self.tracee.take(ANSWER + 8, 8)?;
            self.host.hard[place] = u64::from_le_bytes(old.try_into().unwrap_or_default());
            self.tracee.put(ARGUMENT, &bytes_of(&[bytes, self.host.hard[place]]))?;
            self.must("prlimit64", libc::SYS_prlimit64, [0, resource.into(), DATA, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Without any capability, even if we are root, but that to advise other processes, if we have
    /// it.
    fn drop_privileges(&mut self) -> Result<(), AgainstError> {
        let (version_3, sys_nice) = (0x2008_0522, 1 << 23);
        let capset = |capabilities: u64| {
            self.tracee.put(ARGUMENT, &bytes_of(&[version_3, capabilities << 32 | capabilities, 0, 0, 0]))?;
            self.root(libc::SYS_capset, [DATA, DATA + 8, 0, 0, 0, 0])
        };
        if capset(sys_nice)? < 0 {
            self.lacks.push(Lack::AdviseOthers);
            self.tracee.put(ARGUMENT, &bytes_of(&[version_3, 0, 0, 0, 0]))?;
            self.must("capset", libc::SYS_capset, [DATA, DATA + 8, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    fn probe(&mut self) -> Result<(), AgainstError> {
        let asked = [
            (Lack::Seal, number(LinuxCall::Mseal), [CODE, 0, 0, 0, 0, 0]),
            (Lack::Guard, libc::SYS_madvise, [CODE, 0, 102, 0, 0, 0]),
            (Lack::AdviseRanges, libc::SYS_process_madvise, [PIDFD_SELF, DATA, 0, 4, 0, 0]),
        ];
        for (lack, number, arguments) in asked {
            if self.root(number, arguments)? < 0 {
                self.lacks.push(lack);
            }
        }
        self.probe_pages()
    }

    /// Which bits `pagemap` has: soft-dirty ones are set in every new mapping, and a guard is told
    /// apart from a hole.
    fn probe_pages(&mut self) -> Result<(), AgainstError> {
        let (soft_dirty, exclusive, guard, file_and_present) = (1 << 55, 1 << 56, 1 << 58, 0b111 << 61);
        let word = self.pages(self.tracee.pid(), VirtAddr::new(CODE), 1)?[0];
        self.host.page_state = exclusive | file_and_present | word & soft_dirty;
        if !self.lacks.contains(&Lack::Guard) {
            let private_anonymous = 0x22;
            let at = self.must("mmap", libc::SYS_mmap, [0, PAGE_SIZE, 0, private_anonymous, u64::MAX, 0])?;
            self.must("madvise", libc::SYS_madvise, [at, PAGE_SIZE, 102, 0, 0, 0])?;
            self.host.page_state |= self.pages(self.tracee.pid(), VirtAddr::new(at), 1)?[0] & guard;
            self.must("munmap", libc::SYS_munmap, [at, PAGE_SIZE, 0, 0, 0, 0])?;
        }
        if self.host.page_state & soft_dirty == 0 {
            self.lacks.push(Lack::SoftDirty);
        }
        if self.host.page_state & guard == 0 {
            self.lacks.push(Lack::GuardBit);
        }
        Ok(())
    }
}
