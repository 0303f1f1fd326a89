//! `cargo xtask instructions`: kernel instructions per operation, beside Linux's.
//!
//! `kernel/programs/instructions.c` runs each operation on one CPU in QEMU, on Pagewright's kernel
//! and on Debian's Linux 6.1, and `kernel/plugin/instructions.c` counts ([`count`]).
//! `kernel/programs/huge.c` and `moving.c` have a table each, of huge pages and of pages that move
//! between nodes; `huge` and `moving` are commands that count only these. QEMU's clock
//! is its count of instructions (`-icount`), so timer interrupts come at the same places in every
//! run, whatever the load of this computer. Our kernel runs twice, and a row that the two runs
//! count differently is an error. `--write` replaces the table in `docs/benchmarks.md`; `profile`
//! prints the functions of our kernel that execute the instructions ([`mod@profile`]). Cycles of a
//! process that forks are counted with each setting of `cow_page_tables` ([`cycles`]).
//!
//! Not guaranteed: a fixed version of Linux, or equal counts in two runs of it: deferred work comes
//! at other places.

mod count;
mod cycles;
mod profile;

use crate::boot::cases::{MACHINES, Machine, Swap};
use crate::boot::pagewright;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::kernel;
use crate::linux::Linux;
use crate::watch;
use count::{Row, differing, least};
use pagewright_types::IsaKind;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: &str = "docs/benchmarks.md";
const VERSION: &str = "6.1";
/// The heads of the first columns, by which `--write` finds the tables.
const HEAD: &str = "kernel instructions per operation";
const SHARED_HEAD: &str = "kernel instructions in all, tables shared";
const MOVING_HEAD: &str = "kernel instructions per operation, two nodes";
const HUGE_HEAD: &str = "kernel instructions per operation, huge pages";
/// The setting under which forks copy page tables, as Linux's do.
const COPIED: &str = "--set=cow_page_tables=never";
/// The default, under which all but small processes share them.
const SHARED: &str = "--set=cow_page_tables=auto";
/// What begins the name of a row in the table of shared page tables.
const SHARED_ROWS: [&str; 5] = ["fork of", "fork and", "second fork", "exit of", "copy-on-write"];
/// The words that switch off what our kernel has not, or what changes the meaning of a row.
///
/// KASLR and random stacks are off, so that runs are alike.
const WORDS: &str = "mitigations=off init_on_alloc=0 init_on_free=0 cgroup_disable=memory \
                     audit=0 apparmor=0 randomize_kstack_offset=off nokaslr norandmaps";

/// No memory of Linux gets them.
const NO_HUGE_PAGES: &str = "transparent_hugepage=never";

/// A program whose operations are counted, and the machine that it needs.
struct Counted {
    source: &'static str,
    /// The options of its memory.
    memory: &'static [&'static str],
    /// Which memory of Linux gets huge pages.
    huge_pages: &'static str,
    /// The time that a boot may spend.
    allowed: Duration,
}

/// The operations; the memory is room for a process of 512 MB, and for Linux.
const OPERATIONS: Counted = Counted {
    source: "instructions.c",
    memory: &["--mem", "1G"],
    huge_pages: NO_HUGE_PAGES,
    allowed: Duration::from_secs(300),
};
/// The operations on huge pages.
const HUGE: Counted = Counted {
    source: "huge.c",
    huge_pages: "transparent_hugepage=madvise",
    allowed: Duration::from_secs(600),
    ..OPERATIONS
};
/// Moves between two nodes, of which the second has no CPU.
const MOVING: Counted = Counted { source: "moving.c", memory: &["--node", "0:512M", "--node", "1:256M"], ..OPERATIONS };

/// The word that switches off the isolation of page tables.
const fn unisolated(isa: IsaKind) -> &'static str {
    match isa {
        IsaKind::X86_64 => "nopti",
        IsaKind::Aarch64 => "kpti=off",
    }
}

/// Whether the table in `docs/benchmarks.md` is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// The table is printed.
    Print,
    /// The table is printed and written.
    Write,
}

/// Counts on both instruction sets and prints the table.
///
/// # Errors
/// [`Error::Findings`], if a program failed or two runs of our kernel differ.
pub(crate) fn run(table: Table) -> Result<(), Error> {
    let bench = Bench::new()?;
    let (mut columns, mut shared) = (Vec::new(), Vec::new());
    for machine in &MACHINES {
        let ours = least(&bench.ours(machine, &OPERATIONS, Some(COPIED), "")?);
        let again = least(&bench.ours(machine, &OPERATIONS, Some(COPIED), "")?);
        let different = differing(&ours, &again);
        if !different.is_empty() {
            different.iter().for_each(|name| println!("{}: {name}: two runs differ", machine.isa));
            return Err(Error::Findings { check: "instructions: rows", count: different.len() });
        }
        let (package, linux) = bench.linux(machine, &OPERATIONS)?;
        println!("{}: {package}", machine.isa);
        let linux = least(&linux);
        shared.push((of_shared(least(&bench.ours(machine, &OPERATIONS, Some(SHARED), "")?)), of_shared(linux.clone())));
        columns.push((ours, linux));
    }
    let tables = [
        (HEAD, lines(HEAD, &columns, Row::each)),
        (SHARED_HEAD, lines(SHARED_HEAD, &shared, Row::all)),
        huge(&bench)?,
        moving(&bench)?,
        (cycles::HEAD, cycles::lines(&cycles::count(&bench)?)),
    ];
    show(&bench, &tables, table)
}

/// Counts the operations on huge pages, and no other rows.
pub(crate) fn run_huge(table: Table) -> Result<(), Error> {
    let bench = Bench::new()?;
    show(&bench, &[huge(&bench)?], table)
}

/// Counts the pages that move between two nodes, and no other rows.
pub(crate) fn run_moving(table: Table) -> Result<(), Error> {
    let bench = Bench::new()?;
    show(&bench, &[moving(&bench)?], table)
}

/// The table of the pages that move between two nodes.
fn moving(bench: &Bench) -> Result<(&'static str, Vec<Vec<String>>), Error> {
    by_default(bench, &MOVING, MOVING_HEAD)
}

/// The table of the operations on huge pages.
fn huge(bench: &Bench) -> Result<(&'static str, Vec<Vec<String>>), Error> {
    by_default(bench, &HUGE, HUGE_HEAD)
}

/// The table of a program on our kernel with default settings.
fn by_default(bench: &Bench, counted: &Counted, head: &'static str) -> Result<(&'static str, Vec<Vec<String>>), Error> {
    let count = |machine| {
        let ours = least(&bench.ours(machine, counted, None, "")?);
        Ok((ours, least(&bench.linux(machine, counted)?.1)))
    };
    let columns = MACHINES.iter().map(count).collect::<Result<Vec<_>, Error>>()?;
    Ok((head, lines(head, &columns, Row::each)))
}

/// Prints tables, and writes them to the page if that is asked for.
fn show(bench: &Bench, tables: &[(&'static str, Vec<Vec<String>>)], table: Table) -> Result<(), Error> {
    tables.iter().for_each(|(_, lines)| print!("{}", aligned(lines)));
    if table == Table::Write {
        let path = bench.workspace.workspace_root.join(PAGE);
        let mut page = fs::read_to_string(&path).map_err(Error::file(&path))?;
        for (head, lines) in tables {
            page = replaced(&page, head, &markdown(lines)).ok_or(Error::NoTable { page: PAGE, head })?;
        }
        fs::write(&path, page).map_err(Error::file(&path))?;
        println!("{PAGE}");
    }
    Ok(())
}

/// Prints the functions of our kernel that execute most instructions of each row.
///
/// `setting` is a setting of the memory manager, `NAME=VALUE`.
///
/// # Errors
/// [`Error::Usage`] for another instruction set, and as [`run`].
pub(crate) fn profile(isa: &str, setting: Option<&str>) -> Result<(), Error> {
    profile_of(&OPERATIONS, isa, setting)
}

/// As [`profile()`], for the operations on huge pages.
pub(crate) fn profile_huge(isa: &str, setting: Option<&str>) -> Result<(), Error> {
    profile_of(&HUGE, isa, setting)
}

fn profile_of(counted: &Counted, isa: &str, setting: Option<&str>) -> Result<(), Error> {
    let machine = MACHINES.iter().find(|machine| machine.isa.name() == isa);
    let machine = machine.ok_or_else(|| Error::Usage(format!("instructions profile {isa}")))?;
    let bench = Bench::new()?;
    let blocks = bench.folder.join("instructions-profile.txt");
    let set = setting.map(|setting| format!("--set={setting}"));
    let rows = bench.ours(machine, counted, set.as_deref(), &format!(",profile={}", blocks.display()))?;
    let blocks = fs::read_to_string(&blocks).map_err(Error::file(&blocks))?;
    let linked = kernel::link(machine.isa)?;
    let image = fs::read(&linked).map_err(Error::file(&linked))?;
    let symbols = profile::Symbols::read(&image).ok_or(Error::NoImage(linked))?;
    print!("{}", profile::report(&rows, &blocks, &symbols));
    Ok(())
}

/// The files that every boot needs.
struct Bench {
    workspace: Workspace,
    pagewright: PathBuf,
    plugin: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn new() -> Result<Self, Error> {
        if let Some(missing) = MACHINES.iter().find_map(Machine::lacks) {
            return Err(Error::NoPackage(missing.to_owned()));
        }
        let workspace = Workspace::load()?;
        let folder = workspace.programs()?;
        let plugin = folder.join("instructions.so");
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&plugin);
        cargo::status(compile.arg(workspace.workspace_root.join("kernel/plugin/instructions.c")))?;
        Ok(Self { pagewright: pagewright(&workspace)?, workspace, plugin, folder })
    }

    fn compile(&self, machine: &Machine, source: &str) -> Result<PathBuf, Error> {
        machine.compile(&self.workspace.workspace_root, &self.folder, source)
    }

    /// Counts on our kernel.
    ///
    /// `set` is an option of the boot, `plugin` further arguments of the plugin.
    fn ours(&self, machine: &Machine, counted: &Counted, set: Option<&str>, plugin: &str) -> Result<Vec<Row>, Error> {
        let kernel = kernel::build(machine.isa, &[])?.display().to_string();
        let kernel = ["--kernel".to_owned(), kernel].into_iter().chain(set.map(str::to_owned));
        self.count(machine, counted, &kernel.collect::<Vec<_>>(), plugin)
    }

    /// Counts on Linux; returns the name of its package too.
    fn linux(&self, machine: &Machine, counted: &Counted) -> Result<(String, Vec<Row>), Error> {
        let linux = Linux::fetch(&self.workspace, machine.isa, None, VERSION)?;
        let words = format!("{WORDS} {} {}", counted.huge_pages, unisolated(machine.isa));
        let init = self.compile(machine, "init.c")?;
        let rows = self.count(machine, counted, &linux.arguments(&init, Swap::Nothing, &words), "")?;
        Ok((linux.package, rows))
    }

    fn count(&self, machine: &Machine, counted: &Counted, kernel: &[String], plugin: &str) -> Result<Vec<Row>, Error> {
        let counts = self.folder.join("instructions.txt");
        let Counted { source, memory, allowed, .. } = counted;
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", machine.isa.name(), "--count"]).args(*memory);
        boot.arg("--plugin").arg(format!("{},out={}{plugin}", self.plugin.display(), counts.display()));
        boot.args(kernel).arg("--").arg(self.compile(machine, source)?);
        let output = watch::output(boot.stdin(Stdio::null()), *allowed)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let marks = fs::read_to_string(&counts).map_err(Error::file(&counts))?;
        count::rows(&printed, &marks).ok_or_else(|| {
            eprintln!("{printed}{}", String::from_utf8_lossy(&output.stderr));
            Error::Findings { check: "instructions: programs that failed", count: 1 }
        })
    }
}

/// The rows on which the sharing of page tables has an effect; their figures are not per page.
fn of_shared(rows: Vec<Row>) -> Vec<Row> {
    let concerned = rows.into_iter().filter(|row| SHARED_ROWS.iter().any(|name| row.name.starts_with(name)));
    let in_all = |row: Row| Row { name: row.name.split(", per ").next().unwrap_or_default().to_owned(), ..row };
    concerned.map(in_all).collect()
}

/// The lines of a table: name, and for each instruction set ours, Linux, and their ratio.
fn lines(first: &str, columns: &[(Vec<Row>, Vec<Row>)], figure: impl Fn(&Row) -> f64) -> Vec<Vec<String>> {
    let mut head = vec![first.to_owned()];
    for machine in &MACHINES {
        head.extend([machine.isa.name().to_owned(), "Linux".to_owned(), "ratio".to_owned()]);
    }
    let names = columns.first().map_or(&[][..], |(ours, _)| ours);
    let line = |(index, row): (usize, &Row)| {
        let mut line = vec![row.name.clone()];
        for (ours, linux) in columns {
            let figures = ours.get(index).zip(linux.get(index)).map(|(ours, linux)| (figure(ours), figure(linux)));
            let (ours, linux) = figures.unwrap_or((f64::NAN, f64::NAN));
            line.extend([format!("{ours:.0}"), format!("{linux:.0}"), ratio(ours / linux)]);
        }
        line
    };
    std::iter::once(head).chain(names.iter().enumerate().map(line)).collect()
}

/// A ratio with two digits after the point, and two that are not 0 if it is small.
fn ratio(ratio: f64) -> String {
    if ratio < 0.01 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}

fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            // Writing to a `String` cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}", width = width(0)),
                _ => write!(text, "  {cell:>width$}", width = width(column)),
            };
        }
        text.push('\n');
    }
    text
}

fn markdown(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let _ = writeln!(text, "| {} |", line.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "| --- |{}", " ---: |".repeat(line.len() - 1));
        }
    }
    text
}

/// The page with its table of this head replaced; `None` if it has none.
fn replaced(page: &str, head: &str, table: &str) -> Option<String> {
    let start = page.find(&format!("| {head} |"))?;
    let rest = &page[start..];
    let len: usize = rest.split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    Some(format!("{}{table}{}", &page[..start], &rest[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, operations: u64, kernel: u64) -> Row {
        Row { name: name.to_owned(), operations, kernel }
    }

    fn table() -> Vec<Vec<String>> {
        let columns = (vec![row("fork", 2, 300)], vec![row("fork", 2, 600)]);
        lines(HEAD, &[columns, (vec![row("fork", 4, 800)], vec![row("fork", 4, 400)])], Row::each)
    }

    #[test]
    fn a_ratio_is_ours_by_linux() {
        assert_eq!(table()[1], ["fork", "150", "300", "0.50", "200", "100", "2.00"]);
    }

    #[test]
    fn a_small_ratio_has_digits_that_count() {
        assert_eq!([0.5, 0.01, 0.00123].map(ratio), ["0.50", "0.01", "0.0012"]);
    }

    #[test]
    fn the_rows_of_shared_tables_are_those_of_forks_in_all() {
        let row = |name: &str| Row { name: name.to_owned(), operations: 512, kernel: 1024 };
        let rows = of_shared(vec![row("getppid"), row("second fork of 512 MB, per page")]);
        assert_eq!(rows, [row("second fork of 512 MB")]);
        assert_eq!(rows[0].all(), 1024.0);
    }

    #[test]
    fn columns_of_numbers_end_at_the_same_place() {
        let text = aligned(&table());
        let ends: Vec<_> = text.lines().map(|line| line.find("Linux").or(line.find("  300")).unwrap_or(0)).collect();
        assert_eq!(ends[0], ends[1], "{text}");
    }

    #[test]
    fn only_the_table_of_instructions_is_replaced() {
        let page = format!("| other |\n\n| {HEAD} | old |\n| --- |\n| x |\n\nafter\n");
        let new = markdown(&table());
        let Some(page) = replaced(&page, HEAD, &new) else { panic!("the table was not found") };
        assert!(page.starts_with("| other |\n\n| ker") && page.ends_with("| 2.00 |\n\nafter\n"), "{page}");
        assert!(!page.contains("old"));
        assert_eq!(replaced("| other |", HEAD, &new), None);
    }
}
