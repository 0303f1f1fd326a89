//! Draws lines in columns, one for each CPU, time downwards, at most so many characters wide.

use crate::journal::CodeLocation;
use pagewright_types::CpuId;
use std::collections::BTreeSet;

/// Characters in a line of a report.
pub(super) const WIDTH: usize = 100;
/// Characters before the first column, for the mark and the step.
const GUTTER: usize = 8;
/// The most CPUs that get a column each; more CPUs share one column, and each line names its CPU.
const COLUMNS: usize = 3;
/// In a long run, the lines drawn on either side of a marked one.
const AROUND: usize = 8;
/// The longest run, in lines, that is drawn whole.
const WHOLE: usize = 70;

/// One line of the drawing.
#[derive(Debug)]
pub(super) struct Line {
    /// The step of the schedule; 0 outside of a schedule.
    pub(super) at: u32,
    pub(super) cpu: CpuId,
    pub(super) text: String,
    /// Why the findings refer to it; empty if they do not.
    pub(super) why: Vec<String>,
    /// How often it happened in a row.
    pub(super) times: u32,
    /// Whether it is a note of a program.
    pub(super) note: bool,
    /// Whether it stores to an entry.
    pub(super) stores: bool,
    /// The code that did it, if that is known.
    pub(super) location: Option<LineLocation>,
}

/// The code that did what a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineLocation {
    pub(super) code: CodeLocation,
    /// Whether it is only near: a store by pointer is between two calls of the harness.
    pub(super) near: bool,
}

impl LineLocation {
    /// Its text, with the file as `names` has it.
    pub(super) fn text(&self, names: &FileNames) -> String {
        let near = if self.near { "near " } else { "" };
        match &self.code {
            CodeLocation::Line(line) => format!("[{near}{}:{}]", names.of(line.file()), line.line()),
            CodeLocation::Frame(name) => format!("[{near}{name}]"),
            CodeLocation::Instruction(name) => format!("[{name}]"),
        }
    }
}

/// The shortest names of files that tell them apart: the last parts of their paths.
pub(super) struct FileNames(BTreeSet<&'static str>);

impl FileNames {
    /// Names the files of `lines`.
    pub(super) fn new<'a>(locations: impl Iterator<Item = &'a LineLocation>) -> Self {
        let file = |location: &LineLocation| match location.code {
            CodeLocation::Line(line) => Some(line.file()),
            CodeLocation::Frame(_) | CodeLocation::Instruction(_) => None,
        };
        Self(locations.filter_map(file).collect())
    }

    fn of(&self, file: &'static str) -> &'static str {
        let starts = file.rmatch_indices(['/', '\\']).map(|(at, _)| at + 1).chain([0]);
        let is_unique = |name: &&str| self.0.iter().filter(|other| other.ends_with(name)).count() <= 1;
        starts.map(|start| &file[start..]).find(is_unique).unwrap_or(file)
    }
}

/// Draws `lines`, at most `width` characters wide.
pub(super) fn draw(lines: &[Line], width: usize) -> String {
    let names = FileNames::new(lines.iter().filter_map(|line| line.location.as_ref()));
    let mut cpus: Vec<CpuId> = lines.iter().map(|line| line.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let columns = if cpus.len() <= COLUMNS { cpus.len().max(1) } else { 1 };
    let width = (width - GUTTER - 3 * (columns - 1)) / columns;
    let sheet = Sheet { cpus: if columns == cpus.len() { cpus } else { Vec::new() }, columns, width, names };
    let mut text = sheet.header();
    let mut folded = 0;
    for (index, line) in lines.iter().enumerate() {
        if is_drawn(lines, index) {
            text.push_str(&sheet.folded(std::mem::take(&mut folded)));
            text.push_str(&sheet.line(line));
        } else {
            folded += 1;
        }
    }
    text + &sheet.folded(folded)
}

fn is_drawn(lines: &[Line], index: usize) -> bool {
    let around = &lines[index.saturating_sub(AROUND)..(index + AROUND + 1).min(lines.len())];
    lines.len() <= WHOLE || lines[index].note || around.iter().any(|line| !line.why.is_empty())
}

struct Sheet {
    /// The CPU of each column; empty if all share one.
    cpus: Vec<CpuId>,
    columns: usize,
    width: usize,
    names: FileNames,
}

impl Sheet {
    fn header(&self) -> String {
        let names = self.cpus.iter().map(|cpu| format!("{:<width$}", format!("CPU {cpu}"), width = self.width));
        let names = names.collect::<Vec<_>>().join(" │ ");
        if names.is_empty() { String::new() } else { format!("{:GUTTER$}{}\n", "step", names.trim_end()) }
    }

    fn folded(&self, lines: usize) -> String {
        match lines {
            0 => String::new(),
            1 => format!("{:GUTTER$}⋮ 1 more line\n", ""),
            _ => format!("{:GUTTER$}⋮ {lines} more lines\n", ""),
        }
    }

    fn line(&self, line: &Line) -> String {
        let cpu = if self.cpus.is_empty() { format!("CPU {}: ", line.cpu) } else { String::new() };
        let times = if line.times > 1 { format!(" ({} times)", line.times) } else { String::new() };
        let location = line.location.iter().map(|location| format!(" {}", location.text(&self.names)));
        let text = format!("{cpu}{}{times}{}", line.text, location.collect::<String>());
        let mut rows = wrapped(&text, self.width, "");
        rows.extend(line.why.iter().flat_map(|why| wrapped(why, self.width, "└ ")));
        let mark = if line.why.is_empty() { ' ' } else { '►' };
        let step = if line.at == 0 { "rest".to_owned() } else { line.at.to_string() };
        let mut drawn = String::new();
        for (index, row) in rows.iter().enumerate() {
            let gutter = if index == 0 { format!("{mark}{step:>5}  ") } else { " ".repeat(GUTTER) };
            drawn.push_str(format!("{gutter}{}", self.row(line.cpu, row)).trim_end());
            drawn.push('\n');
        }
        drawn
    }

    fn row(&self, cpu: CpuId, text: &str) -> String {
        if self.cpus.is_empty() {
            return text.to_owned();
        }
        let cells = self.cpus.iter().map(|column| {
            let text = if *column == cpu { text } else { "" };
            format!("{text:<width$}", width = self.width)
        });
        let cells: Vec<String> = cells.collect();
        debug_assert_eq!(cells.len(), self.columns);
        cells.join(" │ ")
    }
}

/// Wraps `text` to rows as wide as a drawing.
pub(crate) fn rows(text: &str) -> Vec<String> {
    wrapped(text, WIDTH, "")
}

/// Wraps `text` to rows of at most `width` characters; a longer word has a row of its own.
///
/// The first row begins with `lead` and the indentation of the text. The other rows are indented by
/// two more characters.
fn wrapped(text: &str, width: usize, lead: &str) -> Vec<String> {
    let indent = text.len() - text.trim_start().len();
    let mut rows = Vec::new();
    let mut row = format!("{lead}{:indent$}", "");
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && row.chars().count() + 1 + word.chars().count() > width {
            rows.push(std::mem::replace(&mut row, " ".repeat(indent + 2)));
            empty = true;
        }
        if !empty {
            row.push(' ');
        }
        row.push_str(word);
        empty = false;
    }
    rows.push(row);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(cpu: u16, text: &str, why: &[&str]) -> Line {
        let why = why.iter().map(|why| (*why).to_owned()).collect();
        Line {
            at: 7,
            cpu: CpuId::new(cpu),
            text: text.to_owned(),
            why,
            times: 1,
            note: false,
            stores: false,
            location: None,
        }
    }

    #[test]
    fn each_cpu_has_a_column_and_no_row_is_too_wide() {
        let long = "a text that is so long that it does not fit into a column of a drawing with three CPUs in it";
        for cpus in [1, 2, 3, 4, 9] {
            let lines: Vec<Line> =
                (0..cpus).map(|cpu| line(cpu, long, &["why it matters, in some words that are many"])).collect();
            let text = draw(&lines, WIDTH);
            assert!(text.lines().all(|row| row.chars().count() <= WIDTH), "{text}");
            assert_eq!(text.matches('►').count(), usize::from(cpus), "{text}");
            for word in long.split(' ') {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
        let text = draw(&[line(0, "here", &[]), line(1, "there", &[])], WIDTH);
        assert_eq!(text.lines().nth(1), Some("     7  here                                         │"));
        assert!(text.ends_with("│ there\n"), "{text}");
    }

    #[test]
    fn a_long_run_is_drawn_around_marks_and_notes() {
        let mut lines: Vec<Line> = (0..500).map(|index| line(0, &format!("number {index}."), &[])).collect();
        lines[250].why.push("this".to_owned());
        lines[400].note = true;
        let text = draw(&lines, WIDTH);
        for (number, drawn) in
            [(250, true), (242, true), (258, true), (400, true), (241, false), (0, false), (499, false)]
        {
            assert_eq!(text.contains(&format!("number {number}.")), drawn, "{number} in {text}");
        }
        assert!(text.contains("⋮ 242 more lines") && text.contains("⋮ 141 more lines"), "{text}");
        assert!(text.ends_with("⋮ 99 more lines\n"), "{text}");
    }

    #[test]
    fn a_narrower_drawing_has_the_same_words() {
        let lines =
            [line(0, "clears the entry of a page", &["which another CPU still uses"]), line(1, "reads it", &[])];
        let narrow = draw(&lines, 50);
        assert!(narrow.lines().all(|row| row.chars().count() <= 50), "{narrow}");
        let words = |text: &str| {
            text.split_whitespace().filter(|word| *word != "│").map(str::to_owned).collect::<BTreeSet<_>>()
        };
        assert_eq!(words(&narrow), words(&draw(&lines, WIDTH)));
    }
}
