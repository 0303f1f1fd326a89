//! `cargo xtask tiers`: promotion and demotion here and on Debian's Linux 6.12, by one program.
//!
//! `kernel/programs/cross_section.c` runs on a machine with a node without CPUs, which the HMAT
//! says is slower, with `numa_balancing` 0 and 2, three times each. The result is
//! `docs/linux-tiers.md`. [`mod@linger`] counts the flushes of such pages, its last section.
//!
//! Not guaranteed: equal figures in two runs. QEMU emulates the CPU, so scans come by its time, not
//! by that of the program.

mod linger;

use crate::boot::cases::{Machine, Swap};
use crate::boot::pagewright;
use crate::cargo::Workspace;
use crate::error::Error;
use crate::kernel;
use crate::linux::Linux;
use crate::watch;
use pagewright_types::IsaKind;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: &str = "docs/linux-tiers.md";
const NODES: [&str; 4] = ["--node", "0:320M", "--node", "1:320M"];
const LOOK_UPS: &str = "200000";
const RUNS: usize = 3;
/// The release of Debian, and its version of Linux.
const LINUX: (&str, &str) = ("trixie", "6.12");
/// The time that a boot may spend.
const ALLOWED: Duration = Duration::from_secs(600);
/// What the program prints, and the titles of the columns.
const SHOWN: [(&str, &str); 7] = [
    ("loads of node 0", "loads of the fast node"),
    ("loads of node 1", "loads of the slow node"),
    ("numa_pte_updates", "hints"),
    ("numa_hint_faults", "hint faults"),
    ("pgpromote_success", "promotions"),
    ("pgdemote_kswapd", "demotions by kswapd"),
    ("pgdemote_direct", "direct demotions"),
];

const OPENING: &str = "\
# Memory tiers: our promotions and demotions beside Linux's

`kernel/programs/cross_section.c` looks up cross sections as `pagewright run cross-section` does
([tiers.md](tiers.md)), in one thread, in tables five times as large as what it leaves free on the
fast node. It counts its own loads by page, and asks after each 2,000 look-ups on which node each
page is. `cargo xtask tiers` writes this page: x86-64 in QEMU, a node with the CPU, and one without,
which the HMAT gives three times the latency.

QEMU delays no access, so the table says where pages are, and not what that costs. Each figure is
the median of three runs, with the least and the most.
";

const CLOSING: &str = "
Two rules differ, and may explain the figures; their effect was not measured apart. In Linux, an
allocation wakes reclaim of each permitted node that is below its high watermark; here a full node
beside one with free memory keeps its pages. Linux delays the next scan by the time that one takes
(`node_stamp`); here it does not.
";

/// Boots each kernel and writes the page.
pub(crate) fn run() -> Result<(), Error> {
    let bench = Bench::new()?;
    let machine = Machine::installed(IsaKind::X86_64)?;
    let (program, init) = (bench.compile(machine, "cross_section.c")?, bench.compile(machine, "init.c")?);
    let linux = Linux::fetch(&bench.workspace, machine.isa, Some(LINUX.0), LINUX.1)?;
    let ours = ["--kernel".to_owned(), kernel::build(machine.isa, &[])?.display().to_string()].to_vec();
    let kernels = [
        (linux.package.replace("linux-image-", "Linux "), linux.arguments(&init, Swap::Nothing, "")),
        ("Pagewright".to_owned(), ours),
    ];
    let mut page = format!("{OPENING}\n| kernel | `numa_balancing` | share of the fast node |");
    SHOWN.iter().for_each(|(_, title)| page.push_str(&format!(" {title} |")));
    let _ = writeln!(page, "\n| --- | ---: | ---: |{}", " ---: |".repeat(SHOWN.len()));
    let mut tiers = String::new();
    for (name, kernel) in &kernels {
        for mode in ["0", "2"] {
            let runs = (0..RUNS).map(|_| count(&bench, machine, kernel, &program, mode));
            let runs = runs.collect::<Result<Vec<_>, _>>()?;
            let of = |name: &str| runs.iter().map(|run| figure(run, name)).collect::<Vec<_>>();
            let (fast, slow) = (of(SHOWN[0].0), of(SHOWN[1].0));
            let share: Vec<u64> =
                fast.iter().zip(&slow).map(|(fast, slow)| fast * 1000 / (fast + slow).max(1)).collect();
            let _ = write!(page, "| {name} | {mode} | {} |", spread(share, &percent));
            SHOWN.iter().for_each(|(name, _)| page.push_str(&format!(" {} |", spread(of(name), &u64::to_string))));
            page.push('\n');
            if let Some(run) = runs.first() {
                let lines = run.lines().filter(|line| line.starts_with("memory_tier"));
                tiers = lines.fold(tiers, |all, line| if all.contains(line) { all } else { format!("{all}{line}\n") });
            }
        }
    }
    let _ =
        write!(page, "\nLinux's own tiers (`/sys/devices/virtual/memory_tiering`):\n\n```\n{tiers}```\n{CLOSING}\n");
    page.push_str(&linger::section(&bench)?);
    bench.write(&page)
}

/// Writes the page's section of translations that linger, and keeps what comes before it.
pub(crate) fn run_lingering() -> Result<(), Error> {
    let bench = Bench::new()?;
    let path = bench.workspace.workspace_root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(Error::file(&path))?;
    let kept = page.split(linger::HEADING).next().unwrap_or_default().trim_end();
    bench.write(&format!("{kept}\n\n{}", linger::section(&bench)?))
}

/// What the boots of both programs need.
struct Bench {
    workspace: Workspace,
    pagewright: PathBuf,
    /// Where programs are compiled to.
    folder: PathBuf,
}

impl Bench {
    fn new() -> Result<Self, Error> {
        let workspace = Workspace::load()?;
        let folder = workspace.programs()?;
        let pagewright = pagewright(&workspace)?;
        Ok(Self { workspace, pagewright, folder })
    }

    fn compile(&self, machine: &Machine, source: &str) -> Result<PathBuf, Error> {
        machine.compile(&self.workspace.workspace_root, &self.folder, source)
    }

    /// The command that boots a machine; the caller adds the machine, the kernel and the program.
    fn boot(&self, machine: &Machine) -> Command {
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", machine.isa.name()]);
        boot
    }

    fn write(&self, page: &str) -> Result<(), Error> {
        let path = self.workspace.workspace_root.join(PAGE);
        fs::write(&path, page).map_err(Error::file(&path))?;
        println!("{}", self.workspace.shown(&path).display());
        Ok(())
    }
}

/// Boots, and returns what the program prints; `sign` is in it unless the program has failed.
fn printed(boot: &mut Command, sign: &str) -> Result<String, Error> {
    let output = watch::output(boot.stdin(Stdio::null()), ALLOWED)?;
    let printed = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    if !printed.contains(sign) {
        eprintln!("{printed}{}", String::from_utf8_lossy(&output.stderr));
        return Err(Error::Findings { check: "tiers: programs that failed", count: 1 });
    }
    Ok(printed)
}

/// Runs the program once; returns what it prints.
fn count(bench: &Bench, machine: &Machine, kernel: &[String], program: &Path, mode: &str) -> Result<String, Error> {
    let mut boot = bench.boot(machine);
    printed(boot.args(NODES).args(kernel).arg("--").arg(program).args([mode, LOOK_UPS]), SHOWN[0].0)
}

/// The number that the program prints after a name, 0 without one.
fn figure(printed: &str, name: &str) -> u64 {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok();
    printed.lines().find_map(of).unwrap_or(0)
}

/// The median, with the least and the most if they differ.
fn spread(mut figures: Vec<u64>, shown: &dyn Fn(&u64) -> String) -> String {
    figures.sort_unstable();
    let [least, median, most] = [0, figures.len() / 2, figures.len() - 1].map(|at| shown(&figures[at]));
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

/// A number of thousandths as a percentage.
fn percent(thousandths: &u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_number_after_its_name() {
        let printed = "loads of node 0: 12\npgpromote_success: 7\n";
        assert_eq!((figure(printed, "loads of node 0"), figure(printed, "pgpromote_success")), (12, 7));
        assert_eq!(figure(printed, "pgdemote_direct"), 0);
    }

    #[test]
    fn a_spread_is_the_median_and_the_range() {
        assert_eq!(
            (spread(vec![3, 1, 2], &u64::to_string), spread(vec![18; 3], &percent)),
            ("2 (1–3)".to_owned(), "1.8 %".to_owned())
        );
    }
}
