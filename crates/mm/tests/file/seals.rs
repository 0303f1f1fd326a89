//! Which seals can be added, by what is sealed, what is asked for, and the uses of the file.
//!
//! INV-SEAL. The rules are those of Linux's `memfd_add_seals`.

use super::calls::memfd;
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, FileHandle, GupCall, TestProcess, TestWorld};
use pagewright_mm::file::{MemfdFlags, Seals};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{MapFlags, Mm, MmError};
use pagewright_sim::Sim;
use pagewright_types::{PAGE_SIZE, Rights};

on_both! {
    two_additions_seal_what_both_ask_for,
    users_of_a_page_prevent_the_seal_against_writes_alone,
}

fn add<I: Isa>(world: &TestWorld<I>, file: &FileHandle<I>, seals: Seals) -> Result<(), MmError> {
    world.on(CPU, |mm: &Mm<Sim<I>>| mm.add_seals(file, Rights::RW, seals))
}

/// What is added when `seals` are asked for.
fn widened(seals: Seals, executable: bool) -> Seals {
    if executable && seals.contains(Seals::EXEC) { seals | (Seals::all() - Seals::SEAL) } else { seals }
}

fn two_additions_seal_what_both_ask_for<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let every = || (0..=Seals::all().bits()).filter_map(Seals::from_bits);
    for flags in [MemfdFlags::ALLOW_SEALING, MemfdFlags::NOEXEC_SEAL] {
        let executable = flags == MemfdFlags::ALLOW_SEALING;
        let initial = if executable { Seals::empty() } else { Seals::EXEC };
        for (first, second) in every().flat_map(|first| every().map(move |second| (first, second))) {
            let file = world.on(CPU, |mm| mm.memfd_create("it", flags)).expect("memory");
            assert_eq!(file.seals(), Ok(initial));
            assert_eq!(add(&world, &file, first), Ok(()));
            let sealed = initial | widened(first, executable);
            assert_eq!(file.seals(), Ok(sealed), "{first:?}");
            let added = add(&world, &file, second);
            if first.contains(Seals::SEAL) {
                assert_eq!(added, Err(MmError::FileSealed { seals: sealed }));
                assert_eq!(file.seals(), Ok(sealed), "{first:?}, then {second:?}");
            } else {
                assert_eq!((added, file.seals()), (Ok(()), Ok(sealed | widened(second, executable))));
            }
            world.on(CPU, |mm| mm.close_file(&file));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    WritableMapping,
    ReadableMapping,
    Reference,
}

fn users_of_a_page_prevent_the_seal_against_writes_alone<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    for user in [User::WritableMapping, User::ReadableMapping, User::Reference] {
        for present in [Seals::empty(), Seals::FUTURE_WRITE, Seals::WRITE] {
            for asked in [Seals::WRITE, Seals::FUTURE_WRITE, Seals::EXEC, Seals::GROW, Seals::SHRINK | Seals::WRITE] {
                if user == User::WritableMapping && present == Seals::WRITE {
                    continue;
                }
                let (process, file) = (TestProcess::new(&world), memfd(&world, 3));
                // It could become writable, unless it was opened for reading alone.
                let opened = if user == User::WritableMapping { Rights::RW } else { Rights::READ };
                let shared = process.try_map_file(&file, (Rights::READ, opened), MapFlags::SHARED).expect("room");
                world.on(CPU, |mm| mm.write_at(&file, 2 * PAGE_SIZE, &[1])).expect("not sealed");
                assert_eq!(add(&world, &file, present), Ok(()));
                let held = (user == User::Reference).then(|| {
                    process.take(CPU, shared.add(2 * PAGE_SIZE), 1, GupCall::Get(GupFlags::empty())).expect("there")
                });
                let writes = widened(asked, true).contains(Seals::WRITE) && present != Seals::WRITE;
                let expected = match user {
                    User::WritableMapping if writes => Err(MmError::WritablyMapped { mappings: 1 }),
                    User::Reference if writes => Err(MmError::PageHeld { index: 2 }),
                    _ => Ok(()),
                };
                assert_eq!(add(&world, &file, asked), expected, "{user:?}, {present:?}, then {asked:?}");
                let sealed = if expected.is_ok() { present | widened(asked, true) } else { present };
                assert_eq!(file.seals(), Ok(sealed), "{user:?}, {present:?}, then {asked:?}");
                held.into_iter().for_each(|device| device.release(MakeDirty::No));
                process.end();
                assert_eq!(add(&world, &file, asked), Ok(()), "there is no user any more");
                world.on(CPU, |mm| mm.close_file(&file));
            }
        }
    }
    world.assert_nothing_leaked();
}
