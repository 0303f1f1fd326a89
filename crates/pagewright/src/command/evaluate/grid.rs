//! Figures by row and column, which become a table and the runs of the JSON document.
//!
//! Key type: [`Grid`]. A column states its heading beside the function that finds its cell in a
//! row, so the two cannot drift apart. A column of [`counted`](Grid::counted) or
//! [`measured`](Grid::measured) figures also has the name that the JSON document gives them.
//!
//! Not guaranteed: that a column of [`text`](Grid::text) is in the JSON document.

use super::{Figures, Run, Stats, Table};

/// What a cell shows.
pub(crate) struct CellText(String);

impl From<String> for CellText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for CellText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<u64> for CellText {
    fn from(count: u64) -> Self {
        Self(count.to_string())
    }
}

impl From<Stats> for CellText {
    fn from(stats: Stats) -> Self {
        Self(stats.text())
    }
}

/// A cell without a figure is empty.
impl<T: Into<Self>> From<Option<T>> for CellText {
    fn from(figure: Option<T>) -> Self {
        figure.map_or_else(|| Self(String::new()), Into::into)
    }
}

/// One row: what it is of, its cells, and its figures in JSON.
struct GridRow<R> {
    of: R,
    cells: Vec<String>,
    run: Run,
}

/// A table in the making, column by column, with a row for each `R`.
pub(crate) struct Grid<R> {
    title: String,
    head: Vec<String>,
    rows: Vec<GridRow<R>>,
}

impl<R> Grid<R> {
    /// A grid with these rows and no column yet.
    pub(super) fn of(title: impl Into<String>, rows: impl IntoIterator<Item = R>) -> Self {
        let row = |of| GridRow { of, cells: Vec::new(), run: Run::default() };
        Self { title: title.into(), head: Vec::new(), rows: rows.into_iter().map(row).collect() }
    }

    /// Adds a column.
    pub(super) fn text<T: Into<CellText>>(mut self, head: impl Into<String>, cell: impl Fn(&R) -> T) -> Self {
        self.head.push(head.into());
        self.rows.iter_mut().for_each(|row| row.cells.push(cell(&row.of).into().0));
        self
    }

    /// Adds several columns whose cells are found together.
    pub(super) fn texts<T: Into<CellText>, const N: usize>(
        mut self,
        head: [&str; N],
        cells: impl Fn(&R) -> [T; N],
    ) -> Self {
        self.head.extend(head.map(str::to_owned));
        self.rows.iter_mut().for_each(|row| row.cells.extend(cells(&row.of).map(|cell| cell.into().0)));
        self
    }

    /// Adds a column of counts, with their name in JSON.
    pub(super) fn counted(self, head: impl Into<String>, name: &'static str, count: impl Fn(&R) -> u64) -> Self {
        self.text(head, &count).only_json(name, count)
    }

    /// Adds a column of bytes, which the table shows in KiB, with their name in JSON.
    pub(super) fn kib(self, head: impl Into<String>, name: &'static str, bytes: impl Fn(&R) -> u64) -> Self {
        self.text(head, |row| bytes(row) >> 10).only_json(name, bytes)
    }

    /// Adds counts that the table does not show.
    pub(super) fn only_json(mut self, name: &'static str, count: impl Fn(&R) -> u64) -> Self {
        self.rows.iter_mut().for_each(|row| {
            row.run.counters.insert(name.to_owned(), count(&row.of));
        });
        self
    }

    /// Adds modelled figures, which a table shows in another unit.
    pub(super) fn modelled(mut self, name: &'static str, figure: impl Fn(&R) -> u64) -> Self {
        self.rows.iter_mut().for_each(|row| {
            row.run.modelled.insert(name.to_owned(), figure(&row.of));
        });
        self
    }

    /// Adds a column of measured figures, with their name in JSON.
    pub(super) fn measured(self, head: impl Into<String>, name: &'static str, stats: impl Fn(&R) -> Stats) -> Self {
        self.text(head, &stats).only_measured(name, stats)
    }

    /// Adds measured figures that the table does not show.
    pub(super) fn only_measured(mut self, name: &'static str, stats: impl Fn(&R) -> Stats) -> Self {
        self.rows.iter_mut().for_each(|row| {
            row.run.measured.insert(name.to_owned(), stats(&row.of));
        });
        self
    }

    /// The table and the runs, whose label and input `named` gives.
    pub(super) fn figures(mut self, named: impl Fn(&R) -> [String; 2]) -> Figures {
        let runs = self.rows.iter_mut().map(|row| {
            let [label, input] = named(&row.of);
            Run { label, input, ..std::mem::take(&mut row.run) }
        });
        let runs = runs.collect();
        Figures { runs, ..self.table().into() }
    }

    /// The table, with runs that are not those of its rows.
    pub(super) fn with_runs(self, runs: impl IntoIterator<Item = Run>) -> Figures {
        Figures { runs: runs.into_iter().collect(), ..self.table().into() }
    }

    /// The table of all columns.
    pub(super) fn table(self) -> Table {
        Table { title: self.title, head: self.head, rows: self.rows.into_iter().map(|row| row.cells).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid<u64> {
        let spread = |row: &u64| Stats::of(vec![*row as f64]);
        Grid::of("t", [1, 2])
            .text("name", |row| format!("row {row}"))
            .counted("pages", "pages", |row| row * 10)
            .only_json("frames", |row| row * 100)
            .measured("µs", "fork_us", spread)
            .texts(["a", "b"], |row| [Some(*row), None])
    }

    #[test]
    fn a_table_has_each_column_that_is_not_only_in_json() {
        let table = grid().table();
        assert_eq!((table.title.as_str(), table.head.join(" ")), ("t", "name pages µs a b".to_owned()));
        assert_eq!(table.rows[1], ["row 2", "20", "2.00 [2.00–2.00]", "2", ""]);
    }

    #[test]
    fn a_run_has_each_figure_with_a_name() {
        let Figures { runs, tables, .. } = grid().figures(|row| [format!("label {row}"), "input".to_owned()]);
        assert_eq!(tables[0].title, "t");
        let run = serde_json::to_value(&runs[1]).expect("plain data");
        assert_eq!((&run["label"], &run["input"]), (&"label 2".into(), &"input".into()));
        assert_eq!(run["counters"], serde_json::json!({"pages": 20, "frames": 200}));
        assert_eq!(run["measured"]["fork_us"]["median"], 2.0);
        assert_eq!(run["modelled"], serde_json::json!({}));
    }
}
