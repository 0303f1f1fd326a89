//! The table of Linux's memory calls and flags against the memory manager.
//!
//! A supported flag is accepted in a valid call. Any other is refused with the errno that the table
//! names. No flag that the code knows is missing from the table.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::{Lab, LabCaller};
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::policy::{PolicyFlags, PolicyQuery};
use pagewright_mm::space::{Resource, SyncFlags};
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, Mm, MmSettings, Protection, RemapFlags};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_syscall::{CallSupport, FlagSupport, LINUX_CALLS, LinuxCall, Support, call_support};
use pagewright_types::{CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

const CPU: CpuId = CpuId::new(0);
/// Private memory.
const PRIVATE: u64 = 0x1000_0000;
/// Shared memory.
const SHARED: u64 = 0x2000_0000;
/// Free.
const ELSEWHERE: u64 = 0x3000_0000;
/// What pointers lead to.
const DATA: u64 = 0x4000_0000;
const LEN: u64 = 4 * PAGE_SIZE;
const PIDFD_SELF: u64 = -10000_i64 as u64;
/// The descriptor of a file that can be sealed.
const FD: u64 = 1;
const RW: u64 = 3;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Makes the call of this row in a valid way, except for the flag.
fn make<I: Isa>(mm: &Mm<Sim<I>>, row: &str, flag: u64) -> Result<(), Errno> {
    let space = mm.new_space().expect("memory");
    mm.tlb().switch_to(space.table().context());
    let file = mm.memfd_create("file", MemfdFlags::ALLOW_SEALING).expect("memory");
    let caller = |data: &[u64]| {
        let caller = LabCaller::new(mm, &space).with_file(&file, Rights::RW).with_process(&space);
        caller.with_buffer(VirtAddr::new(DATA), words(data))
    };
    let call = |call: LinuxCall, arguments| caller(&[]).call(call, arguments);
    let (fixed, anonymous) = (u64::from(MapFlags::FIXED.bits()), u64::from(MapFlags::ANONYMOUS.bits()));
    for (at, kind) in [(PRIVATE, MapFlags::PRIVATE), (SHARED, MapFlags::SHARED)] {
        let flags = u64::from(kind.bits()) | fixed | anonymous;
        call(LinuxCall::Mmap, [at, LEN, RW, flags, u64::MAX, 0]).expect("room");
    }
    let mmap = |protection, flags: u64| {
        // A valid call has one of the kinds, and MAP_SHARED_VALIDATE is of a file.
        let (kinds, shared_validate) = (0xf, 3);
        let kind = if flags & kinds == 0 { u64::from(MapFlags::PRIVATE.bits()) } else { 0 };
        let anonymous = if flags == shared_validate { 0 } else { anonymous };
        call(LinuxCall::Mmap, [ELSEWHERE, LEN, protection, flags | kind | anonymous, FD, 0])
    };
    let done = match row {
        "mmap" => mmap(RW, flag),
        "mmap and mprotect: protection" => {
            let grows = flag == u64::from(Protection::GROWSDOWN.bits());
            let flags = if grows { MapFlags::GROWSDOWN } else { MapFlags::empty() };
            let at = mmap(flag, flags.bits().into())?;
            let protected = call(LinuxCall::Mprotect, [at, PAGE_SIZE, flag, 0, 0, 0]);
            if flag == u64::from(Protection::GROWSUP.bits()) {
                assert_eq!(protected, Err(Errno::EINVAL));
                return Ok(());
            }
            protected
        }
        "mremap" => {
            let flags = flag | u64::from(RemapFlags::MAYMOVE.bits());
            call(LinuxCall::Mremap, [PRIVATE, LEN, LEN, flags, ELSEWHERE, 0])
        }
        "madvise" => {
            let at = if flag == u64::from(Advice::Remove.raw()) { SHARED } else { PRIVATE };
            let ranges = caller(&[at, LEN]);
            ranges.call(LinuxCall::ProcessMadvise, [PIDFD_SELF, DATA, 1, flag, 0, 0])?;
            call(LinuxCall::Madvise, [at, LEN, flag, 0, 0, 0])
        }
        "mlock2" => call(LinuxCall::Mlock2, [PRIVATE, LEN, flag, 0, 0, 0]),
        "mlockall" => {
            let flags = flag | u64::from(LockAllFlags::CURRENT.bits());
            call(LinuxCall::Mlockall, [flags, 0, 0, 0, 0, 0])
        }
        "msync" => call(LinuxCall::Msync, [PRIVATE, LEN, flag, 0, 0, 0]),
        "mseal" => call(LinuxCall::Mseal, [PRIVATE, LEN, flag, 0, 0, 0]),
        "fcntl(F_ADD_SEALS, F_GET_SEALS)" => {
            call(LinuxCall::Fcntl, [FD, 1033, flag, 0, 0, 0])?;
            let seals = call(LinuxCall::Fcntl, [FD, 1034, 0, 0, 0, 0]);
            assert!(seals.is_ok_and(|seals| seals & flag == flag));
            seals
        }
        "fallocate" => {
            let punch = flag == u64::from(FallocateFlags::PUNCH_HOLE.bits());
            let keeps = if punch { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            call(LinuxCall::Fallocate, [FD, flag | u64::from(keeps.bits()), 0, LEN, 0, 0])
        }
        other => make_with_data(caller, other, flag),
    };
    done.map(drop)
}

/// The same of a call with a pointer; `caller` makes one for which words are at [`DATA`].
fn make_with_data<'a, I: Isa>(caller: impl Fn(&[u64]) -> LabCaller<'a, I>, row: &str, flag: u64) -> Result<u64, Errno> {
    match row {
        // The name is the empty string.
        "memfd_create" => caller(&[0; 8]).call(LinuxCall::MemfdCreate, [DATA, flag, 0, 0, 0, 0]),
        "mbind" => caller(&[1]).call(LinuxCall::Mbind, [PRIVATE, LEN, 2, DATA, 64, flag]),
        "set_mempolicy" => {
            // A bare flag is one of MPOL_BIND.
            let (mode, nodes) = if flag > 0xff { (flag | 2, 1) } else { (flag, u64::from(flag > 0)) };
            caller(&[nodes]).call(LinuxCall::SetMempolicy, [mode, DATA, 64, 0, 0, 0])?;
            let stored = caller(&[0, 0]);
            stored.call(LinuxCall::GetMempolicy, [DATA, DATA + 8, 64, 0, 0, 0])
        }
        // MPOL_F_NODE alone is for policies that interleave.
        "get_mempolicy" => {
            let query = if flag == 1 { 3 } else { flag };
            let at = if query == 4 { 0 } else { PRIVATE };
            caller(&[0, 0]).call(LinuxCall::GetMempolicy, [DATA, DATA + 8, 64, at, query, 0])
        }
        "getrlimit, setrlimit, prlimit64" => {
            caller(&[1 << 20, 1 << 20]).call(LinuxCall::Prlimit64, [0, flag, DATA, 0, 0, 0])?;
            caller(&[0, 0]).call(LinuxCall::Getrlimit, [flag, DATA, 0, 0, 0, 0])
        }
        "process_vm_readv, process_vm_writev" => {
            let vectors = caller(&[PRIVATE, 8, SHARED, 8]);
            vectors.call(LinuxCall::ProcessVmReadv, [1, DATA, 1, DATA + 16, 1, flag])
        }
        "move_pages" => {
            let arrays = caller(&[PRIVATE, 0, 0]);
            arrays.call(LinuxCall::MovePages, [0, 1, DATA, DATA + 8, DATA + 16, flag])
        }
        other => panic!("no valid call of {other} with a flag is known here"),
    }
}

fn holds<I: Isa>(call: &CallSupport, flag: &FlagSupport) {
    let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
    let expected = match flag.support {
        Support::Full | Support::Partial(_) => Ok(()),
        Support::Refused(errno, _) => Err(errno),
    };
    let made = lab.on(CPU, |mm| make(mm, call.name, flag.value.into()));
    assert_eq!(made, expected, "{} with {} on {}", call.name, flag.name, I::KIND);
}

#[test]
fn each_flag_is_taken_or_refused_as_the_table_says() {
    for call in LINUX_CALLS {
        for flag in call.flags {
            holds::<X86_64>(call, flag);
            holds::<Aarch64>(call, flag);
        }
    }
}

/// Flags that the code knows, by call.
fn known() -> Vec<(&'static str, Vec<u32>)> {
    fn bits<F: bitflags::Flags<Bits = u32>>() -> Vec<u32> {
        F::FLAGS.iter().map(|flag| flag.value().bits()).collect()
    }
    vec![
        ("mmap", bits::<MapFlags>()),
        ("mmap and mprotect: protection", bits::<Protection>()),
        ("mremap", bits::<RemapFlags>()),
        ("madvise", Advice::ALL.iter().map(|advice| advice.raw()).collect()),
        ("mlock2", bits::<LockFlags>()),
        ("mlockall", bits::<LockAllFlags>()),
        ("msync", bits::<SyncFlags>()),
        ("fcntl(F_ADD_SEALS, F_GET_SEALS)", bits::<Seals>()),
        ("fallocate", bits::<FallocateFlags>()),
        ("get_mempolicy", bits::<PolicyQuery>()),
        ("set_mempolicy", bits::<PolicyFlags>()),
        ("getrlimit, setrlimit, prlimit64", Resource::ALL.iter().map(|resource| resource.number()).collect()),
    ]
}

#[test]
fn no_flag_that_the_code_knows_is_missing() {
    for (name, known) in known() {
        let call = call_support(name).expect("in the table");
        let mut accepted: Vec<u32> = call.accepted_flags().map(|flag| flag.value).collect();
        accepted
            .retain(|value| value.is_power_of_two() || name == "madvise" || name == "getrlimit, setrlimit, prlimit64");
        for value in &known {
            assert!(accepted.contains(value), "{name} takes {value:#x}, of which the table knows nothing");
        }
    }
    // Of these, one bit field is told by one of its values.
    let memfd = call_support("memfd_create").expect("in the table");
    for flag in MemfdFlags::all().iter() {
        assert!(memfd.flags.iter().any(|told| told.value & flag.bits() != 0), "{flag:?} is missing");
    }
}
