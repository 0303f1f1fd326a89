//! The segments of ELF files: of a program, and of its interpreter if it is dynamically linked.
//!
//! Segments are private mappings of the file, as in Linux, so their pages are faulted in.
//!
//! Linux: `load_elf_binary`, `load_elf_interp`.

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::exec::{check_program, user_end};
use crate::inode::Inode;
use crate::memory::{FileObject, SpaceHandle, mm};
use crate::ramfs;
use crate::record;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use elf::abi::{EI_NIDENT, ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::file::{Class, ELF64_EHDR_TAILSIZE, FileHeader, parse_ident};
use elf::parse::ParseError;
use elf::segment::{ProgramHeader, SegmentTable};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{MapFlags, MapRequest};
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

/// The size of a program header in bytes, and the limit of all of them together (`load_elf_phdrs`).
pub(crate) const PROGRAM_HEADER: u64 = 56;
const PROGRAM_HEADERS_MAX: u64 = 65536;
/// The limit of the path of an interpreter (`PATH_MAX`).
const PATH_MAX: u64 = 4096;
/// The machine of an ELF file, and its name (`AT_PLATFORM`).
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = elf::abi::EM_X86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) const PLATFORM: &str = "x86_64";
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = elf::abi::EM_AARCH64;
#[cfg(target_arch = "aarch64")]
pub(crate) const PLATFORM: &str = "aarch64";

/// The load address of a position-independent program (`ELF_ET_DYN_BASE`).
fn dyn_base() -> VirtAddr {
    VirtAddr::new(user_end().raw() / 3 * 2).align_down(PAGE_SIZE)
}

/// An ELF file with its headers.
struct ElfFile {
    object: pagewright_sync::Arc<FileObject>,
    header: FileHeader<LittleEndian>,
    headers: Vec<ProgramHeader>,
}

/// A program and its interpreter, which are ready to be mapped.
pub(crate) struct ElfProgram {
    program: ElfFile,
    interpreter: Option<ElfFile>,
}

/// What the registers and the auxiliary vector say of a program.
pub(crate) struct MappedProgram {
    /// The first instruction: of the interpreter, if there is one.
    pub(crate) start: u64,
    /// The first instruction of the program.
    pub(crate) entry: u64,
    /// Where the interpreter was loaded; 0 without one.
    pub(crate) interpreter: u64,
    pub(crate) headers: u64,
    pub(crate) header_count: u64,
}

impl ElfProgram {
    /// Reads the headers of a program, and those of its interpreter.
    ///
    /// # Errors
    /// `ENOEXEC`; `ELIBBAD` if the interpreter is no ELF file for this machine; as opening it.
    pub(crate) fn open(node: Arc<Inode>, caller: &Credentials) -> Result<Self, Errno> {
        let program = ElfFile::open(&node)?;
        let interpreter = match program.interpreter(&node)? {
            None => None,
            Some(path) => {
                let node = ramfs::find(&ramfs::absolute("/", &path), true, caller)?;
                check_program(&node, caller)?;
                let bad = |error| if error == Errno::ENOEXEC { Errno::ELIBBAD } else { error };
                Some(ElfFile::open(&node).map_err(bad)?)
            }
        };
        Ok(Self { program, interpreter })
    }

    /// Maps both.
    pub(crate) fn map(&self, space: &SpaceHandle) -> Result<MappedProgram, Errno> {
        let Self { program, interpreter } = self;
        let bias = match program.header.e_type {
            ET_EXEC => 0,
            ET_DYN => dyn_base().raw(),
            _ => return Err(Errno::ENOEXEC),
        };
        program.map(space, bias)?;
        let end = program.end().and_then(|end| bias.checked_add(end)).ok_or(Errno::ENOEXEC)?;
        let end = VirtAddr::new(end).align_up(PAGE_SIZE).ok_or(Errno::ENOEXEC)?;
        mm().set_brk_start(&space.0, end);
        if let Some(code) = program.loads().find(|segment| segment.p_flags & PF_X != 0) {
            let start = VirtAddr::new(bias + code.p_vaddr).align_down(PAGE_SIZE);
            let last = VirtAddr::new(bias + code.p_vaddr + code.p_filesz).align_up(PAGE_SIZE).ok_or(Errno::ENOEXEC)?;
            mm().set_code(&space.0, PageRange::new(start, last));
        }
        let first = program.loads().find(|segment| segment.p_offset == 0).map_or(0, |segment| segment.p_vaddr);
        let entry = bias + program.header.e_entry;
        let (start, at) = match interpreter {
            None => (entry, 0),
            Some(interpreter) => {
                let at = interpreter.place(space)?;
                interpreter.map(space, at)?;
                (at.checked_add(interpreter.header.e_entry).ok_or(Errno::ELIBBAD)?, at)
            }
        };
        Ok(MappedProgram {
            start,
            entry,
            interpreter: at,
            headers: bias + first + program.header.e_phoff,
            header_count: program.headers.len() as u64,
        })
    }
}

impl ElfFile {
    fn open(node: &Inode) -> Result<Self, Errno> {
        let (header, headers) = headers(node)?;
        let object = node.object().map_err(|_| Errno::EACCES)?;
        Ok(Self { object, header, headers })
    }

    /// The path of the interpreter, if the file names one.
    fn interpreter(&self, node: &Inode) -> Result<Option<String>, Errno> {
        let Some(segment) = self.headers.iter().find(|header| header.p_type == PT_INTERP) else { return Ok(None) };
        if segment.p_filesz < 2 || segment.p_filesz > PATH_MAX {
            return Err(Errno::ENOEXEC);
        }
        let path = node.read(segment.p_offset, segment.p_filesz as usize)?;
        let path = path.strip_suffix(&[0]).ok_or(Errno::ENOEXEC)?;
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Some(core::str::from_utf8(path).map_err(|_| Errno::ENOENT)?.to_string()))
    }

    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers.iter().filter(|header| header.p_type == PT_LOAD)
    }

    /// The first address behind its segments, as the file has it.
    fn end(&self) -> Option<u64> {
        self.loads().filter_map(|segment| segment.p_vaddr.checked_add(segment.p_memsz)).max()
    }

    /// Maps its segments.
    fn map(&self, space: &SpaceHandle, bias: u64) -> Result<(), Errno> {
        self.loads().try_for_each(|segment| map_segment(space, &self.object, segment, bias))
    }

    /// Finds a place for an interpreter, and returns what to add to its addresses.
    ///
    /// Linux maps the whole size with the first segment, and then unmaps the rest (`elf_map`).
    fn place(&self, space: &SpaceHandle) -> Result<u64, Errno> {
        if self.header.e_type == ET_EXEC {
            return Ok(0);
        }
        let start = self.loads().map(|segment| segment.p_vaddr).min().unwrap_or(0) / PAGE_SIZE * PAGE_SIZE;
        let len = self.end().and_then(|end| end.checked_sub(start)).ok_or(Errno::ELIBBAD)?;
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::empty(), flags, file: None };
        let at = mm().mmap(&space.0, &request)?;
        mm().munmap(&space.0, at, len)?;
        at.raw().checked_sub(start).ok_or(Errno::ELIBBAD)
    }
}

fn parse_header(bytes: &[u8]) -> Result<FileHeader<LittleEndian>, ParseError> {
    if bytes.len() < EI_NIDENT + ELF64_EHDR_TAILSIZE {
        return Err(ParseError::BadMagic([0; 4]));
    }
    let (ident, tail) = bytes.split_at(EI_NIDENT);
    FileHeader::parse_tail(parse_ident(ident)?, tail)
}

/// The headers of an ELF file for this machine.
fn headers(node: &Inode) -> Result<(FileHeader<LittleEndian>, Vec<ProgramHeader>), Errno> {
    let header = node.look_at_start(PAGE_SIZE, parse_header)?.map_err(|_| Errno::ENOEXEC)?;
    let size = u64::from(header.e_phnum) * PROGRAM_HEADER;
    let end = header.e_phoff.checked_add(size).ok_or(Errno::ENOEXEC)?;
    if u64::from(header.e_phentsize) != PROGRAM_HEADER || header.class != Class::ELF64 || size > PROGRAM_HEADERS_MAX {
        return Err(Errno::ENOEXEC);
    }
    let read = |bytes: &[u8]| -> Option<Vec<ProgramHeader>> {
        let table = bytes.get(usize::try_from(header.e_phoff).ok()?..)?;
        let table = table.get(..size as usize)?;
        Some(SegmentTable::new(LittleEndian, header.class, table).iter().collect())
    };
    let headers = node.look_at_start(end, read)?.ok_or(Errno::ENOEXEC)?;
    if header.e_machine != MACHINE {
        return Err(Errno::ENOEXEC);
    }
    Ok((header, headers))
}

fn rights(flags: u32) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::READ, flags & PF_R != 0);
    rights.set(Rights::WRITE, flags & PF_W != 0);
    rights.set(Rights::EXEC, flags & PF_X != 0);
    rights
}

fn map_segment(
    space: &SpaceHandle,
    object: &pagewright_sync::Arc<FileObject>,
    segment: &ProgramHeader,
    bias: u64,
) -> Result<(), Errno> {
    let address = VirtAddr::new(bias.checked_add(segment.p_vaddr).ok_or(Errno::ENOEXEC)?);
    let start = address.align_down(PAGE_SIZE);
    let lead = address.since(start);
    let offset = segment.p_offset.checked_sub(lead).ok_or(Errno::ENOEXEC)?;
    let in_file = segment.p_filesz + lead;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    if segment.p_filesz > 0 {
        let file = FileMapping { file: object, offset, opened: Rights::RX };
        let request =
            MapRequest { addr: start, len: in_file, rights: rights(segment.p_flags), flags, file: Some(file) };
        mm().mmap(&space.0, &request)?;
        record::mapping(start, in_file, rights(segment.p_flags).bits(), offset, object.name());
    }
    let file_end = start.checked_add(in_file).and_then(|end| end.align_up(PAGE_SIZE)).ok_or(Errno::ENOEXEC)?;
    let end = address.checked_add(segment.p_memsz).and_then(|end| end.align_up(PAGE_SIZE)).ok_or(Errno::ENOEXEC)?;
    if end > file_end {
        let len = end.since(file_end);
        let flags = flags | MapFlags::ANONYMOUS;
        let request = MapRequest { addr: file_end, len, rights: rights(segment.p_flags), flags, file: None };
        mm().mmap(&space.0, &request)?;
        record::mapping(file_end, len, rights(segment.p_flags).bits(), 0, "-");
    }
    // The rest of the last page of the file is cleared.
    let tail = address.add(segment.p_filesz);
    if segment.p_memsz > segment.p_filesz && segment.p_flags & PF_W != 0 && !tail.is_page_aligned() {
        let zeroes = vec![0; (PAGE_SIZE - tail.page_offset()) as usize];
        space.write(tail, &zeroes)?;
    }
    Ok(())
}
