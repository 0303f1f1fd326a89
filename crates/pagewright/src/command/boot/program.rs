//! Checks that the kernel can run a program, before the kernel is built and booted.
//!
//! Not guaranteed: that the program runs. The interpreter of a script, and programs that the
//! program starts, are not checked.

use super::BootError;
use object::Endianness;
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use pagewright_types::IsaKind;

/// Checks the `bytes` of the program `path`: a script, or an ELF program for `isa`.
///
/// # Errors
/// [`BootError::OtherIsa`], [`BootError::NoProgram`].
pub(super) fn check(path: &str, bytes: &[u8], isa: IsaKind) -> Result<(), BootError> {
    if bytes.starts_with(b"#!") {
        return Ok(());
    }
    let none = |_| BootError::NoProgram(path.to_owned());
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(none)?;
    let endian = header.endian().map_err(none)?;
    let found = match header.e_machine(endian) {
        EM_X86_64 => IsaKind::X86_64,
        EM_AARCH64 => IsaKind::Aarch64,
        _ => return Err(BootError::NoProgram(path.to_owned())),
    };
    if found == isa { Ok(()) } else { Err(BootError::OtherIsa { path: path.to_owned(), found, isa }) }
}

/// The path of the loader of a dynamically linked program; `None` for a static one or a script.
///
/// # Errors
/// [`BootError::NoProgram`].
pub(super) fn loader(path: &str, bytes: &[u8]) -> Result<Option<String>, BootError> {
    if bytes.starts_with(b"#!") {
        return Ok(None);
    }
    let none = |_| BootError::NoProgram(path.to_owned());
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(none)?;
    let endian = header.endian().map_err(none)?;
    for segment in header.program_headers(endian, bytes).map_err(none)? {
        if let Some(loader) = segment.interpreter(endian, bytes).map_err(none)? {
            return Ok(Some(String::from_utf8_lossy(loader).into_owned()));
        }
    }
    Ok(None)
}
