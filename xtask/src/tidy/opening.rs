//! Every module begins with a doc comment that states its purpose.

use super::{Breach, Finding};
use crate::source::File;

/// A finding, unless the first line is `//!` with text.
pub(crate) fn check(file: &File) -> Option<Finding> {
    let first = file.text.lines().next().unwrap_or_default();
    let says = first.strip_prefix("//!").is_some_and(|rest| rest.trim().len() >= 2 && rest.trim() != "Placeholder.");
    (!says).then(|| Finding::of_file(file, Breach::NoOpening))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_a_purpose_on_its_first_line_is_reported() {
        let found = |text: &str| check(&File::new("a.rs".into(), text.into())).is_some();
        assert!(!found("//! Frames and their records.\n"));
        assert!(found("use x;\n//! Late.\n"));
        assert!(found("//!\n"));
        assert!(found("//! Placeholder.\n"));
        assert!(found(""));
    }
}
