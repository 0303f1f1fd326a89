//! `cargo xtask mutate`: small mistakes in the source, and which tests notice them.
//!
//! A mutant is the source with one operator, number, condition, statement or result changed
//! ([`generate`], [`operators`]). A sample of them is built at once, each behind a switch
//! ([`rewrite`], `runtime.rs`) in a copy of the repository ([`scratch`], [`build`]). Then each runs
//! with the tests that reach it, the quick ones first, until one fails ([`suite`], [`execute`]). A
//! mutant that survives shows a rule that no test guards, or changes nothing that matters:
//! `justified.toml` has the reasons ([`justified`]). The share of killed mutants, of all and of
//! those without a reason, is an estimate with an interval ([`interval`], [`report`]).
//!
//! The order of the sample depends on the seed and on each mutant's id, so a change of one function
//! leaves the rest of the sample alone. An interrupted run goes on where it was ([`results`]).
//!
//! Not guaranteed: mutants of code that may run at compile time (`const fn`). They are counted and
//! never in a sample. Memory orderings and fences are not mutated: this machine would not show the
//! difference. Neither are scheduling points (`point`), which do nothing outside a search, nor
//! conditions on how the program was built (`cfg!`).

mod build;
mod compiled;
mod execute;
mod generate;
mod interval;
mod justified;
mod mutant;
mod operators;
mod options;
mod report;
mod results;
mod rewrite;
mod scratch;
mod suite;

use crate::cargo::Workspace;
use crate::error::Error;
use justified::Justified;
use mutant::{Mutant, stable_hash};
use options::Options;
use results::{Fate, MutantResult, RunFolder};
use scratch::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use suite::Suite;

/// A package whose code is mutated.
struct Scope {
    package: &'static str,
    /// The folder of its source.
    source: &'static str,
    /// The modules, or none for all.
    modules: &'static [&'static str],
}

const SCOPES: [Scope; 5] = [
    Scope { package: "pagewright-sync", source: "crates/sync/src", modules: &[] },
    Scope { package: "pagewright-frame", source: "crates/frame/src", modules: &[] },
    Scope { package: "pagewright-tlb", source: "crates/tlb/src", modules: &[] },
    Scope { package: "pagewright-table", source: "crates/table/src", modules: &[] },
    Scope {
        package: "pagewright-mm",
        source: "crates/mm/src",
        modules: &["fault", "fork", "gup", "rmap", "swap", "reclaim"],
    },
];

/// The share of mutants, of all that compile, that the tests must kill: nine tenths.
///
/// A run is a sample, so it fails only if its whole interval is below.
const FLOOR: f64 = 0.90;

/// Runs the command with its options.
///
/// # Errors
/// [`Error::Usage`] for options that are wrong; [`Error::Findings`], if a justified mutant no
/// longer exists or is killed, or if the whole interval of the share is below [`FLOOR`].
pub(crate) fn run(words: &[&str]) -> Result<(), Error> {
    let options = Options::parse(words)?;
    let workspace = Workspace::load()?;
    let all = mutants(&workspace)?;
    let justified = justified::read()?;
    let stale: Vec<&Justified> =
        justified.iter().filter(|entry| !all.iter().any(|mutant| entry.is_about(&mutant.mutation))).collect();
    for entry in &stale {
        println!("{}: no such mutant: {}", justified::LEDGER, entry.shown());
    }
    let of_const = all.iter().filter(|mutant| mutant.is_const).count();
    let chosen = options.choose(all);
    if options.list {
        list(&chosen);
    } else {
        sample(&workspace, &options, chosen, &justified)?;
    }
    println!("{of_const} mutants are in code that may run at compile time and are never in a sample");
    if stale.is_empty() { Ok(()) } else { Err(Error::Findings { check: "justified mutants", count: stale.len() }) }
}

fn list(mutants: &[Mutant]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for mutant in mutants {
        println!("{}", mutant.mutation);
        for group in [mutant.mutation.package.clone(), format!("{:?}", mutant.mutation.operator).to_lowercase()] {
            *counts.entry(group).or_default() += 1;
        }
    }
    println!();
    counts.iter().for_each(|(group, count)| println!("{group:24} {count:>6}"));
    println!("{} mutants, not all of which compile", mutants.len());
}

/// Every mutant of the scopes.
fn mutants(workspace: &Workspace) -> Result<Vec<Mutant>, Error> {
    let mut found = Vec::new();
    for scope in &SCOPES {
        let mut files = vec![workspace.workspace_root.join(scope.source).join("lib.rs")];
        while let Some(path) = files.pop() {
            let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
            let shown = workspace.shown(&path).to_owned();
            let of_file = generate::mutants_of(scope.package, &shown.to_string_lossy(), &text)
                .map_err(|source| Error::Syntax { path: path.clone(), source })?;
            files.extend(of_file.modules.iter().filter_map(|name| module_file(&path, name)));
            if scope.contains(&shown) {
                found.extend(of_file.mutants);
            }
        }
    }
    Ok(found)
}

impl Scope {
    fn contains(&self, file: &Path) -> bool {
        let Ok(inside) = file.strip_prefix(self.source) else { return false };
        let top = inside.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let top = top.unwrap_or_default();
        self.modules.is_empty() || self.modules.contains(&top.trim_end_matches(".rs"))
    }
}

/// The file of the module `name` that `parent` declares, if it exists.
fn module_file(parent: &Path, name: &str) -> Option<PathBuf> {
    let stem = parent.file_stem()?.to_str()?;
    let folder = parent.parent()?;
    let folder = if ["lib", "mod"].contains(&stem) { folder.to_owned() } else { folder.join(stem) };
    [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")].into_iter().find(|path| path.exists())
}

/// Builds a sample of `mutants`, runs it and prints the report.
fn sample(
    workspace: &Workspace,
    options: &Options,
    mutants: Vec<Mutant>,
    justified: &[Justified],
) -> Result<(), Error> {
    let mut scratch = Scratch::new(workspace)?;
    let key = stable_hash(&[&scratch.digest().to_string(), &options.key()]);
    let folder = RunFolder::open(workspace.target_directory.join("mutate").join(format!("{key:016x}")))?;
    println!("mutate: {} mutants to draw from; results in {}", mutants.len(), folder.shown().display());
    let mut rejected = folder.rejected();
    let tested = if options.tests.is_empty() { dependents(workspace, &mutants) } else { options.tests.clone() };
    let count = options.count(mutants.len());
    let note = |rejected: &_| folder.set_rejected(rejected);
    let (chosen, programs) = build::build(&mut scratch, &mutants, count, &tested, &mut rejected, note)?;
    let suite = Suite::new(workspace, programs, &folder.path, options.longest)?;
    suite.adopt(folder.baselines().into_iter());
    println!("mutate: {} mutants are built; {} tests of {}", chosen.len(), suite.tests.len(), tested.join(", "));
    // One mutant is soon killed by the tests of its own package; for many, all tests pay.
    if options.ids.is_empty() {
        execute::baselines(&suite, &folder)?;
    }
    execute::mutants(&suite, &folder, &mutants, &chosen)?;
    let done = folder.results();
    let of = |index: usize| done.iter().rev().find(|result| result.mutation.id == mutants[index].mutation.id).cloned();
    let mut results: Vec<MutantResult> = chosen.iter().filter_map(|index| of(*index)).collect();
    let last = chosen.iter().max().copied().unwrap_or_default();
    let not_built = rejected.iter().filter(|(index, _)| **index <= last || !options.ids.is_empty());
    results.extend(not_built.map(|(index, why)| MutantResult::new(&mutants[*index], Fate::Rejected(*why), 0.0)));
    let (text, counts) = report::report(&results, justified);
    println!("{text}");
    suite.print_left_out();
    let path = folder.path.join("report.txt");
    fs::write(&path, &text).map_err(Error::file(&path))?;
    let wrong: Vec<&MutantResult> = results
        .iter()
        .filter(|result| result.fate.is_killed() && justified.iter().any(|entry| entry.is_about(&result.mutation)))
        .collect();
    for result in &wrong {
        println!("{}: {} is killed and needs no reason", justified::LEDGER, result.mutation.id);
    }
    let below = options.ids.is_empty() && counts.is_below(FLOOR);
    if below {
        println!("mutate: fewer than {:.0} % of the mutants are killed", FLOOR * 100.0);
    }
    match wrong.len() + usize::from(below) {
        0 => Ok(()),
        count => Err(Error::Findings { check: "mutate", count }),
    }
}

/// The packages that link one of the mutated packages, and these themselves.
fn dependents(workspace: &Workspace, mutants: &[Mutant]) -> Vec<String> {
    let mut found: Vec<String> = mutants.iter().map(|mutant| mutant.mutation.package.clone()).collect();
    found.sort();
    found.dedup();
    loop {
        let before = found.len();
        for package in &workspace.packages {
            let links = package.dependencies.iter().any(|dependency| found.contains(&dependency.name));
            // This program has no test of the code.
            if links && !found.contains(&package.name) && package.name != "xtask" {
                found.push(package.name.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests;
