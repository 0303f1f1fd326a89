//! Rules of Linux that the comparison of counts brought to light, each on its own.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::Lab;
use pagewright_mm::file::{FileKind, FileOps};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{MapFlags, MapRequest, MmSetting, MmSettings, Space};
use pagewright_sim::{MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};

const CPU: CpuId = CpuId::new(0);
/// In the middle of a window of fault-around.
const LIBRARY: u64 = 0x7000_0000_4000;

struct Blank;

impl FileOps for Blank {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, _index: u64, _put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        Ok(())
    }
}

/// A process that has mapped a library of 64 pages with `rights`.
fn library<I: Isa>(rights: Rights) -> (Lab<I>, Arc<Space<Sim<I>>>) {
    let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    let lab = Lab::<I>::new(config, MmSettings::default()).expect("a possible machine");
    let space = lab.on(CPU, |mm| mm.new_space()).expect("memory for a space");
    lab.run(CPU, &space);
    lab.on(CPU, |mm| {
        let file =
            mm.add_file("/lib/it.so", FileKind::File(Box::new(Blank)), 64 * PAGE_SIZE).expect("memory for a file");
        let request = MapRequest {
            addr: VirtAddr::new(LIBRARY),
            len: 64 * PAGE_SIZE,
            rights,
            flags: MapFlags::PRIVATE | MapFlags::FIXED,
            file: Some(FileMapping { file: &file, offset: 0, opened: Rights::RX }),
        };
        mm.mmap(&space, &request).expect("a sound request");
    });
    (lab, space)
}

fn page(index: u64) -> VirtAddr {
    VirtAddr::new(LIBRARY + index * PAGE_SIZE)
}

/// Relocated pages that were made read-only look like the read-only data before them.
///
/// `VM_ACCOUNT` keeps the two apart, so that fork copies the entries of the former alone.
fn what_was_relocated_stays_apart<I: Isa>() {
    let (lab, space) = library::<I>(Rights::READ);
    lab.mm().settings().set(MmSetting::CowPageTables, 0).expect("never");
    let set = |at, pages, rights| lab.on(CPU, |mm| mm.mprotect(&space, page(at), pages * PAGE_SIZE, rights)).unwrap();
    set(60, 4, Rights::RW);
    lab.touch(CPU, &space, page(61), Access::Write, 1).unwrap();
    set(60, 4, Rights::READ);
    assert_eq!(space.map().read().len(), 2, "not merged");
    lab.touch(CPU, &space, page(20), Access::Read, 1).unwrap();
    let child = lab.on(CPU, |mm| mm.fork(&space)).unwrap();
    assert_eq!(child.rss().pages(), 1, "the relocated page; the data can be faulted in again");
}

/// A mapping without a page loses its charge with the right to write.
///
/// Anonymous neighbours then merge again.
fn an_untouched_reservation_is_no_longer_charged<I: Isa>() {
    let (lab, space) = library::<I>(Rights::READ);
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED;
    let request = MapRequest { addr: page(100), len: 4 * PAGE_SIZE, rights: Rights::empty(), flags, file: None };
    lab.on(CPU, |mm| mm.mmap(&space, &request)).unwrap();
    let set = |rights| lab.on(CPU, |mm| mm.mprotect(&space, page(102), PAGE_SIZE, rights)).unwrap();
    set(Rights::RW);
    assert_eq!(space.map().read().len(), 4);
    set(Rights::empty());
    assert_eq!(space.map().read().len(), 2, "the library and one reservation");
}

/// The window starts with the mapping and has the usual length.
///
/// So it ends beyond the aligned window.
fn fault_around_reaches_as_far_from_the_start_of_a_mapping<I: Isa>() {
    let (lab, space) = library::<I>(Rights::READ);
    lab.touch(CPU, &space, page(3), Access::Read, 1).unwrap();
    assert_eq!(space.rss().pages(), 16);
    let faults = || lab.on(CPU, |mm| mm.counter(Counter::PgFault));
    let before = faults();
    lab.touch(CPU, &space, page(15), Access::Read, 1).unwrap();
    assert_eq!(faults(), before, "page 15 came along");
    // The next window is the aligned one again, of which four pages are there already.
    lab.touch(CPU, &space, page(16), Access::Read, 1).unwrap();
    assert_eq!(space.rss().pages(), 28);
}

on_both! {
    what_was_relocated_stays_apart,
    an_untouched_reservation_is_no_longer_charged,
    fault_around_reaches_as_far_from_the_start_of_a_mapping,
}
