//! The page tables of hyperlight-common 0.18.0 (Hyperlight), unmodified; the caller flushes.
//!
//! The crate never flushes, and says of [`vmem::map`] and [`vmem::modify_mapping`] that their
//! caller must. Its pages are the kernel's, so the check is given a range of the kernel.

use hyperlight_common::vmem::{
    self, BasicMapping, CowMapping, Mapping, MappingKind, MayNotMoveTable, TableOps, TableReadOps, Void,
};
use pagewright_check::{
    Check, CheckOutcome, Cpu, InvalidateScope, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr, X86_64, current,
    program,
};

const PAGE: VirtAddr = VirtAddr::new(0xffff_8000_0040_0000);
const WRITABLE: MappingKind = MappingKind::Basic(BasicMapping { readable: true, writable: true, executable: false });
const COPY_ON_WRITE: MappingKind = MappingKind::Cow(CowMapping { readable: true, executable: false });

/// What the crate asks of its caller: tables in the memory of the machine.
#[derive(Clone, Copy)]
struct Tables {
    root: Pfn,
}

impl TableReadOps for Tables {
    type TableAddr = u64;

    fn entry_addr(addr: u64, entry_offset: u64) -> u64 {
        addr + entry_offset
    }

    unsafe fn read_entry(&self, addr: u64) -> u64 {
        current::<X86_64>().load(PhysAddr::new(addr))
    }

    fn to_phys(addr: u64) -> u64 {
        addr
    }

    fn from_phys(addr: u64) -> u64 {
        addr
    }

    fn root_table(&self) -> u64 {
        self.root.base().raw()
    }
}

impl TableOps for Tables {
    type TableMovability = MayNotMoveTable;

    unsafe fn alloc_table(&self) -> u64 {
        current::<X86_64>().alloc_frame().base().raw()
    }

    // A finding names the line of the crate that stores the entry.
    #[track_caller]
    unsafe fn write_entry(&self, addr: u64, entry: u64) -> Option<Void> {
        current::<X86_64>().store(PhysAddr::new(addr), entry);
        None
    }

    unsafe fn update_root(&self, new_root: Void) {
        match new_root {}
    }
}

impl Tables {
    /// Maps the page to `frame`, or unmaps it.
    fn map(self, frame: Pfn, kind: MappingKind) {
        let mapping = Mapping { phys_base: frame.base().raw(), virt_base: PAGE.raw(), len: 4096, kind };
        // SAFETY: the tables are the machine's, and one CPU edits them.
        unsafe { vmem::map(&self, mapping) };
    }

    /// Makes the page copy-on-write, as before a snapshot.
    fn protect(self) {
        // SAFETY: as above.
        unsafe { vmem::modify_mapping(&self, PAGE.raw(), 4096, |_, _| COPY_ON_WRITE) };
    }
}

/// The flush that the crate leaves to its caller.
fn flush(cpu: &Cpu<X86_64>) {
    cpu.flush_page(PAGE, InvalidateScope::Local);
    cpu.shoot_down(cpu.others(), |cpu| cpu.flush_page(PAGE, InvalidateScope::Local));
}

/// CPU 0 makes `call`, while CPU 1 uses the page.
fn check(call: fn(&Cpu<X86_64>, Tables, Pfn)) -> CheckOutcome {
    let kernel = PageRange::new(VirtAddr::new(0xffff_8000_0000_0000), VirtAddr::new(0xffff_8080_0000_0000));
    Check::<X86_64>::new().kernel_range(kernel).explore(move |harness| {
        let tables = Tables { root: harness.alloc_frame() };
        let frame = harness.alloc_frame();
        tables.map(frame, WRITABLE);
        harness.cpus().for_each(|cpu| cpu.load_root(tables.root, Tag::new(1)));
        vec![
            program(move |cpu| call(cpu, tables, frame)),
            program(|cpu| (1..4).for_each(|value| _ = cpu.write(PAGE, value))),
        ]
    })
}

#[test]
fn an_unmapped_page_is_flushed_before_it_is_freed() {
    let outcome = check(|cpu, tables, frame| {
        cpu.call("unmap", |cpu| {
            cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
            tables.map(frame, MappingKind::Unmapped);
            flush(cpu);
            cpu.free_frame(frame);
        });
    });
    outcome.unwrap_clean();
}

#[test]
fn a_snapshot_takes_the_right_to_write_on_every_cpu() {
    let outcome = check(|cpu, tables, _| {
        cpu.call("snapshot", |cpu| {
            cpu.will_reduce(PageRange::page(PAGE), Rights::READ);
            tables.protect();
            flush(cpu);
        });
    });
    outcome.unwrap_clean();
}
