//! Reading and writing another process's memory.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld};
use pagewright_mm::user::IoVec;
use pagewright_types::{Counter, Errno, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    pieces_are_filled_one_after_the_other,
    a_copy_stops_where_memory_ends_and_counts,
    bad_lists_are_refused,
    what_the_other_may_not_do_the_call_may_not,
    a_reader_and_a_writer_break_copy_on_write,
    a_debugger_may_what_the_program_may_not,
}

type Pieces<'a> = &'a [(VirtAddr, u64)];

fn pieces(list: Pieces<'_>) -> Vec<IoVec> {
    list.iter().map(|&(base, len)| IoVec { base, len }).collect()
}

/// `process_vm_readv` into the first process.
fn readv<I: Isa>(to: (&TestProcess<I>, Pieces<'_>), from: (&TestProcess<I>, Pieces<'_>)) -> Result<u64, Errno> {
    let (ours, theirs) = (pieces(to.1), pieces(from.1));
    let call = |mm: &pagewright_mm::Mm<_>| mm.process_vm_readv((&to.0.space, &ours), (&from.0.space, &theirs), 0);
    to.0.world.on(CPU, call).map_err(|error| error.errno())
}

/// `process_vm_writev` out of the first process.
fn writev<I: Isa>(from: (&TestProcess<I>, Pieces<'_>), to: (&TestProcess<I>, Pieces<'_>)) -> Result<u64, Errno> {
    let (ours, theirs) = (pieces(from.1), pieces(to.1));
    let call = |mm: &pagewright_mm::Mm<_>| mm.process_vm_writev((&from.0.space, &ours), (&to.0.space, &theirs), 0);
    from.0.world.on(CPU, call).map_err(|error| error.errno())
}

fn bytes<I: Isa>(process: &TestProcess<I>, at: VirtAddr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(process.world.on(CPU, |mm| mm.copy_from_user(&process.space, at, &mut bytes)), 0);
    bytes
}

fn put<I: Isa>(process: &TestProcess<I>, at: VirtAddr, bytes: &[u8]) {
    assert_eq!(process.world.on(CPU, |mm| mm.copy_to_user(&process.space, at, bytes)), 0);
}

fn two<I: Isa>() -> (TestProcess<I>, TestProcess<I>) {
    let world = TestWorld::new(2);
    (TestProcess::new(&world), TestProcess::new(&world))
}

fn end<I: Isa>(processes: &[&TestProcess<I>]) {
    TestProcess::end_all_at_rest(processes);
    let count = |counter| processes[0].world.count(counter);
    assert_eq!(count(Counter::NrFollPinAcquired), count(Counter::NrFollPinReleased));
}

fn pieces_are_filled_one_after_the_other<I: Isa>() {
    let (ours, theirs) = two::<I>();
    let (here, there) = (ours.anon(4), theirs.anon(4));
    let text: Vec<u8> = (0..3 * PAGE_SIZE).map(|i| (i * 13 + 1) as u8).collect();
    put(&theirs, there.add(100), &text);
    // Lists whose pieces end in different places.
    let to = [(here, 10), (here.add(50), 0), (here.add(PAGE_SIZE - 3), PAGE_SIZE + 1000)];
    let from = [(there.add(100), 700), (there.add(1100), 5000), (there.add(100), 9)];
    assert_eq!(readv((&ours, &to), (&theirs, &from)), Ok(10 + PAGE_SIZE + 1000));
    let sent: Vec<u8> = text[..700].iter().chain(&text[1000..6000]).copied().collect();
    assert_eq!(bytes(&ours, here, 10), sent[..10]);
    assert_eq!(
        bytes(&ours, here.add(PAGE_SIZE - 3), (PAGE_SIZE + 1000) as usize),
        sent[10..10 + PAGE_SIZE as usize + 1000]
    );
    assert_eq!(bytes(&ours, here.add(10), 40), [0; 40], "nothing beside them");
    // And back, to other places.
    assert_eq!(writev((&ours, &[(here, 10)]), (&theirs, &[(there.add(PAGE_SIZE - 4), 64)])), Ok(10));
    assert_eq!(bytes(&theirs, there.add(PAGE_SIZE - 4), 10), sent[..10]);
    // A process may be its own other.
    assert_eq!(writev((&ours, &[(here, 10)]), (&ours, &[(here.add(20), 10)])), Ok(10));
    assert_eq!(bytes(&ours, here.add(20), 10), sent[..10]);
    end(&[&ours, &theirs]);
}

fn a_copy_stops_where_memory_ends_and_counts<I: Isa>() {
    let (ours, theirs) = two::<I>();
    let (here, there) = (ours.anon(4), theirs.anon(2));
    put(&theirs, there, &[7; 2 * PAGE_SIZE as usize]);
    theirs.unmap(there.add(PAGE_SIZE), 1);
    let all = [(here, 4 * PAGE_SIZE)];
    assert_eq!(readv((&ours, &all), (&theirs, &[(there, 2 * PAGE_SIZE)])), Ok(PAGE_SIZE));
    assert_eq!(readv((&ours, &all), (&theirs, &[(there.add(PAGE_SIZE), 1)])), Err(Errno::EFAULT));
    let both = [(there.add(5), 10), (VirtAddr::ZERO, 10), (there, 10)];
    assert_eq!(readv((&ours, &all), (&theirs, &both)), Ok(10));
    // Our own memory may end, too.
    ours.unmap(here.add(PAGE_SIZE), 1);
    let ending = [(here.add(PAGE_SIZE - 6), 100)];
    assert_eq!(readv((&ours, &ending), (&theirs, &[(there, 50)])), Ok(6));
    assert_eq!(writev((&ours, &ending), (&theirs, &[(there, 50)])), Ok(6));
    let missing = [(here.add(PAGE_SIZE), 1)];
    assert_eq!(writev((&ours, &missing), (&theirs, &[(there, 50)])), Err(Errno::EFAULT));
    // A process that has ended has no memory.
    theirs.end();
    assert_eq!(readv((&ours, &[(here, 1)]), (&theirs, &[(there, 1)])), Err(Errno::EFAULT));
    end(&[&ours]);
}

fn bad_lists_are_refused<I: Isa>() {
    let (ours, theirs) = two::<I>();
    let (here, there) = (ours.anon(1), theirs.anon(1));
    let (one, other) = ([(here, 8)], [(there, 8)]);
    let call = |flags| {
        let (to, from) = (pieces(&one), pieces(&other));
        ours.world.on(CPU, |mm| mm.process_vm_readv((&ours.space, &to), (&theirs.space, &from), flags))
    };
    assert_eq!(call(1).map_err(|error| error.errno()), Err(Errno::EINVAL));
    assert_eq!(call(0).map_err(|error| error.errno()), Ok(8));
    let many = vec![(here, 1); 1025];
    assert_eq!(readv((&ours, &many), (&theirs, &other)), Err(Errno::EINVAL));
    assert_eq!(readv((&ours, &many[..1024]), (&theirs, &other)), Ok(8));
    assert_eq!(readv((&ours, &one), (&theirs, &many)), Err(Errno::EINVAL));
    assert_eq!(readv((&ours, &[(here, u64::MAX)]), (&theirs, &other)), Err(Errno::EINVAL));
    assert_eq!(readv((&ours, &one), (&theirs, &[(there, 1 << 63)])), Err(Errno::EINVAL));
    assert_eq!(readv((&ours, &[(I::USER_END, 1)]), (&theirs, &other)), Err(Errno::EFAULT));
    assert_eq!(readv((&ours, &one), (&theirs, &[(I::USER_END, 1)])), Err(Errno::EFAULT));
    // No bytes to move: the other list is not read.
    assert_eq!(readv((&ours, &[]), (&theirs, &many)), Ok(0));
    assert_eq!(readv((&ours, &[(here, 0)]), (&theirs, &other)), Ok(0));
    assert_eq!(readv((&ours, &one), (&theirs, &[])), Ok(0));
    end(&[&ours, &theirs]);
}

fn what_the_other_may_not_do_the_call_may_not<I: Isa>() {
    let (ours, theirs) = two::<I>();
    let here = ours.anon(1);
    let read_only = theirs.map(1, Rights::READ, ANON, None);
    let write_only = theirs.map(1, Rights::WRITE, ANON, None);
    let none = theirs.map(1, Rights::empty(), ANON, None);
    let one = [(here, 1)];
    for (at, read, write) in [(read_only, Ok(1), Err(Errno::EFAULT)), (none, Err(Errno::EFAULT), Err(Errno::EFAULT))] {
        assert_eq!(
            (readv((&ours, &one), (&theirs, &[(at, 1)])), writev((&ours, &one), (&theirs, &[(at, 1)]))),
            (read, write)
        );
    }
    // A processor would let the other read it, Linux asks for the right by name.
    assert_eq!(writev((&ours, &one), (&theirs, &[(write_only, 1)])), Ok(1));
    assert_eq!(readv((&ours, &one), (&theirs, &[(write_only, 1)])), Err(Errno::EFAULT));
    end(&[&ours, &theirs]);
}

fn a_reader_and_a_writer_break_copy_on_write<I: Isa>() {
    let (ours, parent) = two::<I>();
    let (here, there) = (ours.anon(1), parent.anon(1));
    parent.write(CPU, there, 5);
    let child = parent.fork();
    let unshared = || ours.world.lab.mm().counter(Counter::PwUnshare);
    assert_eq!(readv((&ours, &[(here, 8)]), (&parent, &[(there, 8)])), Ok(8));
    assert_eq!((ours.read(CPU, here), unshared()), (5, 1), "a pin is of an exclusive page");
    ours.write(CPU, here, 6);
    assert_eq!(writev((&ours, &[(here, 8)]), (&child, &[(there, 8)])), Ok(8));
    assert_eq!((parent.read(OTHER, there), child.read(OTHER, there)), (5, 6));
    end(&[&ours, &child, &parent]);
}

fn a_debugger_may_what_the_program_may_not<I: Isa>() {
    let (ours, theirs) = two::<I>();
    let (at, shared) = (theirs.anon(3), theirs.map_shared(1));
    put(&theirs, at, &[7; 3 * PAGE_SIZE as usize]);
    theirs.protect(at, 2, Rights::READ);
    theirs.protect(at.add(PAGE_SIZE), 1, Rights::empty());
    theirs.protect(shared, 1, Rights::READ);
    let (mut read, seam) = ([0; 4], at.add(PAGE_SIZE - 2));
    let mm = |call: &dyn Fn(&pagewright_mm::Mm<_>) -> usize| ours.world.on(CPU, call);
    // Across a page that it may read and one that it may not.
    assert_eq!(mm(&|mm| mm.write_remote(&theirs.space, seam, &[1, 2, 3, 4])), 4);
    assert_eq!(ours.world.on(CPU, |mm| mm.read_remote(&theirs.space, seam, &mut read)), 4);
    assert_eq!(read, [1, 2, 3, 4]);
    theirs.protect(at, 2, Rights::RW);
    assert_eq!(bytes(&theirs, at.add(PAGE_SIZE - 3), 6), [7, 1, 2, 3, 4, 7]);
    // A store to memory that others see is not forced.
    assert_eq!(mm(&|mm| mm.write_remote(&theirs.space, shared, &[1])), 0);
    // A copy ends where memory does.
    theirs.unmap(at.add(2 * PAGE_SIZE), 1);
    assert_eq!(mm(&|mm| mm.write_remote(&theirs.space, at.add(2 * PAGE_SIZE - 1), &[9, 9])), 1);
    assert_eq!(mm(&|mm| mm.write_remote(&theirs.space, I::USER_END, &[9])), 0);
    end(&[&ours, &theirs]);
}
