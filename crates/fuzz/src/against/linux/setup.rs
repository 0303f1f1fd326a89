//! Sets up the root process and probes for missing features.
//!
//! The setup unmaps the shell's memory, places the heap, sets limits and drops privileges.
//!
//! Not guaranteed: that the probes detect every missing feature of another kernel build.

use super::calls::number;
use super::{ARGUMENT, LEAST_ERRNO, Linux, OUTPUT, bytes_of};
use crate::against::AgainstError;
use crate::against::initial_state::{CODE, DATA, END, HostSettings, LIMITS};
use crate::against::missing_feature::MissingFeature;
use crate::against::tracee::Tracee;
use crate::random::HEAP;
use crate::random::registers::PIDFD_SELF;
use nix::libc;
use pagewright_arch::{Isa, X86_64};
use pagewright_syscall::LinuxCall;
use pagewright_types::{PAGE_SIZE, VirtAddr};
use std::io::ErrorKind;

/// The value of our setting that is the host's `transparent_hugepage/enabled`.
fn huge_pages() -> u64 {
    // Without the file, the kernel has no huge pages.
    let words = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    words.split_whitespace().position(|word| word.starts_with('[')).map_or(2, |value| value as u64)
}

impl Linux {
    /// Starts and sets up a root process.
    pub(in crate::against) fn start() -> Result<Self, AgainstError> {
        let tracee = Tracee::start()?;
        let text = std::fs::read_to_string("/proc/sys/vm/mmap_min_addr").map_err(AgainstError::Control)?;
        let mmap_min_addr = text.trim().parse().map_err(|_| AgainstError::Control(ErrorKind::InvalidData.into()))?;
        let huge_pages = huge_pages();
        let host = HostSettings { hard: [0; LIMITS.len()], pagemap_bits: 0, mmap_min_addr, huge_pages };
        let (missing, processes) = (Vec::new(), Vec::new());
        let mut linux = Self { tracee, host, base: 0, missing, processes, read_write: 0, read_only: 0, pipe: [0; 2] };
        linux.unmap_shell()?;
        linux.place_heap()?;
        linux.set_limits()?;
        linux.drop_privileges()?;
        // Ended children must not become zombies: ignore SIGCHLD.
        linux.tracee.write_data(ARGUMENT, &bytes_of(&[1, 0, 0, 0]))?;
        linux.root_call("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGCHLD as u64, DATA, 0, 8, 0, 0])?;
        let private_anonymous = 0x22;
        let highest = linux.root_call("mmap", libc::SYS_mmap, [0, PAGE_SIZE, 0, private_anonymous, u64::MAX, 0])?;
        linux.root_call("munmap", libc::SYS_munmap, [highest, PAGE_SIZE, 0, 0, 0, 0])?;
        linux.base = highest + PAGE_SIZE;
        linux.probe()?;
        Ok(linux)
    }

    /// Makes a call of the root process.
    fn call_root(&self, number: i64, arguments: [u64; 6]) -> Result<i64, AgainstError> {
        let pid = self.tracee.pid();
        self.returned(pid, self.tracee.call(pid, number, arguments)?)
    }

    /// Makes a call of the root process that must succeed.
    fn root_call(&self, name: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, AgainstError> {
        let returned = self.call_root(number, arguments)?;
        if (LEAST_ERRNO..0).contains(&returned) {
            return Err(AgainstError::Setup { name, errno: nix::errno::Errno::from_raw(-returned as i32) });
        }
        Ok(returned as u64)
    }

    /// Unmaps the shell's memory.
    fn unmap_shell(&self) -> Result<(), AgainstError> {
        let user_end = X86_64::USER_END.raw();
        self.root_call("munmap", libc::SYS_munmap, [0, CODE, 0, 0, 0, 0])?;
        self.root_call("munmap", libc::SYS_munmap, [END, user_end - END, 0, 0, 0, 0]).map(drop)
    }

    /// Sets an empty heap at [`HEAP`] (`PR_SET_MM_MAP`, `struct prctl_mm_map`).
    fn place_heap(&self) -> Result<(), AgainstError> {
        let (heap, any) = (HEAP.raw(), CODE);
        let no_auxv_no_exe = u64::from(u32::MAX) << 32;
        let mut map = vec![any, any + 1, any, any, heap, heap];
        map.extend([any; 5]);
        map.extend([0, no_auxv_no_exe]);
        self.tracee.write_data(ARGUMENT, &bytes_of(&map))?;
        let (what, bytes) = (libc::PR_SET_MM_MAP as u64, map.len() as u64 * 8);
        self.root_call("prctl(PR_SET_MM)", libc::SYS_prctl, [libc::PR_SET_MM as u64, what, DATA, bytes, 0, 0]).map(drop)
    }

    fn set_limits(&mut self) -> Result<(), AgainstError> {
        for (index, (resource, bytes)) in LIMITS.into_iter().enumerate() {
            self.root_call("prlimit64", libc::SYS_prlimit64, [0, resource.into(), 0, DATA + OUTPUT, 0, 0])?;
            let old = self.tracee.read_data(OUTPUT + 8, 8)?;
            self.host.hard[index] = u64::from_le_bytes(old.try_into().unwrap_or_default());
            self.tracee.write_data(ARGUMENT, &bytes_of(&[bytes, self.host.hard[index]]))?;
            self.root_call("prlimit64", libc::SYS_prlimit64, [0, resource.into(), DATA, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Drops all capabilities except `CAP_SYS_NICE`, which `process_madvise` needs.
    fn drop_privileges(&mut self) -> Result<(), AgainstError> {
        let (version_3, sys_nice) = (0x2008_0522, 1 << 23);
        let capset = |capabilities: u64| {
            self.tracee.write_data(ARGUMENT, &bytes_of(&[version_3, capabilities << 32 | capabilities, 0, 0, 0]))?;
            self.call_root(libc::SYS_capset, [DATA, DATA + 8, 0, 0, 0, 0])
        };
        if capset(sys_nice)? < 0 {
            self.missing.push(MissingFeature::AdviseOthers);
            self.tracee.write_data(ARGUMENT, &bytes_of(&[version_3, 0, 0, 0, 0]))?;
            self.root_call("capset", libc::SYS_capset, [DATA, DATA + 8, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    fn probe(&mut self) -> Result<(), AgainstError> {
        let probes = [
            (MissingFeature::Seal, number(LinuxCall::Mseal), [CODE, 0, 0, 0, 0, 0]),
            (MissingFeature::Guard, libc::SYS_madvise, [CODE, 0, 102, 0, 0, 0]),
            (MissingFeature::AdviseRanges, libc::SYS_process_madvise, [PIDFD_SELF, DATA, 0, 4, 0, 0]),
        ];
        for (feature, number, arguments) in probes {
            if self.call_root(number, arguments)? < 0 {
                self.missing.push(feature);
            }
        }
        self.probe_pagemap()
    }

    /// Finds the bits of `pagemap`.
    ///
    /// New mappings have the soft-dirty bit, if the kernel has it; a page with a guard has the
    /// guard bit.
    fn probe_pagemap(&mut self) -> Result<(), AgainstError> {
        let (soft_dirty, exclusive, guard, file_and_present) = (1 << 55, 1 << 56, 1 << 58, 0b111 << 61);
        let word = self.pages(self.tracee.pid(), VirtAddr::new(CODE), 1)?[0];
        self.host.pagemap_bits = exclusive | file_and_present | word & soft_dirty;
        if !self.missing.contains(&MissingFeature::Guard) {
            let private_anonymous = 0x22;
            let at = self.root_call("mmap", libc::SYS_mmap, [0, PAGE_SIZE, 0, private_anonymous, u64::MAX, 0])?;
            self.root_call("madvise", libc::SYS_madvise, [at, PAGE_SIZE, 102, 0, 0, 0])?;
            self.host.pagemap_bits |= self.pages(self.tracee.pid(), VirtAddr::new(at), 1)?[0] & guard;
            self.root_call("munmap", libc::SYS_munmap, [at, PAGE_SIZE, 0, 0, 0, 0])?;
        }
        if self.host.pagemap_bits & soft_dirty == 0 {
            self.missing.push(MissingFeature::SoftDirty);
        }
        if self.host.pagemap_bits & guard == 0 {
            self.missing.push(MissingFeature::GuardBit);
        }
        Ok(())
    }
}
