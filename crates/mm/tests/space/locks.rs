//! Locked memory under random calls of a parent and a child.
//!
//! Each page says how many entries of locked memory map it, whatever became of others.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::recount;
use pagewright_lab::harness::{CPU, FileHandle, TestProcess, TestWorld, at};
use pagewright_mm::file::FallocateFlags;
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, Mm, MmError, RemapFlags, RemapRequest};
use pagewright_sim::Sim;
use pagewright_types::{Access, PAGE_SIZE, PageRange, Rights, VirtAddr};
use proptest::prelude::*;

/// Pages of each mapping.
const PAGES: u64 = 8;

/// What one of the two does with some pages of a mapping.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Lock(LockFlags),
    Unlock,
    LockAll(LockAllFlags),
    UnlockAll,
    Touch(Access),
    Advise(Advice),
    Protect(Rights),
    /// Elsewhere, and perhaps it stays mapped here.
    Move(RemapFlags),
    Unmap,
    /// Punches a hole into the file, or cuts it off and makes it as long as before.
    Hole,
    Cut,
}

#[derive(Clone, Debug)]
struct Step {
    by_child: bool,
    /// Of the mappings that there are.
    mapping: prop::sample::Index,
    first: u64,
    pages: u64,
    deed: Deed,
}

fn deed() -> impl Strategy<Value = Deed> {
    let lock = [LockFlags::empty(), LockFlags::ONFAULT].map(Deed::Lock);
    let all = [LockAllFlags::CURRENT, LockAllFlags::FUTURE, LockAllFlags::CURRENT | LockAllFlags::ONFAULT];
    let touch = [Access::Read, Access::Write].map(Deed::Touch);
    let advise = [Advice::DontNeedLocked, Advice::DontNeed, Advice::Free, Advice::GuardInstall];
    let protect = [Rights::RW, Rights::READ, Rights::empty()].map(Deed::Protect);
    let moved = [RemapFlags::MAYMOVE, RemapFlags::MAYMOVE | RemapFlags::DONTUNMAP].map(Deed::Move);
    prop_oneof![
        6 => prop::sample::select(lock.to_vec()),
        4 => Just(Deed::Unlock),
        1 => prop::sample::select(all.map(Deed::LockAll).to_vec()),
        1 => Just(Deed::UnlockAll),
        8 => prop::sample::select(touch.to_vec()),
        3 => prop::sample::select(advise.map(Deed::Advise).to_vec()),
        3 => Just(Deed::Advise(Advice::PageOut)),
        2 => prop::sample::select(protect.to_vec()),
        3 => prop::sample::select(moved.to_vec()),
        1 => prop::sample::select(vec![Deed::Unmap, Deed::Hole, Deed::Cut]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let place = (any::<bool>(), any::<prop::sample::Index>(), 0..PAGES, 1..=PAGES);
    (place, deed()).prop_map(|((by_child, mapping, first, pages), deed)| Step { by_child, mapping, first, pages, deed })
}

/// A call of the memory manager.
type Call<'a, I> = &'a dyn Fn(&Mm<Sim<I>>) -> Result<(), MmError>;

impl Deed {
    /// Does it.
    ///
    /// That it is refused is no matter.
    fn done<I: Isa>(self, process: &TestProcess<I>, file: &FileHandle<I>, range: PageRange) -> Result<(), MmError> {
        let (space, at, len) = (&process.space, range.start(), range.len());
        let on = |call: Call<'_, I>| process.world.on(CPU, call);
        match self {
            Self::Lock(flags) => on(&|mm| mm.mlock2(space, at, len, flags)),
            Self::Unlock => on(&|mm| mm.munlock(space, at, len)),
            Self::LockAll(flags) => on(&|mm| mm.mlockall(space, flags)),
            Self::UnlockAll => on(&|mm| {
                mm.munlockall(space);
                Ok(())
            }),
            Self::Touch(access) => {
                for va in range.iter() {
                    // It may not be allowed.
                    let _ = process.touch(CPU, va, access);
                }
                Ok(())
            }
            Self::Advise(advice) => on(&|mm| mm.madvise(space, at, len, advice)),
            Self::Protect(rights) => on(&|mm| mm.mprotect(space, at, len, rights)),
            Self::Move(flags) => {
                let request = RemapRequest { addr: at, old_len: len, new_len: len, flags, new_addr: VirtAddr::ZERO };
                on(&|mm| mm.mremap(space, &request).map(drop))
            }
            Self::Unmap => on(&|mm| mm.munmap(space, at, len)),
            Self::Hole => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                on(&|mm| mm.fallocate(file, flags, 0, 3 * PAGE_SIZE))
            }
            Self::Cut => on(&|mm| mm.truncate(file, 2 * PAGE_SIZE).and_then(|()| mm.truncate(file, PAGES * PAGE_SIZE))),
        }
    }
}

/// INV-LRU-LOCKS.
fn counted_after<I: Isa>(steps: &[Step]) {
    let world = TestWorld::<I>::unjudged();
    let _device = world.swap_to(64);
    let file = world.file_of(DiskFile::default(), PAGES);
    let parent = TestProcess::new(&world);
    for flags in [MapFlags::PRIVATE, MapFlags::SHARED] {
        parent.map(PAGES, Rights::RW, flags | MapFlags::ANONYMOUS, None);
        parent.map_file(&file, Rights::RW, flags);
    }
    let child = parent.fork();
    for step in steps {
        let process = if step.by_child { &child } else { &parent };
        let mappings: Vec<_> = process.space.map().read().iter().map(|(start, vma)| vma.range(start)).collect();
        if mappings.is_empty() {
            continue;
        }
        let mapping = step.mapping.get(&mappings);
        let first = at(mapping.start(), step.first % mapping.pages());
        let end = at(first, step.pages).min(mapping.end());
        // Refused or not, the counts are right.
        let _ = step.deed.done(process, &file, PageRange::new(first, end));
        world.on(CPU, |mm| recount::check(mm, &[parent.space.clone(), child.space.clone()]));
    }
    child.end();
    world.on(CPU, |mm| recount::check(mm, std::slice::from_ref(&parent.space)));
    parent.end();
}

proptest! {
    #[test]
    fn pages_say_how_many_have_them_locked(
        steps in proptest::collection::vec(step(), 1..60),
        arm64 in proptest::bool::ANY,
    ) {
        // Half of the cases run on each instruction set.
        if arm64 {
            counted_after::<Aarch64>(&steps);
        } else {
            counted_after::<X86_64>(&steps);
        }
    }
}
