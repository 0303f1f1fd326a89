//! Reconstruction of the mappings of `execve`.
//!
//! Valgrind loads the program itself, so no system call in the log shows its mappings. The program
//! headers of the executable and its interpreter define the mappings of Linux's `load_elf_binary`.
//! Valgrind maps an executable at a fixed address. It maps the interpreter at any address; the
//! first fetch is the interpreter's entry point, and so gives that address.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

use super::address_map::{AddressMap, MappedContents, page_down, page_up};
use super::error::ExecutableError;
use crate::trace::{AddressLayout, ExecImage, FileId, ImageBacking, ImageMapping, PAGE_SIZE, Prot, UserAddr};

/// Number of bytes read from an executable; linkers place the headers and `PT_INTERP` in them.
const HEAD: u64 = 1 << 16;
/// Linux's limit for scripts whose interpreter is a script (`exec_binprm`).
const INTERPRETERS_MAX: usize = 5;
/// Valgrind's address of a position-independent executable (`m_ume/elf.c`).
const CAPTURED_EXECUTABLE: u64 = 0x10_8000;
/// The first address above valgrind's stack (`aspacem`'s `suggested_clstack_end`).
const CAPTURED_STACK_TOP: u64 = 0x1f_ff00_1000;
/// `ELF_ET_DYN_BASE` of x86-64, two thirds of the address space.
const ET_DYN_BASE: u64 = 0x5555_5555_4000;
/// `STACK_TOP` of x86-64 with 47 bits.
const STACK_TOP: u64 = 0x7fff_ffff_f000;
/// The size of the stack after `execve`, in bytes.
///
/// `setup_arg_pages` expands it by 128 KiB below the page of the arguments.
const STACK_BYTES: u64 = (128 << 10) + PAGE_SIZE;
/// The default of `RLIMIT_STACK`, in bytes, which valgrind also uses.
const STACK_LIMIT: u64 = 8 << 20;
/// Size of the vvar mapping of Linux 6.18, in bytes; the vdso follows it.
const VVAR: u64 = 6 * PAGE_SIZE;
/// Size of the vdso mapping of Linux 6.18, in bytes.
const VDSO: u64 = 2 * PAGE_SIZE;

/// The parts of an ELF file that matter for loading it.
#[derive(Clone, Debug)]
pub(super) struct ElfFile {
    pub(super) path: PathBuf,
    segments: Vec<Segment>,
    entry: u64,
    position_independent: bool,
    interpreter: Option<PathBuf>,
    align: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    vaddr: u64,
    file_size: u64,
    mem_size: u64,
    offset: u64,
    prot: Prot,
}

impl ElfFile {
    /// Reads the headers of an executable or, if it is a script, of its interpreter.
    pub(super) fn read(path: &Path) -> Result<Self, ExecutableError> {
        let mut path = path.to_owned();
        for _ in 0..INTERPRETERS_MAX {
            let mut head = Vec::new();
            File::open(&path)?.take(HEAD).read_to_end(&mut head)?;
            match script_interpreter(&head) {
                Some(interpreter) => path = interpreter,
                None => return Self::parse(path, &head).map_err(|_| ExecutableError::NotElf),
            }
        }
        Err(ExecutableError::TooManyInterpreters(INTERPRETERS_MAX))
    }

    fn parse(path: PathBuf, head: &[u8]) -> Result<Self, object::Error> {
        let header = elf::FileHeader64::<LittleEndian>::parse(head)?;
        let endian = header.endian()?;
        let mut program = Self {
            path,
            segments: Vec::new(),
            entry: header.e_entry(endian),
            position_independent: header.e_type(endian) == elf::ET_DYN,
            interpreter: None,
            align: PAGE_SIZE,
        };
        for segment in header.program_headers(endian, head)? {
            if segment.p_type(endian) == elf::PT_LOAD {
                program.align = program.align.max(segment.p_align(endian));
                program.segments.push(Segment {
                    vaddr: segment.p_vaddr(endian),
                    file_size: segment.p_filesz(endian),
                    mem_size: segment.p_memsz(endian),
                    offset: segment.p_offset(endian),
                    prot: prot(segment.p_flags(endian)),
                });
            } else if let Some(name) = segment.interpreter(endian, head)? {
                program.interpreter = Some(PathBuf::from(String::from_utf8_lossy(name).into_owned()));
            }
        }
        Ok(program)
    }

    /// The path of the ELF interpreter, if the file has one.
    pub(super) fn interpreter(&self) -> Option<&Path> {
        self.interpreter.as_deref()
    }

    /// The lowest address of code, as linked.
    fn code(&self) -> u64 {
        let code = self.segments.iter().filter(|segment| segment.prot.contains(Prot::EXEC));
        code.map(|segment| segment.vaddr).min().unwrap_or(0)
    }

    /// The first and the end address of all segments, as linked, in whole pages.
    fn span(&self) -> (u64, u64) {
        let start = self.segments.first().map_or(0, |segment| page_down(segment.vaddr));
        (start, self.segments.iter().map(|segment| page_up(segment.vaddr + segment.mem_size)).max().unwrap_or(start))
    }
}

/// The interpreter in the first line of a script.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|&byte| byte == b' ' || byte == b'\t').find(|word| !word.is_empty())?;
    Some(PathBuf::from(String::from_utf8_lossy(word).into_owned()))
}

fn prot(flags: elf::ProgramFlags) -> Prot {
    [(elf::PF_R, Prot::READ), (elf::PF_W, Prot::WRITE), (elf::PF_X, Prot::EXEC)]
        .into_iter()
        .filter(|&(flag, _)| flags.0 & flag.0 != 0)
        .fold(Prot(0), |prot, (_, bit)| prot | bit)
}

/// Where the capturing tool places an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapturedLayout {
    /// The address of the first instruction.
    pub(super) first_fetch: u64,
    /// The lowest address of the executable's code; `None` for valgrind's fixed address.
    pub(super) start_code: Option<u64>,
    /// The first address above the stack.
    pub(super) stack_top: u64,
}

impl CapturedLayout {
    /// That of valgrind.
    pub(super) fn valgrind(first_fetch: u64) -> Self {
        Self { first_fetch, start_code: None, stack_top: CAPTURED_STACK_TOP }
    }
}

/// A reconstructed image.
pub(super) struct LoadedImage {
    pub(super) image: ExecImage,
    pub(super) space: AddressMap,
    /// Pages whose end `execve` clears: the last page of file data before each bss.
    pub(super) padded: Vec<UserAddr>,
}

/// An ELF file of an image, with its load bias in the log and in the trace.
struct ElfPlacement<'a> {
    program: &'a ElfFile,
    file: FileId,
    captured_bias: u64,
    trace_bias: u64,
}

/// Maps `program` and its interpreter as `load_elf_binary` does.
///
/// `captured` has the places of its parts in the log.
pub(super) fn load(
    program: (&ElfFile, FileId),
    interpreter: Option<(&ElfFile, FileId)>,
    args: Vec<String>,
    captured: CapturedLayout,
    layout: AddressLayout,
) -> LoadedImage {
    let first_fetch = captured.first_fetch;
    let (executable, file) = program;
    let mut loaded = LoadedImage {
        image: ExecImage {
            executable: file,
            args,
            mappings: Vec::new(),
            brk: UserAddr(0),
            stack_top: UserAddr(0),
            stack_limit: STACK_LIMIT,
        },
        space: AddressMap::new(layout),
        padded: Vec::new(),
    };
    let (start, end) = executable.span();
    let (captured_bias, linux_bias) = match (executable.position_independent, interpreter.is_some()) {
        (false, _) => (0, 0),
        (true, true) => (
            match captured.start_code {
                Some(code) => code.wrapping_sub(executable.code()),
                None => CAPTURED_EXECUTABLE - start,
            },
            (ET_DYN_BASE & !(executable.align - 1)) - start,
        ),
        // A static PIE is mapped like a library (`load_elf_binary`: ET_DYN without interpreter).
        (true, false) => {
            (first_fetch.wrapping_sub(executable.entry), loaded.space.top_down(end - start).0.wrapping_sub(start))
        }
    };
    let bias = |captured: u64, linux: u64| match layout {
        AddressLayout::Linux => linux,
        AddressLayout::AsCaptured => captured,
    };
    let trace_bias = bias(captured_bias, linux_bias);
    loaded.map_segments(&ElfPlacement { program: executable, file, captured_bias, trace_bias });
    let brk = match (executable.position_independent, interpreter.is_some()) {
        (true, false) => UserAddr(bias(captured_bias.wrapping_add(end), ET_DYN_BASE)),
        (true, true) | (false, _) => UserAddr(trace_bias.wrapping_add(end)),
    };
    if let Some((program, file)) = interpreter {
        let (start, end) = program.span();
        let captured_bias = first_fetch.wrapping_sub(program.entry);
        let trace_bias = bias(captured_bias, loaded.space.top_down(end - start).0.wrapping_sub(start));
        loaded.map_segments(&ElfPlacement { program, file, captured_bias, trace_bias });
    }
    loaded.map_kernel_pages(captured.stack_top, bias(captured.stack_top, STACK_TOP));
    loaded.image.brk = brk;
    loaded.space.set_brk_start(brk);
    loaded.image.mappings.sort_by_key(|mapping| mapping.start);
    loaded
}

impl LoadedImage {
    fn map_segments(&mut self, placement: &ElfPlacement<'_>) {
        let ElfPlacement { program, file, captured_bias, trace_bias } = *placement;
        for segment in &program.segments {
            let start = page_down(segment.vaddr);
            let file_end = if segment.file_size == 0 { start } else { page_up(segment.vaddr + segment.file_size) };
            let end = page_up(segment.vaddr + segment.mem_size);
            let data_end = segment.vaddr + segment.file_size;
            let backing = ImageBacking::File { file, offset: page_down(segment.offset) };
            for (from, to, backing) in [(start, file_end, backing), (file_end, end, ImageBacking::Anonymous {})] {
                if from >= to {
                    continue;
                }
                let at = UserAddr(trace_bias.wrapping_add(from));
                self.space.place(captured_bias.wrapping_add(from), at, to - from, MappedContents::Unaligned);
                self.image.mappings.push(ImageMapping { start: at, len: to - from, prot: segment.prot, backing });
            }
            // `padzero` in Linux's fs/binfmt_elf.c.
            if segment.mem_size > segment.file_size && page_down(data_end) != data_end {
                self.padded.push(UserAddr(trace_bias.wrapping_add(page_down(data_end))));
            }
        }
    }

    /// Maps vvar and vdso in the highest gap, and the stack.
    fn map_kernel_pages(&mut self, captured_stack_top: u64, stack_top: u64) {
        let vvar = self.space.top_down(VVAR + VDSO);
        let vdso = UserAddr(vvar.0 + VVAR);
        // The program has no vdso under valgrind, so its captured address may be that of the trace.
        self.space.place(vvar.0, vvar, VVAR + VDSO, MappedContents::Unaligned);
        let read_exec = Prot::READ | Prot::EXEC;
        self.image.mappings.push(ImageMapping {
            start: vvar,
            len: VVAR,
            prot: Prot::READ,
            backing: ImageBacking::Vvar {},
        });
        self.image.mappings.push(ImageMapping {
            start: vdso,
            len: VDSO,
            prot: read_exec,
            backing: ImageBacking::Vdso {},
        });
        let stack = UserAddr(stack_top - STACK_LIMIT);
        self.space.place(captured_stack_top - STACK_LIMIT, stack, STACK_LIMIT, MappedContents::Unaligned);
        self.image.stack_top = UserAddr(stack_top);
        self.image.mappings.push(ImageMapping {
            start: UserAddr(stack_top - STACK_BYTES),
            len: STACK_BYTES,
            prot: Prot::READ | Prot::WRITE,
            backing: ImageBacking::Stack {},
        });
    }

    /// Whether a captured address is in the stack below this address.
    pub(super) fn is_stack(captured: u64, stack_top: u64) -> bool {
        (stack_top - STACK_LIMIT..stack_top).contains(&captured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(vaddr: u64, position_independent: bool) -> ElfFile {
        let segment = |vaddr, file_size, mem_size, offset, prot| Segment { vaddr, file_size, mem_size, offset, prot };
        ElfFile {
            path: "/bin/x".into(),
            segments: vec![
                segment(vaddr, 0x1800, 0x1800, 0, Prot::READ),
                segment(vaddr + 0x3d10, 0x300, 0x2500, 0x2d10, Prot::READ | Prot::WRITE),
            ],
            entry: vaddr + 0x1040,
            position_independent,
            interpreter: None,
            align: PAGE_SIZE,
        }
    }

    #[test]
    fn addresses_are_those_of_linux_without_randomisation() {
        let (exe, interpreter) = (program(0, true), program(0, true));
        let loaded = load(
            (&exe, FileId(1)),
            Some((&interpreter, FileId(2))),
            vec![],
            CapturedLayout::valgrind(0x400_1040),
            AddressLayout::Linux,
        );
        let starts: Vec<u64> = loaded.image.mappings.iter().map(|mapping| mapping.start.0).collect();
        assert_eq!(
            starts,
            [
                0x5555_5555_4000,
                0x5555_5555_7000,
                0x5555_5555_9000,
                0x7fff_f7ff_0000,
                0x7fff_f7ff_6000,
                0x7fff_f7ff_8000,
                0x7fff_f7ff_b000,
                0x7fff_f7ff_d000,
                0x7fff_fffd_e000,
            ]
        );
        assert_eq!(loaded.image.brk.0, 0x5555_5555_b000, "the heap follows the bss");
        assert_eq!(loaded.padded, [UserAddr(0x5555_5555_8000), UserAddr(0x7fff_f7ff_c000)]);
        let mut space = loaded.space;
        assert_eq!(space.translate(0x4000, 0).unwrap().addr().0, 0x7fff_f7ff_8000, "the first page of the interpreter");
        assert_eq!(space.translate(0x108, 0).unwrap().addr().0, 0x5555_5555_4000);
        assert_eq!(space.translate(0x1ff_f000, 1).unwrap().addr().0, 0x7fff_ffff_e000);
        assert_eq!(space.translate(0x5_807d, 0), None, "valgrind's trampolines are not mapped");
    }

    #[test]
    fn a_fixed_executable_is_mapped_at_its_linked_address() {
        let exe = program(0x40_0000, false);
        let loaded = load((&exe, FileId(1)), None, vec![], CapturedLayout::valgrind(0x40_1040), AddressLayout::Linux);
        assert_eq!(loaded.image.mappings[0].start.0, 0x40_0000);
        assert_eq!(loaded.image.mappings[1].backing, ImageBacking::File { file: FileId(1), offset: 0x2000 });
        assert_eq!(loaded.image.brk.0, 0x40_7000);
    }

    #[test]
    fn the_interpreter_of_a_script_is_in_its_first_line() {
        assert_eq!(script_interpreter(b"#! /bin/sh -e\necho"), Some("/bin/sh".into()));
        assert_eq!(script_interpreter(b"\x7fELF"), None);
    }
}
