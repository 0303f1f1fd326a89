//! `process_madvise(2)`: advice about several ranges, also of another process.

use super::{Advice, AdviceRules};
use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// Maximum number of ranges of one call (`UIO_MAXIOV`).
const MAX_RANGES: usize = 1024;
/// Maximum number of bytes of one call, which ignores the rest (`MAX_RW_COUNT`).
const MAX_BYTES: u64 = i32::MAX as u64 & !(PAGE_SIZE - 1);

/// The process whose memory advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviceTarget {
    /// The caller.
    Own,
    /// Another process.
    ///
    /// The embedder has checked that the caller may read its memory (`ptrace_may_access`) and may
    /// influence its speed (`CAP_SYS_NICE`).
    Other,
}

impl<P: Platform> Mm<P> {
    /// Applies the same advice to several ranges of bytes, in order, until one fails.
    ///
    /// Returns the number of bytes of the ranges before the failure. The advice may have been
    /// applied to a part of the range that failed.
    ///
    /// # Errors
    /// [`MmError`] if a range or the advice is invalid, or if the first range fails.
    pub fn process_madvise(
        &self,
        space: &Space<P>,
        target: AdviceTarget,
        ranges: &[(VirtAddr, u64)],
        advice: Advice,
    ) -> Result<u64, MmError> {
        check_ranges::<P>(ranges)?;
        if target == AdviceTarget::Other && !advice.obeys(AdviceRules::REMOTE) {
            return Err(MmError::BadAdvice { advice: advice.raw() });
        }
        let total = ranges.iter().fold(0, |total: u64, (_, len)| total.saturating_add(*len)).min(MAX_BYTES);
        self.declare_return_of(|| {
            let mut advised = 0;
            for (addr, len) in ranges.iter().copied() {
                if advised == total {
                    break;
                }
                let len = len.min(total - advised);
                let range = bounded(addr, len);
                let done =
                    range.and_then(|range| if range.is_empty() { Ok(()) } else { self.advise(space, range, advice) });
                match done {
                    Ok(()) => advised += len,
                    Err(error) if advised == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            Ok(advised)
        })
    }
}

/// Checks the ranges as `import_iovec` does.
fn check_ranges<P: Platform>(ranges: &[(VirtAddr, u64)]) -> Result<(), MmError> {
    if ranges.len() > MAX_RANGES {
        return Err(MmError::TooManySegments { segments: ranges.len() });
    }
    for (addr, len) in ranges.iter().copied() {
        if len > i64::MAX as u64 {
            return Err(MmError::OutOfBounds { addr, len });
        }
    }
    let outside = |(addr, len): &&(VirtAddr, u64)| addr.checked_add(*len).is_none_or(|end| end > P::Isa::USER_END);
    ranges.iter().find(outside).map_or(Ok(()), |(at, _)| Err(MmError::Inaccessible { va: *at }))
}
