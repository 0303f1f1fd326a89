//! The counts of the rows: what the program and the plugin printed.
//!
//! The plugin prints a line for each mark that the program executes, and the program names the rows
//! afterwards, two marks each. Of rows with the same name the least counts ([`least`]).
//!
//! Not guaranteed: that a row's operations are what its name says; the program checks its calls.

/// Two runs agree if a row differs by less than this part of it.
///
/// The path of the report, which is on arm64's command line, has the number of a process.
const TOLERANCE: u64 = 2000;

/// The operations of a row and their instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) operations: u64,
    /// The kernel's instructions for all of them.
    pub(super) kernel: u64,
}

impl Row {
    /// The instructions of all operations.
    pub(super) fn all(&self) -> f64 {
        self.kernel as f64
    }

    /// The instructions of one operation.
    pub(super) fn each(&self) -> f64 {
        self.kernel as f64 / self.operations as f64
    }
}

/// Reads the rows; `None` if a line is malformed, or there are not two marks for each row.
pub(super) fn rows(printed: &str, marks: &str) -> Option<Vec<Row>> {
    let marks: Vec<u64> = marks.lines().map(kernel_instructions).collect::<Option<_>>()?;
    // The terminal of Linux ends lines with CR LF, which `lines` takes for one end.
    let named: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("row ")).collect();
    if named.is_empty() || marks.len() != 2 * named.len() {
        return None;
    }
    let row = |(line, marks): (&&str, &[u64])| {
        let (operations, name) = line.split_once(' ')?;
        let operations = operations.parse().ok().filter(|operations| *operations > 0)?;
        Some(Row { name: name.trim_end().to_owned(), operations, kernel: marks[1].checked_sub(marks[0])? })
    };
    named.iter().zip(marks.chunks(2)).map(row).collect()
}

/// The rows with the least count of each name, in the order of their first.
pub(super) fn least(rows: &[Row]) -> Vec<Row> {
    let mut least: Vec<Row> = Vec::new();
    for row in rows {
        match least.iter_mut().find(|known| known.name == row.name) {
            Some(known) if known.kernel <= row.kernel => {}
            Some(known) => known.clone_from(row),
            None => least.push(row.clone()),
        }
    }
    least
}

/// Parses `mark kernel=COUNT …`.
fn kernel_instructions(line: &str) -> Option<u64> {
    line.strip_prefix("mark ")?.split(' ').find_map(|word| word.strip_prefix("kernel="))?.parse().ok()
}

/// The names of the rows that two runs count differently.
pub(super) fn differing(one: &[Row], other: &[Row]) -> Vec<String> {
    let differs = |(one, other): &(&Row, &Row)| {
        one.name != other.name || one.kernel.abs_diff(other.kernel) * TOLERANCE > one.kernel
    };
    one.iter().zip(other).filter(differs).map(|(row, _)| row.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: &str = "mark kernel=100 string=7 user=5\nmark kernel=160 string=8 user=9\n\
                         mark kernel=200 string=8 user=9\nmark kernel=500 string=8 user=9\n";

    #[test]
    fn a_row_is_what_lies_between_its_two_marks() {
        let rows = rows("hello\r\nrow 3 a fault\r\nrow 10 fork, per page\r\n\nstatus 0\n", MARKS);
        let row = |name: &str, operations, kernel| Row { name: name.to_owned(), operations, kernel };
        assert_eq!(rows, Some(vec![row("a fault", 3, 60), row("fork, per page", 10, 300)]));
    }

    #[test]
    fn rows_without_two_marks_each_are_refused() {
        assert_eq!(rows("row 3 a fault\n", MARKS), None);
        assert_eq!(rows("", ""), None);
        assert_eq!(rows("row 0 nothing\nrow 1 b\n", MARKS), None);
        assert_eq!(rows("row 1 a\n", "mark user=1\nmark user=2\n"), None);
    }

    #[test]
    fn of_rows_with_one_name_the_least_counts() {
        let row = |name: &str, kernel| Row { name: name.to_owned(), operations: 1, kernel };
        let rows = [row("a", 5), row("b", 1), row("a", 3), row("a", 4)];
        assert_eq!(least(&rows), [row("a", 3), row("b", 1)]);
    }

    #[test]
    fn rows_that_two_runs_count_differently_are_named() {
        let row = |name: &str, kernel| Row { name: name.to_owned(), operations: 1, kernel };
        let one = [row("a", 10_000), row("b", 10_000), row("c", 10_000)];
        let other = [row("a", 10_005), row("b", 10_006), row("d", 10_000)];
        assert_eq!(differing(&one, &other), ["b", "c"]);
    }
}
