//! The command that runs a program under QEMU's user mode.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf;
use object::read::elf::FileHeader;

/// `e_machine` of x86-64.
pub const X86_64: u32 = 62;
/// `e_machine` of arm64.
pub const AARCH64: u32 = 183;
/// Size of the program's stack under QEMU, in bytes.
///
/// It is 8 MiB and a page, a size that no other mapping of a process usually has, so that the
/// plugin finds the stack.
pub const STACK_BYTES: u64 = (8 << 20) + 4096;
/// The name of the file with the number of accesses, in the folder of the logs.
pub const TOTAL: &str = "total";
/// Linux's limit for scripts whose interpreter is a script (`exec_binprm`).
const INTERPRETERS_MAX: usize = 5;
/// Number of bytes of a file that show its kind.
const HEAD: u64 = 4096;

/// An executable with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// `e_machine` of the executable.
    pub machine: u32,
    /// The executable: for a script, the program that interprets it.
    pub path: PathBuf,
    /// The arguments, from `argv[0]`.
    pub args: Vec<OsString>,
}

impl Launch {
    /// What `execve` of this file executes; `None` if that is no 64-bit ELF file.
    pub fn of(path: &Path, args: Vec<OsString>) -> Option<Self> {
        let (mut path, mut args) = (path.to_owned(), args);
        for _ in 0..INTERPRETERS_MAX {
            let mut head = Vec::new();
            File::open(&path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
            let Some(line) = head.strip_prefix(b"#!") else {
                let header = elf::FileHeader64::<LittleEndian>::parse(&head[..]).ok()?;
                return Some(Self { machine: u32::from(header.e_machine.get(LittleEndian).0), path, args });
            };
            let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
            let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
            let (interpreter, argument) = (&line[..end], line[end..].trim_ascii());
            let mut all = vec![OsString::from_vec(interpreter.to_vec())];
            if !argument.is_empty() {
                all.push(OsString::from_vec(argument.to_vec()));
            }
            all.push(path.into_os_string());
            all.extend(args.into_iter().skip(1));
            args = all;
            path = PathBuf::from(std::ffi::OsStr::from_bytes(interpreter));
        }
        None
    }

    /// The arguments of QEMU after its options: `argv[0]`, the executable and the other arguments.
    pub fn qemu_args(&self) -> impl Iterator<Item = OsString> {
        let name = self.args.first().cloned().unwrap_or_else(|| self.path.clone().into_os_string());
        // A path that begins with a hyphen would be an option.
        let path = Path::new(if self.path.as_os_str().as_bytes().starts_with(b"-") { "./" } else { "" });
        let path = path.join(&self.path).into_os_string();
        [OsString::from("-0"), name, path].into_iter().chain(self.args.iter().skip(1).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_run_by_its_interpreter() {
        let script = std::env::temp_dir().join(format!("pagewright-launch-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\ntrue\n").unwrap();
        let launch = Launch::of(&script, vec!["name".into(), "arg".into()]).unwrap();
        let name = script.clone().into_os_string();
        assert_eq!(
            (launch.path.as_path(), &launch.args[..2]),
            (Path::new("/bin/sh"), &["/bin/sh".into(), "-e".into()][..])
        );
        assert_eq!(launch.args[2..], [name, "arg".into()]);
        std::fs::write(&script, "true\n").unwrap();
        assert_eq!(Launch::of(&script, vec![]), None, "a shell runs such a file itself");
        std::fs::remove_file(script).unwrap();
    }
}
