//! INV-FUTEX-KEY: which words are one.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld};
use pagewright_mm::MapFlags;
use pagewright_mm::user::{FutexAccess, FutexKey, FutexScope};
use pagewright_types::{Errno, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    a_private_word_is_its_address,
    shared_words_are_one_wherever_they_are_mapped,
    anonymous_words_are_the_space_s,
    words_that_can_only_be_read,
    bad_words_are_refused,
}

use FutexAccess::{Read, Write};
use FutexScope::{Private, Shared};

fn key<I: Isa>(
    process: &TestProcess<I>,
    at: VirtAddr,
    scope: FutexScope,
    access: FutexAccess,
) -> Result<FutexKey, Errno> {
    process.world.lab.run(CPU, &process.space);
    let key = process.world.on(CPU, |mm| mm.futex_key(&process.space, at, scope, access));
    key.map_err(|error| error.errno())
}

fn a_private_word_is_its_address<I: Isa>() {
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    let base = process.anon(1);
    let child = process.fork();
    let one = key(&process, base, Private, Write).expect("a key");
    assert_eq!(key(&process, base, Private, Read), Ok(one));
    assert_ne!(key(&process, base.add(4), Private, Write), Ok(one));
    assert_ne!(key(&child, base, Private, Write), Ok(one));
    assert_ne!(key(&process, base, Shared, Write), Ok(one), "another queue, as in Linux");
    assert_eq!(process.space.rss().pages(), 1, "only the shared key needs the page");
    // The private key needs no mapping.
    assert!(key(&process, base.add(PAGE_SIZE), Private, Read).is_ok());
    TestProcess::end_all_at_rest(&[&child, &process]);
}

fn shared_words_are_one_wherever_they_are_mapped<I: Isa>() {
    let world = TestWorld::<I>::new(1);
    let (one, other) = (TestProcess::new(&world), TestProcess::new(&world));
    let file = world.file(3);
    let (here, there) = (
        one.map(3, Rights::RW, MapFlags::SHARED, Some(&file)),
        other.map(3, Rights::RW, MapFlags::SHARED, Some(&file)),
    );
    other.unmap(there, 1);
    let at = PAGE_SIZE + 12;
    let name = key(&one, here.add(at), Shared, Write).expect("a key");
    assert_eq!(name, FutexKey::Object { file: file.id(), index: 1, offset: 12 });
    assert_eq!(key(&other, there.add(at), Shared, Read), Ok(name));
    assert_ne!(key(&other, there.add(at + 4), Shared, Read), Ok(name));
    assert_ne!(key(&other, there.add(2 * PAGE_SIZE + 12), Shared, Read), Ok(name));
    // Shared anonymous memory is an object, too: a child has the same word.
    let shared = one.map(1, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    let child = one.fork();
    let name = key(&one, shared, Shared, Write).expect("a key");
    assert!(matches!(name, FutexKey::Object { .. }));
    assert_eq!(key(&child, shared, Shared, Write), Ok(name));
    TestProcess::end_all_at_rest(&[&child, &one, &other]);
    world.on(CPU, |mm| mm.forget_file(&file));
}

fn anonymous_words_are_the_space_s<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(1);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let name = key(&process, base, Shared, Read).expect("a key");
    assert_eq!(name, FutexKey::Anon { space: process.space.id(), at: base });
    let child = process.fork();
    assert_ne!(key(&child, base, Shared, Read), Ok(name));
    // The name lasts: copy-on-write on either side changes nothing.
    process.write(CPU, base, 2);
    assert_eq!(key(&process, base, Shared, Write), Ok(name));
    // A private mapping of a file becomes a copy before it has a name.
    let private = process.map(1, Rights::RW, MapFlags::PRIVATE, Some(&file));
    let name = key(&process, private, Shared, Read).expect("a key");
    assert_eq!(name, FutexKey::Anon { space: process.space.id(), at: private });
    process.write(CPU, private, 3);
    assert_eq!(key(&process, private, Shared, Read), Ok(name));
    TestProcess::end_all_at_rest(&[&child, &process]);
    world.on(CPU, |mm| mm.forget_file(&file));
}

fn words_that_can_only_be_read<I: Isa>() {
    let (world, process) = TestProcess::<I>::judged(1);
    let file = world.file(1);
    let text = process.map(1, Rights::READ, MapFlags::PRIVATE, Some(&file));
    let shared = process.map(1, Rights::RW, MapFlags::SHARED, Some(&file));
    let name = key(&process, shared, Shared, Write);
    // A file's page that is mapped read-only is the file's word, privately mapped or not.
    assert_eq!(key(&process, text, Shared, Read), name);
    assert_eq!(key(&process, text, Shared, Write), Err(Errno::EFAULT));
    // Anonymous memory that can only be read never changes: no waiter could be woken by it.
    let zeroes = process.map(1, Rights::READ, ANON, None);
    assert_eq!(key(&process, zeroes, Shared, Read), Err(Errno::EFAULT));
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.protect(base, 1, Rights::READ);
    assert_eq!(key(&process, base, Shared, Read), Err(Errno::EFAULT));
    assert!(key(&process, base, Private, Read).is_ok());
    TestProcess::end_all_at_rest(&[&process]);
    world.on(CPU, |mm| mm.forget_file(&file));
}

fn bad_words_are_refused<I: Isa>() {
    let process = TestProcess::new(&TestWorld::<I>::new(1));
    let base = process.anon(1);
    for scope in [Private, Shared] {
        for off in 1..4 {
            assert_eq!(key(&process, base.add(off), scope, Read), Err(Errno::EINVAL));
        }
        assert_eq!(key(&process, I::USER_END, scope, Read), Err(Errno::EFAULT));
    }
    assert_eq!(key(&process, base.add(PAGE_SIZE), Shared, Read), Err(Errno::EFAULT));
    let none = process.map(1, Rights::empty(), ANON, None);
    assert_eq!(key(&process, none, Shared, Read), Err(Errno::EFAULT));
    let file = process.world.file(1);
    let past = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file)).add(PAGE_SIZE);
    assert_eq!(key(&process, past, Shared, Write), Err(Errno::EFAULT));
    TestProcess::end_all_at_rest(&[&process]);
    process.world.on(CPU, |mm| mm.forget_file(&file));
}
