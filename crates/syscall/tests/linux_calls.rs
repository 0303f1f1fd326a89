//! The table of Linux's memory calls and flags against the memory manager.
//!
//! A supported flag is accepted in a valid call. Any other is refused with the errno that the table
//! names. No flag that the code knows is missing from the table.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::Lab;
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::space::{FileMapping, Limit, Resource, SyncFlags, Whose};
use pagewright_mm::user::IoVec;
use pagewright_mm::{
    Advice, Knobs, LockAllFlags, LockFlags, MapFlags, MapRequest, Mm, MmError, Protection, RemapFlags, RemapRequest,
    Space,
};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_syscall::{CallSupport, FlagSupport, LINUX_CALLS, Support, call_support};
use pagewright_types::{CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

const CPU: CpuId = CpuId::new(0);
const AT: VirtAddr = VirtAddr::new(0x1000_0000);
const SHARED: VirtAddr = VirtAddr::new(0x2000_0000);
const LEN: u64 = 4 * PAGE_SIZE;

/// A space with private memory at [`AT`] and shared memory at [`SHARED`].
fn space<I: Isa>(mm: &Mm<Sim<I>>) -> Arc<Space<Sim<I>>> {
    let space = mm.new_space().expect("memory");
    for (addr, kind) in [(AT, MapFlags::PRIVATE), (SHARED, MapFlags::SHARED)] {
        let flags = kind | MapFlags::ANONYMOUS | MapFlags::FIXED;
        mm.mmap(&space, &MapRequest { addr, len: LEN, rights: Rights::RW, flags, file: None }).expect("room");
    }
    space
}

fn mmap<I: Isa>(mm: &Mm<Sim<I>>, space: &Space<Sim<I>>, rights: Rights, flags: u32) -> Result<(), MmError> {
    // A valid call has one of the kinds, and all but the third are of anonymous memory here.
    let (kinds, shared_validate) = (0xf, 3);
    let kind = if flags & kinds == 0 { MapFlags::PRIVATE } else { MapFlags::empty() };
    let file = mm.memfd_create("file", MemfdFlags::empty())?;
    let mapping = (flags == shared_validate).then_some(FileMapping { file: &file, offset: 0, opened: Rights::RW });
    let anonymous = if mapping.is_none() { MapFlags::ANONYMOUS } else { MapFlags::empty() };
    let flags = MapFlags::from_bits_retain(flags) | kind | anonymous;
    let addr = AT.add(64 * PAGE_SIZE);
    mm.mmap(space, &MapRequest { addr, len: LEN, rights, flags, file: mapping }).map(drop)
}

fn protect<I: Isa>(mm: &Mm<Sim<I>>, space: &Space<Sim<I>>, protection: Protection) -> Result<(), MmError> {
    let grows = MapFlags::GROWSDOWN.bits();
    mmap(mm, space, protection.rights(), if protection == Protection::GROWSDOWN { grows } else { 0 })?;
    let protected = mm.mprotect(space, AT.add(65 * PAGE_SIZE), PAGE_SIZE, protection);
    if protection == Protection::GROWSUP {
        assert_eq!(protected.map_err(MmError::errno), Err(Errno::EINVAL));
        return Ok(());
    }
    protected
}

fn seal<I: Isa>(mm: &Mm<Sim<I>>, seal: u32) -> Result<(), MmError> {
    let file = mm.memfd_create("file", MemfdFlags::ALLOW_SEALING)?;
    mm.add_seals(&file, Rights::RW, Seals::from_bits_retain(seal))?;
    assert!(file.seals()?.bits() & seal == seal);
    Ok(())
}

fn allocate<I: Isa>(mm: &Mm<Sim<I>>, flags: u32) -> Result<(), MmError> {
    let file = mm.memfd_create("file", MemfdFlags::empty())?;
    let keeps = if flags == FallocateFlags::PUNCH_HOLE.bits() { FallocateFlags::KEEP_SIZE.bits() } else { 0 };
    mm.fallocate(&file, FallocateFlags::from_bits_retain(flags | keeps), 0, LEN)
}

/// Makes a call that is valid, flag aside.
fn make<I: Isa>(mm: &Mm<Sim<I>>, name: &str, value: u32) -> Result<(), Errno> {
    let space = space(mm);
    let unknown = MmError::BadFlags { flags: value };
    let made = match name {
        "mmap" => mmap(mm, &space, Rights::RW, value),
        "mmap and mprotect: protection" => protect(mm, &space, Protection::from_bits_retain(value)),
        "mremap" => {
            let flags = RemapFlags::from_bits_retain(value) | RemapFlags::MAYMOVE;
            let new_addr = AT.add(128 * PAGE_SIZE);
            let request = RemapRequest { addr: AT, old_len: LEN, new_len: LEN, flags, new_addr };
            mm.mremap(&space, &request).map(drop)
        }
        "madvise" => Advice::from_raw(value).and_then(|advice| {
            let at = if advice == Advice::Remove { SHARED } else { AT };
            mm.process_madvise(&space, Whose::Own, &[(at, LEN)], advice)?;
            mm.madvise(&space, at, LEN, advice)
        }),
        "mlock2" => mm.mlock2(&space, AT, LEN, LockFlags::from_bits_retain(value)),
        "mlockall" => mm.mlockall(&space, LockAllFlags::from_bits_retain(value) | LockAllFlags::CURRENT),
        "msync" => mm.msync(&space, AT, LEN, SyncFlags::from_bits_retain(value)),
        "mseal" => mm.mseal(&space, AT, LEN, value),
        "memfd_create" => mm.memfd_create("file", MemfdFlags::from_bits_retain(value)).map(drop),
        "fcntl(F_ADD_SEALS, F_GET_SEALS)" => seal(mm, value),
        "fallocate" => allocate(mm, value),
        "setrlimit, prlimit64" => match Resource::from_raw(value) {
            Some(resource) => mm.set_limit(&space, resource, Limit { soft: 1 << 20, hard: 1 << 20 }).map(drop),
            None => Err(unknown),
        },
        "process_vm_readv, process_vm_writev" => {
            let (to, from) = ([IoVec { base: AT, len: 8 }], [IoVec { base: SHARED, len: 8 }]);
            mm.process_vm_readv((&space, &to), (&space, &from), value.into()).map(drop)
        }
        other => panic!("no valid call of {other} with a flag is known here"),
    };
    made.map_err(MmError::errno)
}

fn holds<I: Isa>(call: &CallSupport, flag: &FlagSupport) {
    let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    let lab = Lab::<I>::new(config, Knobs::default()).expect("a possible machine");
    let expected = match flag.support {
        Support::Full | Support::Partial(_) => Ok(()),
        Support::Refused(errno, _) => Err(errno),
    };
    let made = lab.on(CPU, |mm| make(mm, call.name, flag.value));
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
        ("setrlimit, prlimit64", Resource::ALL.iter().map(|resource| *resource as u32).collect()),
    ]
}

#[test]
fn no_flag_that_the_code_knows_is_missing() {
    for (name, known) in known() {
        let call = call_support(name).expect("in the table");
        let mut accepted: Vec<u32> = call.accepted_flags().map(|flag| flag.value).collect();
        accepted.retain(|value| value.is_power_of_two() || name == "madvise" || name == "setrlimit, prlimit64");
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
