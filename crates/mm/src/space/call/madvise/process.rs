//! `process_madvise(2)`.

use super::Advice;
use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// Ranges that one call takes (`UIO_MAXIOV`).
const MOST_RANGES: usize = 1024;
/// Bytes that one call advises about; of what is more, nothing is advised (`MAX_RW_COUNT`).
const MOST_BYTES: u64 = i32::MAX as u64 & !(PAGE_SIZE - 1);

/// Whose memory it is that advice is given about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviceTarget {
    /// The caller's own.
    Own,
    /// Another process's; the caller may look into it, and may influence how fast it runs
    /// (`CAP_SYS_NICE`).
    Other,
}

impl<P: Platform> Mm<P> {
    /// Takes the same advice about several ranges of bytes, in turn, until one fails.
    ///
    /// Returns the bytes of those that did not; a range that failed may have taken it in part.
    ///
    /// # Errors
    /// [`MmError`] when the ranges or the advice are wrong, or when the first range fails.
    pub fn process_madvise(
        &self,
        space: &Space<P>,
        whose: AdviceTarget,
        ranges: &[(VirtAddr, u64)],
        advice: Advice,
    ) -> Result<u64, MmError> {
        check_ranges::<P>(ranges)?;
        if whose == AdviceTarget::Other && !advice.is_for_others() {
            return Err(MmError::BadAdvice { advice: advice.raw() });
        }
        let total = ranges.iter().fold(0, |total: u64, (_, len)| total.saturating_add(*len)).min(MOST_BYTES);
        self.call(|| {
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

/// As `import_iovec` checks them.
fn check_ranges<P: Platform>(ranges: &[(VirtAddr, u64)]) -> Result<(), MmError> {
    if ranges.len() > MOST_RANGES {
        return Err(MmError::TooManySegments { pieces: ranges.len() });
    }
    for (addr, len) in ranges.iter().copied() {
        if len > i64::MAX as u64 {
            return Err(MmError::OutOfBounds { addr, len });
        }
    }
    let outside = |(addr, len): &&(VirtAddr, u64)| addr.checked_add(*len).is_none_or(|end| end > P::Isa::USER_END);
    ranges.iter().find(outside).map_or(Ok(()), |(at, _)| Err(MmError::Inaccessible { va: *at }))
}
