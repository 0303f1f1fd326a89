//! `docs/linux-calls.md` is made from the tables of calls and differences in `types`.

use super::{Finding, Generated};
use crate::cargo::Workspace;
use crate::error::Error;
use pagewright_types::linux::{CALLS, Difference, Status};
use std::fmt::Write as _;

const PAGE: &str = "docs/linux-calls.md";

const HEAD: &str = "\
# Linux's memory calls

Made from the tables in `crates/types/src/linux/` by `cargo xtask tidy --write`; don't edit it here. `crates/workload/tests/linux_calls.rs`
holds each line against the memory manager: what is supported is accepted in a valid call, what is not is refused with the errno given. Where
nothing is said, answers, errno and effects are those of Linux 6.18, as far as random programs show them that run on both
(`pagewright check --against linux`).

| call | flag | value | |
| --- | --- | --- | --- |
";

const MEANT: &str = "
## Meant differences

Each with a program in `crates/workload/src/against/meant.rs` that shows it, and a test that it is still so.

| what | why |
| --- | --- |
";

/// Compares the page with the tables, or writes it.
pub(crate) fn run(workspace: &Workspace, generated: Generated) -> Result<Option<Finding>, Error> {
    generated.document(workspace, PAGE, &page())
}

fn told(status: Status) -> String {
    match status {
        Status::Supported => "supported".to_owned(),
        Status::Partial(missing) => format!("partial: {missing}"),
        Status::Refused(errno, "") => format!("{errno}"),
        Status::Refused(errno, why) => format!("{errno}: {why}"),
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for call in CALLS {
        // Writing to a String does not fail.
        let _ = writeln!(page, "| `{}` | | | {} |", call.name, told(call.status));
        for flag in call.flags {
            let _ = writeln!(page, "| | `{}` | {:#x} | {} |", flag.name, flag.value, told(flag.status));
        }
    }
    page.push_str(MEANT);
    for difference in Difference::ALL {
        let _ = writeln!(page, "| {} | {} |", difference.name(), difference.meaning());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_flag_and_difference_has_a_row() {
        let rows = CALLS.iter().map(|call| 1 + call.flags.len()).sum::<usize>() + Difference::ALL.len();
        let page = page();
        assert_eq!(page.lines().count(), HEAD.lines().count() + MEANT.lines().count() + rows);
        assert!(page.contains("| | `MREMAP_DONTUNMAP` | 0x4 | supported |"));
    }
}
