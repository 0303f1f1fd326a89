//! `cargo xtask instructions`: kernel instructions per operation, beside Linux's.
//!
//! `kernel/programs/instructions.c` runs each operation on one CPU in QEMU, on Pagewright's kernel
//! and on Debian's Linux 6.1, and `kernel/plugin/instructions.c` counts ([`count`]). QEMU's clock
//! is its count of instructions (`-icount`), so timer interrupts come at the same places in every
//! run, whatever the load of this computer. Our kernel runs twice, and a row that the two runs
//! count differently is an error. `--write` replaces the table in `docs/benchmarks.md`; `profile`
//! prints the functions of our kernel that execute the instructions ([`mod@profile`]).
//!
//! Not guaranteed: a fixed version of Linux, or equal counts in two runs of it: deferred work comes
//! at other places.

mod count;
mod profile;

use crate::boot::cases::{MACHINES, Machine, Swap};
use crate::boot::pagewright;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::kernel;
use crate::linux::Linux;
use count::{Row, differing, least};
use pagewright_types::IsaKind;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PAGE: &str = "docs/benchmarks.md";
const VERSION: &str = "6.1";
/// The time limit of a boot in seconds.
const LIMIT: &str = "300";
/// Room for a process of 512 MB, and for Linux.
const MEMORY: &str = "1G";
/// The head of the first column, by which `--write` finds the table.
const HEAD: &str = "kernel instructions per operation";
/// The words that switch off what our kernel has not, or what changes the meaning of a row.
///
/// KASLR and random stacks are off, so that runs are alike.
const WORDS: &str = "transparent_hugepage=never mitigations=off init_on_alloc=0 init_on_free=0 cgroup_disable=memory \
                     audit=0 apparmor=0 randomize_kstack_offset=off nokaslr norandmaps";

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
    let mut columns = Vec::new();
    for machine in &MACHINES {
        let ours = least(&bench.ours(machine, "")?);
        let again = least(&bench.ours(machine, "")?);
        let different = differing(&ours, &again);
        if !different.is_empty() {
            different.iter().for_each(|name| println!("{}: {name}: two runs differ", machine.isa));
            return Err(Error::Findings { check: "instructions: rows", count: different.len() });
        }
        let (package, linux) = bench.linux(machine)?;
        println!("{}: {package}", machine.isa);
        columns.push((ours, least(&linux)));
    }
    let lines = lines(&columns);
    print!("{}", aligned(&lines));
    if table == Table::Write {
        let path = bench.workspace.workspace_root.join(PAGE);
        let page = fs::read_to_string(&path).map_err(Error::file(&path))?;
        let page = replaced(&page, &markdown(&lines)).ok_or(Error::NoTable { page: PAGE, head: HEAD })?;
        fs::write(&path, page).map_err(Error::file(&path))?;
        println!("{PAGE}");
    }
    Ok(())
}

/// Prints the functions of our kernel that execute most instructions of each row.
///
/// # Errors
/// [`Error::Usage`] for another instruction set, and as [`run`].
pub(crate) fn profile(isa: &str) -> Result<(), Error> {
    let machine = MACHINES.iter().find(|machine| machine.isa.name() == isa);
    let machine = machine.ok_or_else(|| Error::Usage(format!("instructions profile {isa}")))?;
    let bench = Bench::new()?;
    let blocks = bench.folder.join("instructions-profile.txt");
    let rows = bench.ours(machine, &format!(",profile={}", blocks.display()))?;
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
        let folder = workspace.target_directory.join("programs");
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let plugin = folder.join("instructions.so");
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&plugin);
        cargo::status(compile.arg(workspace.workspace_root.join("kernel/plugin/instructions.c")))?;
        Ok(Self { pagewright: pagewright(&workspace)?, workspace, plugin, folder })
    }

    fn compile(&self, machine: &Machine, source: &str) -> Result<PathBuf, Error> {
        machine.compile(&self.workspace.workspace_root, &self.folder, source)
    }

    /// Counts on our kernel; `plugin` are further arguments of the plugin.
    fn ours(&self, machine: &Machine, plugin: &str) -> Result<Vec<Row>, Error> {
        let kernel = kernel::build(machine.isa, &[])?.display().to_string();
        self.count(machine, &["--kernel".to_owned(), kernel], plugin)
    }

    /// Counts on Linux; returns the name of its package too.
    fn linux(&self, machine: &Machine) -> Result<(String, Vec<Row>), Error> {
        let linux = Linux::fetch(&self.workspace, machine.isa, None, VERSION)?;
        let words = format!("{WORDS} {}", unisolated(machine.isa));
        let init = self.compile(machine, "init.c")?;
        let rows = self.count(machine, &linux.arguments(&init, Swap::Nothing, &words), "")?;
        Ok((linux.package, rows))
    }

    fn count(&self, machine: &Machine, kernel: &[String], plugin: &str) -> Result<Vec<Row>, Error> {
        let counts = self.folder.join("instructions.txt");
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", machine.isa.name(), "--mem", MEMORY, "--limit", LIMIT, "--count"]);
        boot.arg("--plugin").arg(format!("{},out={}{plugin}", self.plugin.display(), counts.display()));
        boot.args(kernel).arg("--").arg(self.compile(machine, "instructions.c")?);
        let program = boot.get_program().display().to_string();
        let output = boot.stdin(Stdio::null()).output().map_err(|source| Error::Spawn { program, source })?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let marks = fs::read_to_string(&counts).map_err(Error::file(&counts))?;
        count::rows(&printed, &marks).ok_or_else(|| {
            eprintln!("{printed}{}", String::from_utf8_lossy(&output.stderr));
            Error::Findings { check: "instructions: programs that failed", count: 1 }
        })
    }
}

/// The lines of the table: name, and for each instruction set ours, Linux, and their ratio.
fn lines(columns: &[(Vec<Row>, Vec<Row>)]) -> Vec<Vec<String>> {
    let mut head = vec![HEAD.to_owned()];
    for machine in &MACHINES {
        head.extend([machine.isa.name().to_owned(), "Linux".to_owned(), "ratio".to_owned()]);
    }
    let names = columns.first().map_or(&[][..], |(ours, _)| ours);
    let line = |(index, row): (usize, &Row)| {
        let mut line = vec![row.name.clone()];
        for (ours, linux) in columns {
            let figures = ours.get(index).zip(linux.get(index)).map(|(ours, linux)| (ours.each(), linux.each()));
            let (ours, linux) = figures.unwrap_or((f64::NAN, f64::NAN));
            line.extend([format!("{ours:.0}"), format!("{linux:.0}"), format!("{:.2}", ours / linux)]);
        }
        line
    };
    std::iter::once(head).chain(names.iter().enumerate().map(line)).collect()
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

/// The page with its table of instructions replaced; `None` if it has none.
fn replaced(page: &str, table: &str) -> Option<String> {
    let start = page.find(&format!("| {HEAD} |"))?;
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
        lines(&[columns, (vec![row("fork", 4, 800)], vec![row("fork", 4, 400)])])
    }

    #[test]
    fn a_ratio_is_ours_by_linux() {
        assert_eq!(table()[1], ["fork", "150", "300", "0.50", "200", "100", "2.00"]);
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
        let Some(page) = replaced(&page, &new) else { panic!("the table was not found") };
        assert!(page.starts_with("| other |\n\n| ker") && page.ends_with("| 2.00 |\n\nafter\n"), "{page}");
        assert!(!page.contains("old"));
        assert_eq!(replaced("| other |", &new), None);
    }
}
