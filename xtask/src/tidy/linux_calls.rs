//! `docs/linux-calls.md` is generated from the tables of calls and differences in `syscall`.

use super::{Finding, Generated};
use crate::cargo::Workspace;
use crate::error::Error;
use pagewright_syscall::{KnownDifference, LINUX_CALLS, Support};
use std::fmt::Write as _;

const PAGE: &str = "docs/linux-calls.md";

const HEAD: &str = "\
# Linux's memory calls

Generated from the tables in `crates/syscall` by `cargo xtask tidy --write`; do not edit it here.
`crates/syscall/tests/linux_calls.rs` holds each line against the memory manager: a supported flag
is accepted in a valid call, any other is refused with the errno given. Where nothing is said,
results, errno and effects are those of Linux 6.18, as far as random programs that run on both show
(`pagewright check --against linux`).

| call | flag | value | |
| --- | --- | --- | --- |
";

const DIFFERENCES: &str = "
## Intended differences

`crates/fuzz/src/against/meant.rs` has a program for each that shows it, and a test checks that
it still does.

| what | why |
| --- | --- |
";

/// Compares the page with the tables, or writes it.
pub(crate) fn run(workspace: &Workspace, generated: Generated) -> Result<Option<Finding>, Error> {
    generated.document(workspace, PAGE, &page())
}

fn text(support: Support) -> String {
    match support {
        Support::Full => "supported".to_owned(),
        Support::Partial(missing) => format!("partial: {missing}"),
        Support::Refused(errno, "") => format!("{errno}"),
        Support::Refused(errno, reason) => format!("{errno}: {reason}"),
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for call in LINUX_CALLS {
        // Writing to a String does not fail.
        let _ = writeln!(page, "| `{}` | | | {} |", call.name, text(call.support));
        for flag in call.flags {
            let _ = writeln!(page, "| | `{}` | {:#x} | {} |", flag.name, flag.value, text(flag.support));
        }
    }
    page.push_str(DIFFERENCES);
    for difference in KnownDifference::ALL {
        let _ = writeln!(page, "| {} | {} |", difference.name(), difference.meaning());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_flag_and_difference_has_a_row() {
        let rows = LINUX_CALLS.iter().map(|call| 1 + call.flags.len()).sum::<usize>() + KnownDifference::ALL.len();
        let page = page();
        assert_eq!(page.lines().count(), HEAD.lines().count() + DIFFERENCES.lines().count() + rows);
        assert!(page.contains("| | `MREMAP_DONTUNMAP` | 0x4 | supported |"));
    }
}
