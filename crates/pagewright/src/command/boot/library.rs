//! The loader and the libraries that a dynamically linked program needs.
//!
//! They are found as the loader would find them without its cache: in the folders of Debian and of
//! the C library, below a root.
//!
//! Not guaranteed: libraries that the program loads by name while it runs (`dlopen`), `RPATH` and
//! `RUNPATH`. `--file` copies those.

use super::{BootError, program};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use pagewright_types::IsaKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file for the machine: its path there and its contents.
pub(super) struct NeededFile {
    pub(super) path: String,
    pub(super) data: Vec<u8>,
}

/// The name of Debian's folder for an instruction set.
fn triplet(isa: IsaKind) -> &'static str {
    match isa {
        IsaKind::X86_64 => "x86_64-linux-gnu",
        IsaKind::Aarch64 => "aarch64-linux-gnu",
    }
}

/// The instruction set of this computer.
const HOST: Option<IsaKind> = if cfg!(target_arch = "x86_64") {
    Some(IsaKind::X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(IsaKind::Aarch64)
} else {
    None
};

/// The root with the loader of programs for `isa`: that of this computer, or of a cross compiler.
pub(super) fn default_root(isa: IsaKind) -> PathBuf {
    let cross = Path::new("/usr").join(triplet(isa));
    if HOST != Some(isa) && cross.exists() { cross } else { PathBuf::from("/") }
}

/// The loader and the libraries, found below `root`, that the program `path` needs.
///
/// # Errors
/// [`BootError::NoLibrary`]; [`BootError::File`] for a file that cannot be read; those of
/// [`program::check`] for one that is for another machine.
pub(super) fn needed(path: &str, bytes: &[u8], isa: IsaKind, root: &Path) -> Result<Vec<NeededFile>, BootError> {
    // What is no program at all may be one for a kernel given by `--kernel`.
    let Ok(Some(loader)) = program::loader(path, bytes) else { return Ok(Vec::new()) };
    let missing =
        |name: &str| BootError::NoLibrary { name: name.to_owned(), program: path.to_owned(), root: root.to_owned() };
    let mut files = Vec::new();
    let mut known = BTreeSet::new();
    let mut wanted = libraries(path, bytes)?;
    files.push(read(&loader, isa, root)?.ok_or_else(|| missing(&loader))?);
    known.extend(loader.rsplit('/').next().map(str::to_owned));
    while let Some(name) = wanted.pop() {
        if !known.insert(name.clone()) {
            continue;
        }
        let folders = ["lib", "usr/lib"].into_iter().flat_map(|folder| {
            [format!("/{folder}/{}/{name}", triplet(isa)), format!("/{folder}/{name}"), format!("/{folder}64/{name}")]
        });
        let mut found = None;
        for place in folders {
            found = read(&place, isa, root)?;
            if found.is_some() {
                break;
            }
        }
        let found = found.ok_or_else(|| missing(&name))?;
        wanted.extend(libraries(&found.path, &found.data)?);
        files.push(found);
    }
    Ok(files)
}

/// Reads a file below `root`, if it exists.
fn read(path: &str, isa: IsaKind, root: &Path) -> Result<Option<NeededFile>, BootError> {
    let file = root.join(path.trim_start_matches('/'));
    if !file.exists() {
        return Ok(None);
    }
    let data = std::fs::read(&file).map_err(BootError::file(&file))?;
    program::check(path, &data, isa)?;
    Ok(Some(NeededFile { path: path.to_owned(), data }))
}

/// The names of the libraries that an ELF file needs (`DT_NEEDED`).
fn libraries(path: &str, bytes: &[u8]) -> Result<Vec<String>, BootError> {
    let none = |_| BootError::NoProgram(path.to_owned());
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(none)?;
    let endian = header.endian().map_err(none)?;
    let sections = header.sections(endian, bytes).map_err(none)?;
    let Some((entries, strings)) = sections.dynamic(endian, bytes).map_err(none)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, bytes, strings).map_err(none)?;
    let needed = entries.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED);
    let name = |entry: &object::elf::Dyn64<Endianness>| entry.string(endian, strings);
    let names = needed.map(|entry| name(entry).map(|name| String::from_utf8_lossy(name).into_owned()));
    names.collect::<Result<_, _>>().map_err(none)
}
