//! The functions that execute a row's instructions.
//!
//! The plugin's profile has the blocks of code that the kernel executed since the mark before, and
//! the symbols of the linked image name their functions.
//!
//! Not guaranteed: functions that the compiler inlined, which count as their callers.

use super::count::Row;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::fmt::Write;

/// The functions shown for a row.
const SHOWN: usize = 15;

/// The functions of an image, by address.
pub(super) struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// Reads the functions and labels of code of an ELF file; `None` if it is none.
    pub(super) fn read(image: &[u8]) -> Option<Self> {
        let image = object::File::parse(image).ok()?;
        let is_code = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown);
        let code = image.symbols().filter(|symbol| symbol.is_definition() && is_code(symbol.kind()));
        let named = code.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)));
        // The marks of arm64's ELF files, `$x` and `$d`, name nothing.
        let named = named.filter(|(_, name)| !name.is_empty() && !name.starts_with('$'));
        let mut symbols: Vec<_> = named.map(|(address, name)| (address, plain(name))).collect();
        symbols.sort();
        Some(Self(symbols))
    }

    fn name(&self, address: u64) -> &str {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        after.checked_sub(1).and_then(|index| self.0.get(index)).map_or("?", |(_, name)| name)
    }
}

/// The name in source, without what LLVM appends to names of its own.
fn plain(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name);
    format!("{:#}", rustc_demangle::demangle(name)).replace("pagewright_", "")
}

/// Prints the functions of each row; `blocks` is what the plugin wrote.
pub(super) fn report(rows: &[Row], blocks: &str, symbols: &Symbols) -> String {
    // Before the first mark is nothing, and before a row's first mark the steps between rows.
    let sections: Vec<&str> = blocks.split("mark\n").collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        // The first time shows as much as the others.
        if rows[..index].iter().any(|earlier| earlier.name == row.name) {
            continue;
        }
        let functions = functions(sections.get(2 * index + 2).unwrap_or(&""), symbols);
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{}: {:.1}", row.name, row.each());
        for (name, instructions) in functions.iter().take(SHOWN) {
            let each = *instructions as f64 / row.operations as f64;
            let _ = writeln!(text, "{each:>12.1} {:>5.1} %  {name}", 100.0 * each / row.each());
        }
    }
    text
}

/// The instructions of each function, the most first.
fn functions<'a>(section: &str, symbols: &'a Symbols) -> Vec<(&'a str, u64)> {
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for (address, instructions) in section.lines().filter_map(block) {
        *counts.entry(symbols.name(address)).or_default() += instructions;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(name, instructions)| (std::cmp::Reverse(*instructions), *name));
    counts
}

/// Parses `ADDRESS LENGTH EXECUTIONS` into an address and the instructions executed.
fn block(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    Some((address, number()? * number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_go_to_the_function_that_holds_them() {
        let symbols = Symbols(vec![(0x100, "zap".to_owned()), (0x200, "fork".to_owned())]);
        let rows = [Row { name: "exit".to_owned(), operations: 2, kernel: 60 }];
        let blocks = "mark\n100 1 1000\nmark\n1f0 4 5\n200 10 2\n208 2 10\n";
        let text = report(&rows, blocks, &symbols);
        assert_eq!(text, "exit: 30.0\n        20.0  66.7 %  fork\n        10.0  33.3 %  zap\n");
        assert_eq!(symbols.name(0x50), "?");
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(plain("memset.llvm.123"), "memset");
        assert_eq!(plain("_ZN13pagewright_mm3zap17h0123456789abcdefE"), "mm::zap");
    }
}
