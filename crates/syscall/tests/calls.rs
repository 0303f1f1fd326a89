//! Calls from their registers through the decoder to the memory manager, on both instruction sets.
//!
//! Checked are the results that calls return and store, and the errno for a bad pointer, descriptor
//! or process.

use pagewright_arch::{Isa, on_both};
use pagewright_lab::{Lab, LabCaller};
use pagewright_mm::{Mm, MmSettings, Space};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_syscall::{CallArguments, LinuxCall};
use pagewright_types::{Access, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

const CPU: CpuId = CpuId::new(0);
const PIDFD_SELF: u64 = -10000_i64 as u64;
/// Two pages of memory for what pointers lead to, and a hole behind them.
const DATA: u64 = 0x1000_0000;
/// A place where nothing is mapped.
const HOLE: u64 = DATA + 2 * PAGE_SIZE;
/// `PROT_READ | PROT_WRITE`.
const RW: u64 = 3;
/// `MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS`.
const FIXED: u64 = 0x32;

struct Process<I: Isa> {
    lab: Lab<I>,
    space: Arc<Space<Sim<I>>>,
}

impl<I: Isa> Process<I> {
    fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
        let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
        let space = lab.on(CPU, Mm::new_space).expect("memory");
        lab.run(CPU, &space);
        let process = Self { lab, space };
        process.map(DATA, 2);
        process
    }

    fn with<T>(&self, calls: impl FnOnce(&Mm<Sim<I>>, LabCaller<'_, I>) -> T) -> T {
        self.lab.on(CPU, |mm| calls(mm, LabCaller::new(mm, &self.space)))
    }

    fn call(&self, call: LinuxCall, arguments: CallArguments) -> Result<u64, Errno> {
        self.with(|_, caller| caller.call(call, arguments))
    }

    fn map(&self, at: u64, pages: u64) {
        assert_eq!(self.call(LinuxCall::Mmap, [at, pages * PAGE_SIZE, RW, FIXED, u64::MAX, 0]), Ok(at));
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(self.lab.on(CPU, |mm| mm.copy_to_user(&self.space, VirtAddr::new(at), bytes)), 0);
    }

    fn put_words(&self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(at, &bytes);
    }

    fn get(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        assert_eq!(self.lab.on(CPU, |mm| mm.copy_from_user(&self.space, VirtAddr::new(at), &mut bytes)), 0);
        bytes
    }

    fn touch(&self, page: u64) {
        self.lab.touch(CPU, &self.space, VirtAddr::new(page), Access::Write, 1).expect("mapped");
    }

    fn end(self) {
        self.lab.on(CPU, |mm| {
            mm.tlb().leave_space();
            mm.end_space(&self.space);
        });
    }
}

fn mincore_stores_a_byte_for_each_page_before_a_hole<I: Isa>() {
    const ASKED: u64 = 0x2000_0000;
    let process = Process::<I>::new();
    process.map(ASKED, 600);
    process.touch(ASKED + 300 * PAGE_SIZE);
    let mincore = |pages: u64, vec| process.call(LinuxCall::Mincore, [ASKED, pages * PAGE_SIZE, vec, 0, 0, 0]);
    let expected: Vec<u8> = (0..600).map(|page| u8::from(page == 300)).collect();
    assert_eq!(mincore(600, HOLE - 600), Ok(0));
    assert_eq!(process.get(HOLE - 600, 600), expected);
    // A vector that ends in a hole gets the bytes that fit.
    process.put(HOLE - 301, &[9; 301]);
    assert_eq!(mincore(600, HOLE - 301), Err(Errno::EFAULT));
    assert_eq!(process.get(HOLE - 301, 301), expected[..301]);
    // Pages before a hole are reported.
    process.put(DATA, &[9; 700]);
    assert_eq!(mincore(601, DATA), Err(Errno::ENOMEM));
    assert_eq!(process.get(DATA, 600), expected);
    assert_eq!(process.get(DATA + 600, 100), [9; 100]);
    let end = I::USER_END.raw();
    assert_eq!(mincore(600, HOLE), Err(Errno::EFAULT));
    assert_eq!(mincore(600, end - 599), Err(Errno::EFAULT), "checked before any page");
    assert_eq!(mincore(0, 8), Ok(0), "an empty range stores nothing");
    let misaligned = process.call(LinuxCall::Mincore, [ASKED + 1, PAGE_SIZE, HOLE, 0, 0, 0]);
    assert_eq!(misaligned, Err(Errno::EINVAL));
    let beyond = process.call(LinuxCall::Mincore, [end - PAGE_SIZE, 2 * PAGE_SIZE, HOLE, 0, 0, 0]);
    assert_eq!(beyond, Err(Errno::ENOMEM), "the range is checked before the vector");
    process.end();
}

/// Found beside Linux: the vector was in pages of the range.
fn mincore_stores_the_bytes_of_a_mapping_before_it_looks_at_the_next<I: Isa>() {
    const ASKED: u64 = 0x2000_0000;
    let process = Process::<I>::new();
    process.map(ASKED, 3);
    assert_eq!(process.call(LinuxCall::Mprotect, [ASKED, PAGE_SIZE, 1, 0, 0, 0]), Ok(0));
    let vec = ASKED + 2 * PAGE_SIZE;
    assert_eq!(process.call(LinuxCall::Mincore, [ASKED, 3 * PAGE_SIZE, vec, 0, 0, 0]), Ok(0));
    assert_eq!(process.get(vec, 3), [0, 0, 1], "the byte of the first mapping has brought in its page");
    process.end();
}

fn a_bad_pointer_descriptor_or_process_is_refused_with_its_errno<I: Isa>() {
    let process = Process::<I>::new();
    process.put_words(DATA, &[DATA, 8, u64::MAX, u64::MAX]);
    // RLIMIT_AS is 9, MADV_COLD is 20.
    let efault: [(LinuxCall, CallArguments); 9] = [
        (LinuxCall::ProcessMadvise, [PIDFD_SELF, HOLE, 1, 20, 0, 0]),
        (LinuxCall::ProcessMadvise, [PIDFD_SELF, HOLE - 8, 1, 20, 0, 0]),
        (LinuxCall::ProcessMadvise, [99, HOLE, 1, 20, 0, 0]),
        (LinuxCall::MemfdCreate, [HOLE, 0, 0, 0, 0, 0]),
        (LinuxCall::Prlimit64, [0, 9, HOLE, 0, 0, 0]),
        (LinuxCall::Prlimit64, [0, 9, 0, HOLE - 8, 0, 0]),
        (LinuxCall::Setrlimit, [9, 0, 0, 0, 0, 0]),
        (LinuxCall::ProcessVmReadv, [0, HOLE, 1, DATA, 1, 0]),
        (LinuxCall::ProcessVmWritev, [0, DATA, 1, HOLE, 1, 0]),
    ];
    for (call, arguments) in efault {
        assert_eq!(process.call(call, arguments), Err(Errno::EFAULT), "{} {arguments:x?}", call.name());
    }
    let errnos: [(LinuxCall, CallArguments, Errno); 10] = [
        (LinuxCall::ProcessMadvise, [PIDFD_SELF, DATA, 1025, 20, 0, 0], Errno::EINVAL),
        (LinuxCall::ProcessMadvise, [99, DATA, 1, 20, 0, 0], Errno::EBADF),
        (LinuxCall::ProcessMadvise, [99, DATA, 1, 5, 0, 0], Errno::EBADF),
        (LinuxCall::ProcessVmReadv, [99, DATA, 1, DATA, 1, 0], Errno::ESRCH),
        (LinuxCall::Prlimit64, [99, 9, 0, 0, 0, 0], Errno::ESRCH),
        (LinuxCall::Prlimit64, [0, 99, 0, DATA, 0, 0], Errno::EINVAL),
        (LinuxCall::Mmap, [0, PAGE_SIZE, RW, 2, 99, 0], Errno::EBADF),
        (LinuxCall::Fcntl, [99, 1034, 0, 0, 0, 0], Errno::EBADF),
        (LinuxCall::Ftruncate, [99, 0, 0, 0, 0, 0], Errno::EBADF),
        (LinuxCall::Fallocate, [99, 0, 0, 1, 0, 0], Errno::EBADF),
    ];
    for (call, arguments, errno) in errnos {
        assert_eq!(process.call(call, arguments), Err(errno), "{} {arguments:x?}", call.name());
    }
    process.end();
}

/// `get_nodes` and `copy_nodes_to_user`.
fn nodes_are_read_and_stored_by_whole_words<I: Isa>() {
    const BIND: u64 = 2;
    let process = Process::<I>::new();
    let set = |at, max| process.call(LinuxCall::SetMempolicy, [BIND, at, max, 0, 0, 0]);
    let get = |at, max| process.call(LinuxCall::GetMempolicy, [0, at, max, 0, 0, 0]);
    process.put_words(DATA, &[0b11, 0, 0, 1]);
    let rows = [
        ("one bit", DATA, 2, Ok(0)),
        ("one word and a bit that must be 0", DATA, 66, Ok(0)),
        ("a node beyond those that a machine can have", DATA, 4 * 64 + 1, Err(Errno::EINVAL)),
        ("the end of the word is read, too", DATA, 3 * 64 + 3, Err(Errno::EINVAL)),
        ("more than a page", DATA, 8 * PAGE_SIZE + 2, Err(Errno::EINVAL)),
        ("no bit", DATA, 1, Err(Errno::EINVAL)),
        ("0 is no number of bits", DATA, 0, Err(Errno::EINVAL)),
        ("a hole", HOLE - 4, 64, Err(Errno::EFAULT)),
        ("a hole behind the first word", HOLE - 8, 66, Err(Errno::EFAULT)),
        ("the end of addresses", u64::MAX - 7, 66, Err(Errno::EFAULT)),
    ];
    for (what, at, max, expected) in rows {
        assert_eq!(set(at, max), expected, "{what}");
    }
    process.put(DATA, &[9; 32]);
    assert_eq!(get(DATA, 3 * 64 + 1), Ok(0));
    let mut expected = [0; 32];
    expected[0] = 1;
    expected[24..].fill(9);
    assert_eq!(process.get(DATA, 32), expected, "three words, of which the last two are 0");
    assert_eq!((get(DATA, 0), get(DATA, 8 * PAGE_SIZE + 2)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_eq!((get(HOLE, 64), get(HOLE - 8, 66)), (Err(Errno::EFAULT), Err(Errno::EFAULT)));
    process.end();
}

fn a_name_of_shared_memory_is_read_up_to_its_zero<I: Isa>() {
    let process = Process::<I>::new();
    let create = |name, flags| {
        process.with(|mm, caller| {
            let fd = caller.call(LinuxCall::MemfdCreate, [name, flags, 0, 0, 0, 0])?;
            let file = caller.open_file(fd).expect("just opened");
            let name = file.name().to_owned();
            mm.close_file(&file);
            Ok(name)
        })
    };
    process.put(HOLE - 5, b"name\0");
    assert_eq!(create(HOLE - 5, 0).as_deref(), Ok("/memfd:name (deleted)"), "up to the end of the memory");
    assert_eq!(create(HOLE - 1, 0).as_deref(), Ok("/memfd: (deleted)"));
    assert_eq!(create(HOLE - 5, 0x20), Err(Errno::EINVAL));
    assert_eq!(create(HOLE, 0x20), Err(Errno::EINVAL), "flags are checked before the name");
    process.put(HOLE - 5, b"names");
    assert_eq!(create(HOLE - 5, 0), Err(Errno::EFAULT), "no zero before the hole");
    let mut longest = [b'x'; 251];
    longest[249] = 0;
    process.put(DATA, &longest);
    assert_eq!(create(DATA, 0).map(|name| name.len()), Ok("/memfd: (deleted)".len() + 249));
    longest[249..].copy_from_slice(b"x\0");
    process.put(DATA, &longest);
    assert_eq!(create(DATA, 0), Err(Errno::EINVAL), "250 bytes");
    process.end();
}

fn a_descriptor_allows_what_it_was_opened_for<I: Isa>() {
    let process = Process::<I>::new();
    process.lab.on(CPU, |mm| {
        let file = mm.memfd_create("file", pagewright_mm::file::MemfdFlags::ALLOW_SEALING).expect("memory");
        let caller = LabCaller::new(mm, &process.space).with_file(&file, Rights::RW).with_file(&file, Rights::READ);
        let (both, reading) = (1, 2);
        let call = |call: LinuxCall, arguments| caller.call(call, arguments);
        assert_eq!(call(LinuxCall::Ftruncate, [both, 3 * PAGE_SIZE, 0, 0, 0, 0]), Ok(0));
        assert_eq!(call(LinuxCall::Ftruncate, [reading, 0, 0, 0, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(call(LinuxCall::Fallocate, [both, 0, 0, 4 * PAGE_SIZE, 0, 0]), Ok(0));
        assert_eq!(call(LinuxCall::Fallocate, [reading, 0, 0, 1, 0, 0]), Err(Errno::EBADF));
        assert_eq!(file.size(), 4 * PAGE_SIZE);
        // MAP_SHARED | MAP_FIXED of the second page.
        let at = 0x3000_0000;
        let map = |fd, protection| call(LinuxCall::Mmap, [at, PAGE_SIZE, protection, 0x11, fd, PAGE_SIZE]);
        assert_eq!((map(both, RW), map(reading, RW), map(reading, 1)), (Ok(at), Err(Errno::EACCES), Ok(at)));
        assert_eq!(call(LinuxCall::Fcntl, [both, 1034, 0, 0, 0, 0]), Ok(0));
        assert_eq!(call(LinuxCall::Fcntl, [reading, 1033, 2, 0, 0, 0]), Err(Errno::EPERM));
        assert_eq!(call(LinuxCall::Fcntl, [both, 1033, 2, 0, 0, 0]), Ok(0));
        assert_eq!(call(LinuxCall::Fcntl, [both, 1034, 0, 0, 0, 0]), Ok(2), "F_SEAL_SHRINK");
        assert_eq!(call(LinuxCall::Ftruncate, [both, 0, 0, 0, 0, 0]), Err(Errno::EPERM));
        mm.close_file(&file);
    });
    process.end();
}

fn calls_reach_the_process_they_name<I: Isa>() {
    let process = Process::<I>::new();
    process.put_words(DATA, &[DATA + 64, 8, DATA + 72, 8, 0x1234]);
    let child = process.lab.on(CPU, |mm| mm.fork(&process.space)).expect("memory");
    process.lab.on(CPU, |mm| {
        let caller = LabCaller::new(mm, &process.space).with_process(&child).with_process(&process.space);
        assert_eq!(mm.copy_to_user(&child, VirtAddr::new(DATA + 72), &7_u64.to_le_bytes()), 0);
        let vectors = [1, DATA, 1, DATA + 16, 1, 0];
        assert_eq!(caller.call(LinuxCall::ProcessVmReadv, vectors), Ok(8));
        assert_eq!(caller.call(LinuxCall::ProcessVmReadv, [1, DATA, 0, DATA, 0, 0]), Ok(0));
        // MADV_DONTNEED is advice about one's own memory only.
        let dont_need = |process| caller.call(LinuxCall::ProcessMadvise, [process, DATA, 1, 4, 0, 0]);
        assert_eq!((dont_need(1), dont_need(PIDFD_SELF)), (Err(Errno::EINVAL), Err(Errno::EINVAL)), "misaligned");
        assert_eq!(mm.copy_to_user(&process.space, VirtAddr::new(DATA), &HOLE.to_le_bytes()), 0);
        assert_eq!(mm.copy_to_user(&process.space, VirtAddr::new(DATA + 8), &0_u64.to_le_bytes()), 0);
        assert_eq!((dont_need(1), dont_need(2), dont_need(PIDFD_SELF)), (Err(Errno::EINVAL), Ok(0), Ok(0)));
        mm.end_space(&child);
    });
    assert_eq!(process.get(DATA + 64, 8), 7_u64.to_le_bytes());
    process.end();
}

fn limits_are_read_from_and_stored_to_user_memory<I: Isa>() {
    let process = Process::<I>::new();
    let (memlock, new, old) = (8, DATA, DATA + 16);
    process.put_words(new, &[PAGE_SIZE, 2 * PAGE_SIZE]);
    assert_eq!(process.call(LinuxCall::Setrlimit, [memlock, new, 0, 0, 0, 0]), Ok(0));
    process.put_words(new, &[0, PAGE_SIZE]);
    assert_eq!(process.call(LinuxCall::Prlimit64, [0, memlock, new, old, 0, 0]), Ok(0));
    assert_eq!(process.get(old, 16), [PAGE_SIZE.to_le_bytes(), (2 * PAGE_SIZE).to_le_bytes()].concat());
    assert_eq!(process.call(LinuxCall::Getrlimit, [memlock, old, 0, 0, 0, 0]), Ok(0));
    assert_eq!(process.get(old, 16), [0_u64.to_le_bytes(), PAGE_SIZE.to_le_bytes()].concat());
    assert_eq!(process.call(LinuxCall::Mlock, [DATA, PAGE_SIZE, 0, 0, 0, 0]), Err(Errno::EPERM));
    process.end();
}

on_both! {
    mincore_stores_the_bytes_of_a_mapping_before_it_looks_at_the_next,
    mincore_stores_a_byte_for_each_page_before_a_hole,
    a_bad_pointer_descriptor_or_process_is_refused_with_its_errno,
    nodes_are_read_and_stored_by_whole_words,
    a_name_of_shared_memory_is_read_up_to_its_zero,
    a_descriptor_allows_what_it_was_opened_for,
    calls_reach_the_process_they_name,
    limits_are_read_from_and_stored_to_user_memory,
}
