//! `cargo xtask pageout`: the barriers and TLB invalidations per page-out on arm64.
//!
//! Runs the program of Linux's batched-shootdown series in QEMU, on Debian's Linux 6.1 and 6.12 and
//! on Pagewright's kernel, and writes `docs/linux-pageout.md`. Between these two versions Linux
//! began to batch the flushes of reclaim on arm64.
//!
//! `kernel/programs/pageout.c` is the program, `kernel/plugin/flushes.c` counts, and
//! `kernel/programs/init.c` sets up zram as Linux's swap.
//!
//! Not guaranteed: a fixed version of Linux. Each run uses the newest kernel of each release.

use crate::boot::cases::{Machine, Swap};
use crate::boot::pagewright;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::kernel;
use crate::linux::Linux;
use crate::watch;
use pagewright_types::IsaKind;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PAGE: &str = "docs/linux-pageout.md";
/// Releases of Debian, and their versions of Linux.
const RELEASES: [(&str, &str); 2] = [("bookworm", "6.1"), ("trixie", "6.12")];
/// Pagewright, with the default settings and with another one.
const OURS: [(&str, Option<&str>); 2] =
    [("Pagewright", None), ("Pagewright, `tlb_batch=always`", Some("tlb_batch=always"))];
const CPUS: [&str; 2] = ["1", "4"];
const ROUNDS: u64 = 16;
/// The pages that the program pages out in each round.
const PAGES: u64 = 256;
/// The plugin's names of the counts, and the titles of their columns.
const SHOWN: [(&str, &str); 6] = [
    ("waits", "waits"),
    ("dsb_ish", "DSB ISH"),
    ("dsb_ishst", "DSB ISHST"),
    ("tlbi_page", "TLBI of a page"),
    ("tlbi_space", "of a space"),
    ("tlbi_range", "of a range"),
];

const OPENING: &str = "\
# Paging out on arm64: our barriers and invalidations beside Linux's

This page counts the barriers and TLB invalidations that QEMU's emulated CPUs execute for each page
that a program pages out, on Linux and here. The program, `kernel/programs/pageout.c`, is that of
the series that batches arm64's flushes in reclaim
(`20220822082120.8347-5-yangyicong@huawei.com`): it reads 1 MiB of shared anonymous memory and pages
it out to zram, again and again. Linux 6.1 waits for the invalidation of each page; Linux 6.12 and
Pagewright wait once per batch. On one CPU, where a batch saves little, Pagewright does so only with
`tlb_batch=always`. `cargo xtask pageout` writes this page; `kernel/plugin/flushes.c` counts.

All figures are per page that was paged out, and include everything that the machine executed
meanwhile. A *wait* is a barrier for loads and stores on a CPU that has issued an invalidation since
its last such barrier.
";

const CLOSING: &str = "
Linux 6.12 also flushes the whole space once or twice a round, beside its batches of 32 pages: there
`madvise` takes the page table's lock and finds that a flush was deferred
(`flush_tlb_batched_pending`).
";

/// Boots each kernel and writes the page.
pub(crate) fn run() -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let machine = Machine::installed(IsaKind::Aarch64)?;
    let bench = Bench::new(&workspace, machine)?;
    let mut kernels = Vec::new();
    for (suite, version) in RELEASES {
        let linux = Linux::fetch(&workspace, IsaKind::Aarch64, Some(suite), version)?;
        let mut arguments = linux.arguments(&bench.init, Swap::On("64M"), "");
        // `--count` makes Linux's clock independent of the load of this computer. Pagewright spins
        // where Linux sleeps, and no time would pass for it.
        arguments.push("--count".to_owned());
        kernels.push((linux.package.replace("linux-image-", "Linux "), arguments));
    }
    let ours = kernel::build(IsaKind::Aarch64, &[])?.display().to_string();
    for (name, setting) in OURS {
        let mut arguments = ["--kernel", &ours, "--swap", "64M"].map(str::to_owned).to_vec();
        arguments.extend(setting.map(|setting| format!("--set={setting}")));
        kernels.push((name.to_owned(), arguments));
    }
    let mut page = format!("{OPENING}\n{ROUNDS} rounds of {PAGES} pages each.\n");
    for cpus in CPUS {
        let _ = write!(page, "\n## {cpus} CPU{}\n\n| kernel |", if cpus == "1" { "" } else { "s" });
        SHOWN.iter().for_each(|(_, title)| page.push_str(&format!(" {title} |")));
        let _ = writeln!(page, "\n| --- |{}", " ---: |".repeat(SHOWN.len()));
        for (name, arguments) in &kernels {
            let counted = bench.count(cpus, arguments)?;
            let _ = write!(page, "| {name} |");
            for (name, _) in SHOWN {
                let count = counted.get(name).copied().unwrap_or(0);
                let _ = write!(page, " {:.3} |", count as f64 / (ROUNDS * PAGES) as f64);
            }
            page.push('\n');
        }
    }
    page.push_str(CLOSING);
    let path = workspace.workspace_root.join(PAGE);
    fs::write(&path, page).map_err(Error::file(&path))?;
    println!("{}", workspace.shown(&path).display());
    Ok(())
}

/// The files that every boot needs.
struct Bench {
    pagewright: PathBuf,
    program: PathBuf,
    init: PathBuf,
    plugin: PathBuf,
    /// The output of the plugin.
    counts: PathBuf,
}

impl Bench {
    fn new(workspace: &Workspace, machine: &Machine) -> Result<Self, Error> {
        let folder = workspace.programs()?;
        let root = &workspace.workspace_root;
        let plugin = folder.join("flushes.so");
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&plugin);
        cargo::status(compile.arg(root.join("kernel/plugin/flushes.c")))?;
        Ok(Self {
            pagewright: pagewright(workspace)?,
            program: machine.compile(root, &folder, "pageout.c")?,
            init: machine.compile(root, &folder, "init.c")?,
            plugin,
            counts: folder.join("flushes.txt"),
        })
    }

    /// Counts what the machine executes in all rounds.
    fn count(&self, cpus: &str, kernel: &[String]) -> Result<BTreeMap<String, u64>, Error> {
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", "arm64", "--cpus", cpus, "--mem", "512M"]);
        boot.arg("--plugin").arg(format!("{},out={}", self.plugin.display(), self.counts.display())).args(kernel);
        boot.arg("--").arg(&self.program).arg(ROUNDS.to_string());
        let output = watch::output(boot.stdin(Stdio::null()), watch::SHORT)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let counted = fs::read_to_string(&self.counts).map_err(Error::file(&self.counts))?;
        let mut marks = counted.lines().map(mark);
        match (marks.next(), marks.next()) {
            // Counts are valid only if the program paged everything out.
            (Some(begin), Some(end)) if printed.matches(&format!("resident 0 of {PAGES}")).count() == 2 => {
                let since = |(name, count): (String, u64)| {
                    let before = begin.get(&name).copied().unwrap_or(0);
                    (name, count - before)
                };
                Ok(end.into_iter().map(since).collect())
            }
            _ => {
                eprintln!("{printed}{}", String::from_utf8_lossy(&output.stderr));
                Err(Error::Findings { check: "pageout: programs that failed", count: 1 })
            }
        }
    }
}

/// Parses a line of the plugin's output: `mark NAME=COUNT …`.
fn mark(line: &str) -> BTreeMap<String, u64> {
    let pairs = line.split(' ').filter_map(|word| word.split_once('='));
    pairs.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_yields_its_counts_by_name() {
        let counts = mark("mark dsb_ish=12 waits=3 odd");
        assert_eq!(counts.get("dsb_ish"), Some(&12));
        assert_eq!((counts.get("waits"), counts.len()), (Some(&3), 2));
    }
}
