//! The kernel heap refuses each allocation of a call in turn (INV-MM-COMMIT).
//!
//! Elsewhere the machine says whether an allocation is permitted, and the heap has memory. Here it
//! is the heap that refuses, so an allocation that cannot fail ends the test program. The machine
//! is one that allocates nothing itself.

use crate::refusing_heap::refusing;
use crate::table_machine::boot;
use pagewright_arch::X86_64;
use pagewright_host::TableMachine;
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::FileKind;
use pagewright_mm::space::{FileMapping, RemapFlags, RemapRequest};
use pagewright_mm::swap::{SwapBacking, Zram};
use pagewright_mm::{MapFlags, MapRequest, Mm, MmSetting, Space};
use pagewright_sync::Arc;
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};

const PAGES: u64 = 16;

type Machine = TableMachine<X86_64>;

/// A memory manager, and a space with `PAGES` pages at `base` that were stored to.
struct Scene {
    mm: Mm<Machine>,
    space: Arc<Space<Machine>>,
    base: VirtAddr,
}

impl Scene {
    fn new() -> Self {
        let (_, mm) = boot::<X86_64>();
        let space = mm.new_space().expect("memory");
        let scene = Self { mm, space, base: VirtAddr::ZERO };
        let base = scene.map(None).expect("memory");
        let scene = Self { base, ..scene };
        (0..PAGES).for_each(|page| scene.store(page).expect("memory"));
        scene
    }

    fn map(&self, file: Option<FileMapping<'_, Machine>>) -> Result<VirtAddr, ()> {
        let flags = if file.is_some() { MapFlags::SHARED } else { MapFlags::PRIVATE | MapFlags::ANONYMOUS };
        let request = MapRequest { addr: VirtAddr::ZERO, len: PAGES * PAGE_SIZE, rights: Rights::RW, flags, file };
        self.mm.mmap(&self.space, &request).map_err(drop)
    }

    fn page(&self, page: u64) -> VirtAddr {
        self.base.add(page * PAGE_SIZE)
    }

    fn store(&self, page: u64) -> Result<(), ()> {
        self.mm.fault(&self.space, self.page(page), Access::Write).map(drop).map_err(drop)
    }

    /// What no failed call changes: free and resident pages, and the number of mappings.
    fn state(&self) -> (u64, u64, usize) {
        (self.mm.gauge(Gauge::FreePages), self.space.rss().pages(), self.space.map().read().len())
    }
}

/// Refuses each allocation of `call` in turn, in a scene of its own that was prepared.
///
/// It fails and changes nothing. Returns the number of allocations.
fn each_allocation_fails<T>(prepare: impl Fn(&Scene) -> T, call: impl Fn(&Scene, &T) -> Result<(), ()>) -> u64 {
    for others in 0.. {
        let scene = Scene::new();
        let prepared = prepare(&scene);
        let before = scene.state();
        match refusing(others, || call(&scene, &prepared)) {
            (made, None) => {
                assert_eq!(made, Ok(()), "nothing was refused");
                return others;
            }
            (made, Some(bytes)) => {
                assert_eq!((made, scene.state()), (Err(()), before), "{bytes} bytes after {others} others");
                assert_eq!(call(&scene, &prepared), Ok(()), "once more");
            }
        }
    }
    unreachable!("a call makes few allocations")
}

/// As [`each_allocation_fails`], in a scene with nothing more.
fn each_fails(call: impl Fn(&Scene) -> Result<(), ()>) -> u64 {
    each_allocation_fails(|_| (), |scene, ()| call(scene))
}

#[test]
fn a_swap_device_without_kernel_memory_is_an_error() {
    let zram = |scene: &Scene| Zram::try_new(&scene.mm, 8, None).map_err(drop);
    assert!(each_fails(|scene| zram(scene).map(drop)) > 3);
    let add =
        |scene: &Scene, zram: &Zram<_>| scene.mm.swap_on(SwapBacking::Zram(zram.clone()), 8).map(drop).map_err(drop);
    assert!(each_allocation_fails(|scene| zram(scene).expect("memory"), |scene, zram| add(scene, zram)) > 1);
}

#[test]
fn a_space_without_kernel_memory_is_an_error() {
    let end = |scene: &Scene, space: Arc<Space<_>>| scene.mm.end_space(&space);
    let make = |scene: &Scene| scene.mm.new_space().map_err(drop);
    // Beside so many that the next needs more room among all spaces.
    let allocations = (0..8).map(|beside| {
        let others = |scene: &Scene| (0..beside).map(|_| make(scene).expect("memory")).collect::<Vec<_>>();
        each_allocation_fails(others, |scene, _| make(scene).map(|space| end(scene, space)))
    });
    let allocations: Vec<u64> = allocations.collect();
    assert!(allocations.iter().all(|number| *number > 1) && allocations.iter().max() > allocations.iter().min());
    for shares in [0, 2] {
        let share =
            |scene: &Scene| scene.mm.settings().set(MmSetting::CowPageTables, shares).map(drop).expect("a value");
        let fork = |scene: &Scene, ()| scene.mm.fork(&scene.space).map(|child| end(scene, child)).map_err(drop);
        assert!(each_allocation_fails(share, |scene, ()| fork(scene, ())) > 1);
    }
}

#[test]
fn a_mapping_without_kernel_memory_is_an_error() {
    // So many that one more needs a node of the tree.
    let rights = |page| if page % 2 == 0 { Rights::READ } else { Rights::RW };
    let protect = |scene: &Scene, page| {
        scene.mm.mprotect(&scene.space, scene.page(page), PAGE_SIZE, rights(page)).map(drop).map_err(drop)
    };
    let (mut protected, mut unmapped, mut moved) = (0, 0, 0);
    for mappings in 0..PAGES - 2 {
        let prepare = |scene: &Scene| (0..mappings).for_each(|page| protect(scene, page).expect("memory"));
        protected += each_allocation_fails(prepare, |scene, ()| protect(scene, mappings));
        let at = |scene: &Scene| scene.page(mappings + 1);
        unmapped += each_allocation_fails(prepare, |scene, ()| {
            scene.mm.munmap(&scene.space, at(scene), PAGE_SIZE).map_err(drop)
        });
        moved += each_allocation_fails(prepare, |scene, ()| {
            let (old_len, new_len) = (PAGE_SIZE, 2 * PAGE_SIZE);
            let request = RemapRequest {
                addr: at(scene),
                old_len,
                new_len,
                flags: RemapFlags::MAYMOVE,
                new_addr: VirtAddr::ZERO,
            };
            scene.mm.mremap(&scene.space, &request).map(drop).map_err(drop)
        });
    }
    assert!(protected > 0 && unmapped > 0 && moved > 0, "{protected}, {unmapped} and {moved} allocations");
}

#[test]
fn a_file_without_kernel_memory_is_an_error() {
    let add = |scene: &Scene| scene.mm.add_file("file", FileKind::Shmem, PAGES * PAGE_SIZE).map_err(drop);
    assert!(each_fails(|scene| add(scene).map(drop)) > 0);
    let added = |scene: &Scene| add(scene).expect("memory");
    let map = |scene: &Scene, file: &_| scene.map(Some(FileMapping { file, offset: 0, opened: Rights::RW })).map(drop);
    assert!(each_allocation_fails(added, map) > 0);
}
