//! What the measurements of huge pages do with a process.

use super::super::EvaluateError;
use super::super::parent::{Parent, failed};
use pagewright_arch::X86_64;
use pagewright_host::{Platform, TableMachine};
use pagewright_mm::{MmSetting, Space};
use pagewright_types::{Access, Pfn, VirtAddr};

/// A machine with page tables and records, and without contents of pages.
pub(super) type Machine = TableMachine<X86_64>;

/// Sets `transparent_hugepage.enabled`.
pub(super) fn enable<P: Platform>(process: &Parent<P>, word: &str) -> Result<(), EvaluateError> {
    set(process, MmSetting::ThpEnabled, word)
}

/// Sets a setting to a word.
pub(super) fn set<P: Platform>(process: &Parent<P>, setting: MmSetting, word: &str) -> Result<(), EvaluateError> {
    let value = setting.parse(word).ok_or_else(|| failed(word))?;
    process.mm.settings().set(setting, value).map_err(failed)
}

/// Stores to `va`, and returns the frame that the space then maps there.
pub(super) fn leaf<P: Platform>(process: &Parent<P>, space: &Space<P>, va: VirtAddr) -> Result<Pfn, EvaluateError> {
    process.mm.fault(space, va, Access::Write).map_err(failed)?;
    let leaf = space.map().read().tables(process.mm.tlb()).peek(va).leaf();
    leaf.map(|leaf| leaf.pfn()).ok_or_else(|| failed(format!("nothing is mapped at {va}")))
}
