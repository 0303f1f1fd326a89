//! What a program writes to `split_huge_pages` (`split_huge_pages_write`).
//!
//! ```text
//!   1                                    all large folios of anonymous memory
//!   PID,0xSTART,0xEND[,ORDER]            those of a range of a process
//! ```
//!
//! Linux also splits folios of a file, to another order than 0, and unevenly around a page. These
//! are refused here.
//!
//! Neighbours: `split_range` splits.
//!
//! Not guaranteed: that the process exists.

use pagewright_arch::Isa;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

/// The most bytes of a request that are looked at (`MAX_INPUT_BUF_SZ`).
const MOST_BYTES: usize = 254;

/// Which large folios are to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitRequest {
    /// All of anonymous memory.
    All,
    /// Those of a range.
    Of {
        /// The number of the process; the caller looks it up, and a negative number is no process.
        process: i32,
        /// The range, as far as it is user memory.
        range: PageRange,
    },
}

impl SplitRequest {
    /// The request in `bytes`, as `sscanf` reads it; `None` for anything else (`EINVAL`).
    pub fn parse<I: Isa>(bytes: &[u8]) -> Option<Self> {
        let mut text = Scan(&bytes[..bytes.len().min(MOST_BYTES)]);
        let process = text.decimal()?;
        let Some(start) = text.after(b",0x").and_then(|()| text.hexadecimal()) else {
            return (process == 1).then_some(Self::All);
        };
        let end = text.after(b",0x").and_then(|()| text.hexadecimal())?;
        if let Some(order) = text.after(b",").and_then(|()| text.decimal()) {
            let has_offset = text.after(b",").and_then(|()| text.decimal()).is_some();
            if order != 0 || has_offset {
                return None;
            }
        }
        let [start, end] = [start, end].map(|at| VirtAddr::new(at.min(I::USER_END.raw())).align_down(PAGE_SIZE));
        Some(Self::Of { process: i32::try_from(process).ok()?, range: PageRange::new(start, end.max(start)) })
    }
}

/// The rest of a text that is read from its beginning (`sscanf`).
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn after(&mut self, literal: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(literal)?;
        Some(())
    }

    fn decimal(&mut self) -> Option<i64> {
        self.0 = self.0.trim_ascii_start();
        let negative = self.after(b"-").is_some();
        let value = i64::try_from(self.digits(10)?).unwrap_or(i64::MAX);
        Some(if negative { -value } else { value })
    }

    fn hexadecimal(&mut self) -> Option<u64> {
        self.0 = self.0.trim_ascii_start();
        self.digits(16)
    }

    fn digits(&mut self, radix: u32) -> Option<u64> {
        let digit = |byte: &u8| char::from(*byte).to_digit(radix);
        let len = self.0.iter().take_while(|byte| digit(byte).is_some()).count();
        let (digits, rest) = self.0.split_at(len);
        self.0 = rest;
        let add = |value: u64, digit: u32| value.saturating_mul(radix.into()).saturating_add(digit.into());
        (len > 0).then(|| digits.iter().filter_map(digit).fold(0, add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_arch::X86_64;

    fn parse(text: &str) -> Option<SplitRequest> {
        SplitRequest::parse::<X86_64>(text.as_bytes())
    }

    #[test]
    fn requests_are_read_as_in_linux() {
        let of = |process, start, end| {
            let range = PageRange::new(VirtAddr::new(start), VirtAddr::new(end));
            Some(SplitRequest::Of { process, range })
        };
        assert_eq!(["1", "1\n", " 1", "1,nothing"].map(parse), [Some(SplitRequest::All); 4]);
        assert_eq!(parse("7,0x200000,0x400000"), of(7, 0x20_0000, 0x40_0000));
        assert_eq!(parse("1,0x200fff,0x400fff,0\n"), of(1, 0x20_0000, 0x40_0000), "whole pages");
        assert_eq!(parse("7,0x400000,0x200000"), of(7, 0x40_0000, 0x40_0000), "no page");
        assert_eq!(parse("-1,0x0,0x1000"), of(-1, 0, 0x1000), "a number that no process has");
        let user_end = X86_64::USER_END.raw();
        assert_eq!(parse("7,0x0,0xffffffffffffffff"), of(7, 0, user_end));
    }

    /// Linux's `EINVAL`; the last three lines are requests that it serves.
    #[test]
    fn other_requests_are_refused() {
        for text in ["", "all", "0", "2", "-1", "7,", "7,0x1000", "7,0x1000,", "7,1000,2000", "7,0x,0x", "/file"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("7,0x1000,0x2000,2"), None, "another order");
        assert_eq!(parse("7,0x1000,0x2000,0,3"), None, "around a page");
        assert_eq!(parse("/file,0x0,0x10"), None, "a file");
    }
}
