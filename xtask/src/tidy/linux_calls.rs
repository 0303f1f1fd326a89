//! Generates `docs/linux-calls.md` from the tables of calls and differences in `syscall`.

use super::{Finding, Generated};
use crate::cargo::Workspace;
use crate::error::Error;
use pagewright_syscall::{KnownDifference, LINUX_CALLS, Support};
use std::fmt::Write as _;

const PAGE: &str = "docs/linux-calls.md";

const HEAD: &str = "\
# Linux's memory calls

This page lists every memory call of Linux, each flag of it, and what the memory manager does with
them. Where the table says *supported*, results, errno and effects are those of Linux 6.18, as far
as random programs show that run on both (`pagewright check --against linux`); the intended
differences stand below the table.

`crates/syscall/tests/linux_calls.rs` tests each row: a valid call with a supported flag is
accepted, and an unsupported flag is refused with the errno shown. `cargo xtask tidy --write` makes
this page from the tables in `crates/syscall`: edit the tables, not the page.

| call | flag | value | |
| --- | --- | --- | --- |
";

const DIFFERENCES: &str = "
## Intended differences

Each row has a program in `crates/fuzz/src/against/known_differences.rs` that shows the difference,
and a test that it still exists.

| what | why |
| --- | --- |
";

/// Compares the page with the tables, or writes the page.
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
        // Writing to a `String` cannot fail.
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
