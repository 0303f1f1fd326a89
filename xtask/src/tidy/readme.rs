//! The README of a package, from the documentation of its crate.
//!
//! It has the opening paragraphs of the crate, and the section `# Example`, which `cargo test
//! --doc` builds and runs. The lines that rustdoc hides are left out.
//!
//! Not guaranteed: that links of the documentation lead anywhere. A README has their text alone.

use crate::cargo::Package;
use std::fmt::Write as _;

const HEADING: &str = "# Example";

/// The documentation of a crate, without the comment marks.
fn documentation(root: &str) -> Vec<&str> {
    let lines = root.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect()
}

/// The text without intra-doc links: `` [`X`](y) `` and `` [`X`] `` become `` `X` ``.
pub(super) fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        let _ = write!(out, "{before}`{name}`");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    out + rest
}

/// The paragraphs before the first list, table, code block or heading.
fn opening(documentation: &[&str]) -> String {
    let is_structure = |line: &str| ["- ", "* ", "|", "```", "#"].iter().any(|mark| line.starts_with(mark));
    let end = documentation.iter().position(|line| is_structure(line)).unwrap_or(documentation.len());
    let text = documentation[..end].join("\n");
    let paragraphs = text.trim().split("\n\n");
    // A paragraph that ends in a colon introduces what is left out.
    let kept: Vec<_> = paragraphs.filter(|paragraph| !paragraph.ends_with(':')).collect();
    without_links(&kept.join("\n\n"))
}

/// The section with the example up to the end of its code, if the crate has one.
pub(super) fn example(root: &str) -> Option<String> {
    let documentation = documentation(root);
    let start = documentation.iter().position(|line| *line == HEADING)?;
    let (mut text, mut fences) = (String::from("## Example\n"), 0);
    for line in &documentation[start + 1..] {
        let is_fence = line.starts_with("```");
        fences += usize::from(is_fence);
        if fences == 1 && (*line == "#" || line.starts_with("# ")) {
            continue;
        }
        // The documentation of a crate is Rust where it names no language.
        text.push_str(if *line == "```" && fences == 1 { "```rust" } else { line });
        text.push('\n');
        if is_fence && fences == 2 {
            return Some(without_links(&text));
        }
    }
    None
}

/// The README of `package`, whose crate has the root module `root` and these examples.
pub(super) fn text(package: &Package, root: &str, examples: &[String]) -> String {
    let name = &package.name;
    let mut text = format!("# {name}\n\n{}\n", opening(&documentation(root)));
    text.push_str(
        "\nThis package is part of Pagewright, a virtual-memory subsystem for x86-64 and arm64 with a simulated\n\
         SMP machine that finds stale translations.\n",
    );
    if let Some(example) = example(root) {
        let _ = write!(text, "\n{example}");
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\n| | |\n| --- | --- |\n| documentation | `cargo doc --open -p {name}` |");
    for example in examples {
        let _ = writeln!(text, "| example | `cargo run -p {name} --example {example}` |");
    }
    let rust = package.rust_version.as_deref().unwrap_or_default();
    let _ = writeln!(
        text,
        "\nStatus: 0.x; anything may change with a minor version. Rust {rust} or later. Licensed under MIT or\n\
         Apache-2.0, at your choice."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! Counts frames.\n//!\n//! A [`Frame`] is counted once.\n//!\n//! Two traits:\n//! - [`A`]\n//!\n\
        //! # Example\n//!\n//! In [`count`](x):\n//!\n//! ```\n//! # use x::count;\n//! count();\n//! #\n//! ```\n//!\n//! # More\n";

    #[test]
    fn a_readme_has_the_opening_and_each_example() {
        let package: Package = serde_json::from_value(serde_json::json!({
            "name": "pagewright-x", "version": "0.1.0", "manifest_path": "/x/Cargo.toml", "dependencies": [], "targets": [],
            "rust_version": "1.90"
        }))
        .expect("a package");
        let text = text(&package, ROOT, &["count".to_owned()]);
        assert!(text.starts_with("# pagewright-x\n\nCounts frames.\n\nA `Frame` is counted once.\n\nThis"), "{text}");
        assert!(text.contains("\n## Example\n\nIn `count`:\n\n```rust\ncount();\n```\n\n| |"), "{text}");
        assert!(text.contains("| example | `cargo run -p pagewright-x --example count` |"), "{text}");
        assert!(text.contains("Rust 1.90 or later"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_section_without_code_is_no_example() {
        assert_eq!(example("//! A.\n//!\n//! # Example\n//!\n//! None yet.\n"), None);
        assert_eq!(example("//! A.\n"), None);
    }
}
