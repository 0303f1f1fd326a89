//! Counted again (O4): every count that the memory manager keeps against the words of all page
//! tables, judged by the oracle where both are.
//!
//! At power-off with `check` on the command line, and whenever a program opens
//! `/sys/kernel/debug/page_counts`. The oracle shares no code with what it judges; it has its own
//! walkers, and reads the words of the tables through [`word`].
//!
//! INV-ORACLE-O4. Not guaranteed: a finding where the memory manager never claimed a count.

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

/// What the machine's status becomes when a count was wrong: `EX_SOFTWARE` of sysexits(3), an error
/// in the system itself.
pub(super) const WRONG: u8 = 70;

static EVER_WRONG: AtomicBool = AtomicBool::new(false);

/// What came out.
struct Verdict {
    claims: usize,
    tally: Tally,
    wrong: Vec<CountMismatch>,
}

/// The file at which somebody asks for it; what it reads then.
pub(crate) fn file(path: &str) -> Option<String> {
    (path == "/sys/kernel/debug/page_counts").then(|| {
        let verdict = judge();
        let sound = if verdict.wrong.is_empty() { "sound" } else { "wrong" };
        let mut text = format!("{} claims: {sound}\n", verdict.claims);
        verdict.wrong.iter().for_each(|count| text.push_str(&format!("{count}\n")));
        tell(&verdict);
        text
    })
}

/// Judges at power-off, tells what came out, and says what the machine's status shall be.
pub(super) fn exit_status(of_program: u8) -> u8 {
    tell(&judge());
    if EVER_WRONG.load(Ordering::Relaxed) { WRONG } else { of_program }
}

fn tell(verdict: &Verdict) {
    let mut text = String::new();
    // A string takes everything.
    let _ = writeln!(text, "judged {} claims", verdict.claims);
    for (what, times) in verdict.tally.iter().filter(|(_, times)| *times > 0) {
        let _ = writeln!(text, "judged {times} {}", what.name());
    }
    for count in &verdict.wrong {
        let _ = writeln!(text, "wrong {count}");
    }
    send(format_args!("{text}"));
    if !verdict.wrong.is_empty() {
        EVER_WRONG.store(true, Ordering::Relaxed);
    }
}

/// Counts while all other CPUs rest.
fn judge() -> Verdict {
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
        Verdict { claims, tally, wrong }
    })
}

/// A word of a table.
///
/// Of a root, those of the user's half: the other is the kernel's, and no affair of the memory
/// manager's.
fn word(roots: &[Pfn], at: PhysAddr) -> u64 {
    let table = Pfn::containing(at);
    let index = (at.raw() - table.base().raw()) / 8;
    let end = <<Machine as Effects>::Isa as Isa>::USER_END.raw().div_ceil(Level::PGD.span());
    if index >= end && roots.contains(&table) {
        return 0;
    }
    Machine.load(PteSlot { table, index: index as u16 }).raw()
}
