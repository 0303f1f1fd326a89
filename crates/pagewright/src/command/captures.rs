//! The captures that the program replays by itself.

use pagewright_capture::trace::{TraceError, TraceReader};

/// The captures by name; `tests/captures/README.md` says how each was made.
const CAPTURES: [(&str, &[u8]); 6] = [
    ("sort", include_bytes!("../../captures/sort.pwt")),
    ("sqlite", include_bytes!("../../captures/sqlite.pwt")),
    ("python", include_bytes!("../../captures/python.pwt")),
    ("compile", include_bytes!("../../captures/compile.pwt")),
    ("pigz", include_bytes!("../../captures/pigz.pwt")),
    ("shell", include_bytes!("../../captures/shell.pwt")),
];

/// Whether there is a capture of this name.
pub(super) fn is_capture(name: &str) -> bool {
    CAPTURES.iter().any(|(known, _)| *known == name)
}

/// Opens a capture.
///
/// # Errors
/// [`TraceError`], if there is none of this name.
pub(super) fn open(name: &str) -> Result<TraceReader<&'static [u8]>, TraceError> {
    let bytes = CAPTURES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, bytes)| *bytes);
    TraceReader::new(bytes, format!("{name}.pwt"))
}
