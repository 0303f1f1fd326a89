//! The name of an instruction: its source line, or its function and its offset there.

use std::ffi::c_void;
use std::fmt::Write as _;

/// Names the instruction at `address`.
///
/// Without debug information that is its function and an offset, and without symbols its address.
pub(crate) fn name(address: u64) -> String {
    let mut name = None;
    backtrace::resolve(address as *mut c_void, |symbol| {
        // The first symbol is the innermost of the functions that are inlined there.
        name.get_or_insert_with(|| {
            let mut text = String::new();
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                let _ = write!(text, "{}:{line}", file.display());
            } else if let Some(function) = symbol.name() {
                let start = symbol.addr().map_or(address, |start| start as u64);
                let _ = write!(text, "{function:#}+{:#x}", address.wrapping_sub(start));
            }
            text
        });
    });
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("instruction at {address:#x}"))
}
