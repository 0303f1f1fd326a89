//! What the memory manager claims about its counts, and the words of its page tables: enough that somebody else can count again (O4).
//!
//! The judge is the oracle of `pagewright-model`, on the other end of the channel: it shares no code with what it judges, and walks the words as
//! the manuals say. Every number is in hexadecimal.
//!
//! Not guaranteed: anything unless all other CPUs rest.

use super::send;
use crate::memory::mm;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use pagewright_arch::{Effects, Isa, Slot};
use pagewright_hal::Machine;
use pagewright_types::snapshot::{PageKind, Record};
use pagewright_types::{Level, Pfn};

const ENTRIES: u16 = 512;

/// Tells all.
pub(super) fn tell() {
    let mut tables = Vec::new();
    // Told under locks of the memory manager, so nothing is sent before it is done.
    let mut lines = Vec::new();
    mm().snapshot(&mut |record| {
        if let Record::Table(table) = record {
            tables.push((table.pfn, table.level));
        }
        lines.push(claim(record));
    });
    for line in lines {
        send(format_args!("claim {line}\n"));
    }
    for (pfn, level) in tables {
        words(pfn, level);
    }
}

fn kind(kind: Option<PageKind>) -> &'static str {
    match kind {
        None => "none",
        Some(PageKind::Anon) => "anon",
        Some(PageKind::File) => "file",
        Some(PageKind::Shmem) => "shmem",
    }
}

fn claim(record: Record) -> String {
    let mut line = String::new();
    let written = match record {
        Record::Folio(f) => {
            let (refs, maps) = (f.refs, (f.entire_mapcount, f.mapcount, f.pages_mapped));
            let (pfn, order) = (f.pfn.raw(), f.order.raw());
            write!(line, "folio {pfn:x} {order:x} {} {refs:x} {:x} {:x} {:x}", kind(f.kind), maps.0, maps.1, maps.2)
        }
        Record::Page(p) => write!(line, "page {:x} {:x} {:x}", p.pfn.raw(), p.mapcount, p.tail_refs),
        Record::Held(h) => write!(line, "held {:x} {:x}", h.pfn.raw(), h.refs),
        Record::Pinned(p) => write!(line, "pinned {:x} {:x} {:x}", p.pfn.raw(), p.pins, p.bias),
        Record::Space(s) => {
            let [anon, file, shmem] = s.rss;
            let (id, root) = (s.id.raw(), s.root.raw());
            write!(line, "space {id:x} {root:x} {anon:x} {file:x} {shmem:x} {:x} {:x}", s.pss, s.table_bytes)
        }
        Record::Table(t) => write!(line, "table {:x} {:x} {:x}", t.pfn.raw(), t.level.raw(), t.shares),
        Record::Live(l) => write!(line, "live {} {:x}", l.what.name(), l.count),
    };
    debug_assert!(written.is_ok(), "a string takes everything");
    line
}

/// The words of a table. Of a root, those of the user's half: the other is the kernel's, and no affair of the memory manager's.
fn words(table: Pfn, level: Level) {
    let last = if level == Level::PGD {
        let end = <<Machine as Effects>::Isa as Isa>::USER_END;
        u64::from(ENTRIES).min(end.raw().div_ceil(level.span())) as u16
    } else {
        ENTRIES
    };
    let mut line = String::new();
    for index in 0..last {
        let word = Machine.load(Slot { table, index }).raw();
        if word != 0 {
            let _ = write!(line, " {index:x}:{word:x}");
        }
    }
    send(format_args!("words {:x}{line}\n", table.raw()));
}
