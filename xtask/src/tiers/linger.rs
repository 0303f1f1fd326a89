//! `cargo xtask tiers linger`: flushes of pages that move and are paged out, with `tlb_linger`.
//!
//! `kernel/programs/linger.c` reads the pages on four CPUs and checks each load. It runs with each
//! value of the setting, on x86-64 beside Linux, whose count is the row `TLB` of
//! `/proc/interrupts`. The result is the last section of `docs/linux-tiers.md`. QEMU's clock is its
//! count of instructions, so the load of this computer has no effect.
//!
//! Not guaranteed: equal figures in two runs of our kernel.

use super::{Bench, LINUX, RUNS, figure, printed, spread};
use crate::boot::cases::{MACHINES, Machine, Swap};
use crate::error::Error;
use crate::kernel;
use crate::linux::Linux;
use pagewright_types::IsaKind;
use std::fmt::Write;
use std::path::PathBuf;

/// The heading of the section, by which it is found in the page.
pub(super) const HEADING: &str = "## Translations that linger\n";
const NODES: [&str; 4] = ["--node", "0:192M,cpus=0-3", "--node", "1:96M"];
const SWAP: &str = "64M";
const SETTINGS: [&str; 3] = ["never", "migration", "unmap"];
/// The title of a table, and the arguments of the program.
///
/// They are pages, loads of each thread, pages that stay free on each node, page-outs and stores.
const LOADS: [(&str, [&str; 6]); 2] = [
    ("The slow node has room for all pages", ["8192", "2000000", "1600", "all", "0", "0"]),
    ("Both nodes have room for less than all pages", ["8192", "2000000", "1600", "6400", "0", "0"]),
];

/// What is counted of a kernel.
struct Counters {
    flushes: &'static str,
    flushes_of_reclaim: &'static str,
    interrupts: &'static str,
    lingering: &'static str,
    /// The flushes that translations which lingered need in the end.
    settles: &'static [&'static str],
}

/// The name of a counter that a kernel does not have.
const ABSENT: &str = "";
const OURS: Counters = Counters {
    flushes: "nr_tlb_remote_flush",
    flushes_of_reclaim: "pw_reclaim_waits",
    interrupts: "nr_tlb_remote_flush_received",
    lingering: "pw_linger_pages",
    settles: &["pw_tlb_settle_on_alloc", "pw_tlb_settle_ahead", "pw_linger_settled_for_store"],
};
const LINUXES: Counters =
    Counters { flushes: ABSENT, flushes_of_reclaim: ABSENT, interrupts: "TLB", lingering: ABSENT, settles: &[] };
/// The counters that both have.
const HINTS: &str = "numa_pte_updates";
const PROMOTED: &str = "pgpromote_success";
const DEMOTED: [&str; 2] = ["pgdemote_kswapd", "pgdemote_direct"];
const MOVED: &str = "pgmigrate_success";
/// With the pages that were demoted.
const RECLAIMED: [&str; 2] = ["pgsteal_kswapd", "pgsteal_direct"];

const OPENING: &str = "
`kernel/programs/linger.c` reads 8,192 anonymous pages of a read-only mapping, in four threads on
the four CPUs of the fast node. Fifteen of sixteen loads are of a window that moves, so pages are
promoted and demoted all the time. The program checks the value that each load returns, and all
kernels return the same checksum. `cargo xtask tiers linger` writes this section.

- **Flushes** are those that wait for other CPUs (`nr_tlb_remote_flush`; on arm64, DSBs), **of
  reclaim** those that demotions and page-outs by reclaim caused. Debian's Linux counts neither.
- **IPIs** are shootdowns that CPUs received: `nr_tlb_remote_flush_received`, and the row `TLB` of
  Linux's `/proc/interrupts`. arm64 has none.
- **Per page** divides flushes or IPIs by the pages that were promoted, demoted and paged out.
- **Settles** are the flushes that lingering translations needed after all: before an allocation or
  a store, or ahead by an idle CPU.

QEMU has no PCIDs, so on x86-64 each switch between address spaces flushes the TLB. It runs the four
CPUs by turns on one thread, so a wait for other CPUs takes as long as their turns. That slows
reclaim, and fewer pages move with `never`; figures per page do not depend on it. Each is the median
of three runs, with the least and the most.
";
const CLOSING: &str = "
Linux makes fewer hints, and so moves fewer pages; figures per page compare. Where memory is short,
allocations soon need the parked frames, and a settle flushes each CPU that owes for any of them.
`pagewright evaluate migrc` counts the remaining flushes by cause, on the simulated machine.
";

/// One row of a table.
struct Row<'a> {
    machine: &'a Machine,
    kernel: String,
    setting: &'static str,
    arguments: Vec<String>,
    program: PathBuf,
    counters: &'static Counters,
}

/// Boots each kernel and returns the section.
pub(super) fn section(bench: &Bench) -> Result<String, Error> {
    let rows = rows(bench)?;
    let mut checksums = Vec::new();
    let mut section = format!("{HEADING}{OPENING}");
    for (title, arguments) in LOADS {
        let _ = write!(
            section,
            "\n### {title}\n\n| machine | kernel | `tlb_linger` | hints | promoted | demoted | paged out | lingered | flushes | \
             of reclaim | settles | flushes per page | IPIs | IPIs per page |\n| --- | --- | ---: |{}\n",
            " ---: |".repeat(11)
        );
        for row in &rows {
            let runs = (0..RUNS).map(|_| row.count(bench, &arguments)).collect::<Result<Vec<_>, _>>()?;
            checksums.extend(runs.iter().map(|run| figure(run, "checksum")));
            section.push_str(&row.line(&runs));
            eprint!("{}", row.line(&runs));
        }
    }
    checksums.dedup();
    match checksums[..] {
        [_] => Ok(format!("{section}{CLOSING}")),
        _ => Err(Error::Findings { check: "tiers linger: checksums", count: checksums.len() }),
    }
}

fn rows<'a>(bench: &Bench) -> Result<Vec<Row<'a>>, Error> {
    let mut rows = Vec::new();
    for machine in &MACHINES {
        let machine = Machine::installed(machine.isa)?;
        let program = bench.compile(machine, "linger.c")?;
        if machine.isa == IsaKind::X86_64 {
            let linux = Linux::fetch(&bench.workspace, machine.isa, Some(LINUX.0), LINUX.1)?;
            let init = bench.compile(machine, "init.c")?;
            rows.push(Row {
                machine,
                kernel: linux.package.replace("linux-image-", "Linux "),
                setting: "–",
                arguments: linux.arguments(&init, Swap::On(SWAP), ""),
                program: program.clone(),
                counters: &LINUXES,
            });
        }
        let image = kernel::build(machine.isa, &[])?.display().to_string();
        for setting in SETTINGS {
            let set = format!("--set=tlb_linger={setting}");
            let arguments = ["--kernel".to_owned(), image.clone(), "--swap".to_owned(), SWAP.to_owned(), set];
            rows.push(Row {
                machine,
                kernel: "Pagewright".to_owned(),
                setting,
                arguments: arguments.to_vec(),
                program: program.clone(),
                counters: &OURS,
            });
        }
    }
    Ok(rows)
}

impl Counters {
    /// The names of all counters that the kernel has.
    fn names(&self) -> Vec<&'static str> {
        let own = [self.flushes, self.flushes_of_reclaim, self.interrupts, self.lingering];
        let both = [HINTS, PROMOTED, MOVED].into_iter().chain(DEMOTED).chain(RECLAIMED);
        both.chain(own).chain(self.settles.iter().copied()).filter(|name| *name != ABSENT).collect()
    }
}

impl Row<'_> {
    /// Runs the program once; returns what it prints.
    fn count(&self, bench: &Bench, arguments: &[&str]) -> Result<String, Error> {
        let mut boot = bench.boot(self.machine);
        boot.args(["--cpus", "4", "--count"]).args(NODES).args(&self.arguments).arg("--").arg(&self.program);
        printed(boot.args(arguments).args(self.counters.names()), "wrong loads: 0\n")
    }

    /// The line of the table.
    fn line(&self, runs: &[String]) -> String {
        let all = |names: &[&str]| -> Vec<u64> {
            runs.iter().map(|run| names.iter().map(|name| figure(run, name)).sum()).collect()
        };
        let shown = |name: &str| if name == ABSENT { "–".to_owned() } else { spread(all(&[name]), &u64::to_string) };
        let (moved, demoted) = (all(&[MOVED]), all(&DEMOTED));
        let paged_out: Vec<u64> =
            all(&RECLAIMED).iter().zip(&demoted).map(|(all, demoted)| all.saturating_sub(*demoted)).collect();
        let pages: Vec<u64> = moved.iter().zip(&paged_out).map(|(moved, out)| moved + out).collect();
        let each = |name: &str| {
            let each = all(&[name]).iter().zip(&pages).map(|(count, pages)| count * 1000 / (*pages).max(1)).collect();
            if name == ABSENT { "–".to_owned() } else { spread(each, &thousandths) }
        };
        let counters = self.counters;
        let settles =
            if counters.settles.is_empty() { "–".to_owned() } else { spread(all(counters.settles), &u64::to_string) };
        let interrupts = if self.machine.isa == IsaKind::X86_64 { counters.interrupts } else { ABSENT };
        let cells = [
            self.machine.isa.name().to_owned(),
            self.kernel.clone(),
            self.setting.to_owned(),
            shown(HINTS),
            shown(PROMOTED),
            spread(demoted, &u64::to_string),
            spread(paged_out, &u64::to_string),
            shown(counters.lingering),
            shown(counters.flushes),
            shown(counters.flushes_of_reclaim),
            settles,
            each(counters.flushes),
            shown(interrupts),
            each(interrupts),
        ];
        format!("| {} |\n", cells.join(" | "))
    }
}

/// A number of thousandths with three digits after the point.
fn thousandths(number: &u64) -> String {
    format!("{}.{:03}", number / 1000, number % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_divides_flushes_by_the_pages_that_moved_and_were_paged_out() {
        let run = "pgmigrate_success: 60\npgdemote_kswapd: 40\npgsteal_kswapd: 80\nnr_tlb_remote_flush: 25\n\
                   nr_tlb_remote_flush_received: 50\n";
        let row = Row {
            machine: &MACHINES[0],
            kernel: "Pagewright".to_owned(),
            setting: "never",
            arguments: Vec::new(),
            program: PathBuf::new(),
            counters: &OURS,
        };
        let line = row.line(&[run.to_owned()]);
        assert!(line.ends_with("| 40 | 40 | 0 | 25 | 0 | 0 | 0.250 | 50 | 0.500 |\n"), "{line}");
    }

    #[test]
    fn linux_has_no_count_of_flushes() {
        assert!(LINUXES.names().contains(&"TLB") && !LINUXES.names().contains(&ABSENT));
    }
}
