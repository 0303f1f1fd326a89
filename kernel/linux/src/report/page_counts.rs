//! The recount of page counts by the oracle (O4).
//!
//! The oracle compares every count of the memory manager with a walk of all page tables.
//! It runs at power-off with `check` on the command line, and when a program opens
//! `/sys/kernel/debug/page_counts`. The oracle shares no code with the memory manager: it has its
//! own walkers, and reads entries through [`word`].
//!
//! INV-ORACLE-O4. Not guaranteed: a finding about a page that the memory manager does not count.

use super::send;
use crate::memory::mm;
use crate::stop_machine;
use crate::zram;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_arch::{Effects, Isa, PteSlot};
use pagewright_hal::Machine;
use pagewright_model::{Census, CountMismatch, SoftwareBits, Tally};
use pagewright_types::snapshot::{HeldRecord, RefHolder, SnapshotRecord};
use pagewright_types::{Level, Pfn, PhysAddr};

/// The exit status of the machine if a count was wrong (`EX_SOFTWARE` of sysexits(3)).
pub(super) const WRONG_COUNT: u8 = 70;

static EVER_WRONG: AtomicBool = AtomicBool::new(false);

/// The result of a recount.
struct Recount {
    claims: usize,
    tally: Tally,
    wrong: Vec<CountMismatch>,
}

/// The text of the file `page_counts`, which a recount makes when the file is opened.
pub(crate) fn file(path: &str) -> Option<String> {
    (path == "/sys/kernel/debug/page_counts").then(|| {
        let recount = recount();
        let sound = if recount.wrong.is_empty() { "sound" } else { "wrong" };
        let mut text = format!("{} claims: {sound}\n", recount.claims);
        recount.wrong.iter().for_each(|count| text.push_str(&format!("{count}\n")));
        send_recount(&recount);
        text
    })
}

/// Recounts at power-off, and returns the exit status of the machine.
pub(super) fn exit_status(init_status: u8) -> u8 {
    send_recount(&recount());
    if EVER_WRONG.load(Ordering::Relaxed) { WRONG_COUNT } else { init_status }
}

fn send_recount(recount: &Recount) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "judged {} claims", recount.claims);
    for (what, times) in recount.tally.iter().filter(|(_, times)| *times > 0) {
        let _ = writeln!(text, "judged {times} {}", what.name());
    }
    for count in &recount.wrong {
        let _ = writeln!(text, "wrong {count}");
    }
    send(format_args!("{text}"));
    if !recount.wrong.is_empty() {
        EVER_WRONG.store(true, Ordering::Relaxed);
    }
}

/// Recounts while all other CPUs are stopped.
fn recount() -> Recount {
    let isa = <<Machine as Effects>::Isa as Isa>::KIND;
    stop_machine::run(|| {
        let mut census = Census::new(SoftwareBits::pagewright(isa));
        let (mut claims, mut roots) = (0, Vec::new());
        mm().snapshot(&mut |record| {
            if let SnapshotRecord::Space(space) = record {
                roots.push(space.root);
            }
            claims += 1;
            census.add(record);
        });
        zram::for_each_own_frame(|pfn| {
            claims += 1;
            census.add(SnapshotRecord::Held(HeldRecord { pfn, holder: RefHolder::Zram, refs: 1 }));
        });
        let mut tally = Tally::default();
        let wrong = census.compare(isa, &|at| word(&roots, at), &mut tally);
        Recount { claims, tally, wrong }
    })
}

/// The entry at `at`; 0 for the kernel half of a root, which the memory manager does not manage.
fn word(roots: &[Pfn], at: PhysAddr) -> u64 {
    let table = Pfn::containing(at);
    let index = (at.raw() - table.base().raw()) / 8;
    let end = <<Machine as Effects>::Isa as Isa>::USER_END.raw().div_ceil(Level::PGD.span());
    if index >= end && roots.contains(&table) {
        return 0;
    }
    Machine.load(PteSlot { table, index: index as u16 }).raw()
}
