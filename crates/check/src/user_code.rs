//! The line of the user's code by which a drawing names a step (INV-CHECK-USER).
//!
//! A step is named by the innermost frame of the stack that is the user's. The others are helpers
//! of the language or of the check, and their lines say nothing about the code that is checked:
//!
//! | not the user's | a frame with a source line | a frame without |
//! | --- | --- | --- |
//! | `core`, `alloc`, `std` and what they contain | the file is in `/rustc/…`, `/rust/deps/…` or a toolchain's `rust-src` | the function is of that crate |
//! | `pagewright-check`, `-sim`, `-trap` | the file is in their folder `src` | the function is of that crate |
//! | the published crates and modules of [`PUBLISHED_HELPERS`] | the file is in that folder of a crate with a version | the function is of that module |
//! | `memcpy`, `memmove`, `memset`, which the compiler calls for copies and fills | the function is a variant of them | the same |
//! | other C and assembly | – | all |
//!
//! Everything else is the user's, other published crates too: they may be what is checked.
//!
//! Calls of the machine name their caller by `#[track_caller]`, which costs nothing. The stack is
//! read where that is not enough: for a trapped instruction, and for a method of the machine that
//! is passed as a value and called by `core`.
//!
//! **INV-CHECK-USER** The code that a line of a drawing names is the innermost frame of the user's:
//! not the language's, the check's, or a wrapper's of one instruction, inlined or not. Without
//! debug information it is named by its function.
//!
//! Not guaranteed: a frame without debug information is named by its function, and functions that
//! are inlined in it are not seen: a closure may be in the function of `core` that calls it. An
//! implementation of a trait is the user's if the trait or the type is.

use backtrace::Symbol;
use std::ffi::c_void;
use std::fmt::Write as _;

/// The folder of this package, as debug information has it.
const THIS_PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The crates of the language and of the check.
const HELPERS: [&str; 7] =
    ["core", "alloc", "std", "compiler_builtins", "pagewright_check", "pagewright_sim", "pagewright_trap"];

/// Published crates that help, each with a module; no module is all of them.
///
/// The first are wrappers of single instructions. Programs run on `generator`, and `backtrace`
/// reads their stacks.
const PUBLISHED_HELPERS: [(&str, &str); 5] =
    [("x86", ""), ("x86_64", "instructions"), ("x86_64", "registers"), ("generator", ""), ("backtrace", "")];

/// The functions of a C library that the compiler calls; the names of variants begin with these.
const COPIES: [&str; 3] = ["memcpy", "memmove", "memset"];

/// Whether a source file is the user's.
pub(crate) fn is_file_of_user(file: &str) -> bool {
    let of_toolchain = file.starts_with("/rustc/")
        || file.starts_with("/rust/deps/")
        || file.contains("/lib/rustlib/src/rust/library/");
    // In a workspace, the path of a caller is relative, as that of this file is.
    let this = file!().strip_suffix("user_code.rs").is_some_and(|folder| file.starts_with(folder));
    !of_toolchain && !this && !is_of_check(file) && !is_of_published(file)
}

/// Whether a file is of the packages of the check, which are beside this one in one folder.
fn is_of_check(file: &str) -> bool {
    let Some((packages, package)) = THIS_PACKAGE.rsplit_once('/') else { return false };
    let folder = |name: &str| format!("{packages}/{}/src/", package.replace("check", name));
    ["check", "sim", "trap"].iter().any(|name| file.starts_with(&folder(name)))
}

/// Whether a file is of a published helper: the name of its folder ends in a version.
fn is_of_published(file: &str) -> bool {
    let Some((package, path)) = file.rsplit_once("/src/") else { return false };
    let Some((name, version)) = package.rsplit('/').next().and_then(|folder| folder.split_once('-')) else {
        return false;
    };
    let is_of = |helper: &(&str, &str)| helper.0 == name && path.starts_with(helper.1);
    version.starts_with(|first: char| first.is_ascii_digit()) && PUBLISHED_HELPERS.iter().any(is_of)
}

/// Whether a function is the user's, by its demangled name.
fn is_function_of_user(function: &str) -> bool {
    /// The path at the start of a type or a function.
    fn path(text: &str) -> &str {
        let text = text.trim_start_matches(['<', '&', '*', '[', '(']);
        let text = ["mut ", "const ", "dyn "].iter().fold(text, |text, word| text.strip_prefix(word).unwrap_or(text));
        text.split(['<', ' ', '>', ',', ']', ')']).next().unwrap_or_default().trim_end_matches("::")
    }
    let is_of = |path: &str, prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("::"));
    let helps = |path: &str| {
        HELPERS.iter().any(|name| is_of(path, name))
            || PUBLISHED_HELPERS.iter().any(|(name, module)| {
                let module = if module.is_empty() { (*name).to_owned() } else { format!("{name}::{module}") };
                is_of(path, &module)
            })
    };
    let qualified = function.strip_prefix('<').and_then(|rest| rest.split_once(" as "));
    let paths = qualified.map_or([path(function), ""], |(of, in_trait)| [path(of), path(in_trait)]);
    function.contains("::") && paths.iter().any(|path| path.contains("::") && !helps(path))
}

/// Whether a frame is the user's, by its source file if there is one and its function.
fn is_frame_of_user(file: Option<&str>, function: &str) -> bool {
    let is_copy = COPIES.iter().any(|name| function.trim_start_matches('_').starts_with(name));
    match file {
        Some(file) => is_file_of_user(file) && (file.ends_with(".rs") || !is_copy),
        None => is_function_of_user(function),
    }
}

fn is_of_user(symbol: &Symbol) -> bool {
    let file = symbol.filename().map(|file| file.to_string_lossy().into_owned());
    let function = symbol.name().map(|name| name.to_string()).unwrap_or_default();
    is_frame_of_user(file.as_deref(), &function)
}

/// The path of a file of a published crate from its folder on, `x86_64-0.15.5/src/…`.
pub(crate) fn without_registry(path: &str) -> &str {
    let registry = path.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    registry.map_or(path, |(_, path)| path)
}

/// The source line of a symbol, or else its function and the offset of `address` there.
fn text_of(symbol: &Symbol, address: usize) -> Option<String> {
    let mut text = String::new();
    if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
        let _ = write!(text, "{}:{line}", without_registry(&file.to_string_lossy()));
    } else {
        let start = symbol.addr().map_or(address, |start| start as usize);
        let _ = write!(text, "{:#}+{:#x}", symbol.name()?, address.wrapping_sub(start));
    }
    Some(text)
}

/// Frames of the stack, from the innermost on, until one of the user's is found.
#[derive(Default)]
struct Frames {
    /// The name of the first frame, inlined ones included.
    first: Option<String>,
    users: Option<String>,
}

impl Frames {
    /// Looks at the frame of the code at `address`, and before it at those that are inlined there.
    fn visit(&mut self, address: usize) {
        // What is looked up is the byte before, as if this were a return address.
        backtrace::resolve(address.wrapping_add(1) as *mut c_void, |symbol| {
            if self.users.is_none() {
                let text = text_of(symbol, address);
                self.users = text.clone().filter(|_| is_of_user(symbol));
                self.first = self.first.take().or(text);
            }
        });
    }

    /// Looks at the frames of this thread, from the code at `from` on or from here.
    fn trace(mut self, from: Option<usize>) -> Self {
        let mut reached = from.is_none();
        backtrace::trace(|frame| {
            let address = frame.ip() as usize;
            if reached {
                // A return address is behind its call; the last one of a stack may be 0.
                self.visit(address.wrapping_sub(1));
            } else if from == Some(address) {
                reached = true;
                self.visit(address);
            }
            self.users.is_none()
        });
        self
    }
}

/// Names the user's code that calls the machine from here.
#[cold]
pub(crate) fn name_of_caller() -> Option<String> {
    Frames::default().trace(None).users
}

/// Names the user's code that has trapped at `instruction`, on this stack.
///
/// If none of the stack is the user's, it is the code at `instruction`, or that address.
#[cold]
pub(crate) fn name_of_trapped(instruction: usize) -> String {
    let Frames { first, users } = Frames::default().trace(Some(instruction));
    users.or(first).unwrap_or_else(|| format!("instruction at {instruction:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-CHECK-USER: the frames of the table of this file.
    #[test]
    fn frames_of_the_language_of_the_check_of_wrappers_and_of_copies_are_not_the_users() {
        let registry = "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        let helpers = [
            "/rustc/59807616e1fa/library/core/src/ptr/mod.rs".to_owned(),
            "/rust/deps/hashbrown-0.15.2/src/raw/mod.rs".to_owned(),
            "/home/a/.rustup/toolchains/stable/lib/rustlib/src/rust/library/alloc/src/vec/mod.rs".to_owned(),
            format!("{}/src/cpu.rs", env!("CARGO_MANIFEST_DIR")),
            format!("{}/../sim/src/machine.rs", env!("CARGO_MANIFEST_DIR")).replace("check/../", ""),
            file!().replace("user_code", "cpu"),
            format!("{registry}/x86_64-0.15.5/src/instructions/tlb.rs"),
            format!("{registry}/x86-0.52.0/src/tlb.rs"),
        ];
        for file in helpers {
            assert!(!is_frame_of_user(Some(&file), "f"), "{file}");
        }
        let users = [
            "/home/a/kernel/src/memcpy.rs".to_owned(),
            "kernel/crates/check/src/cpu.rs".to_owned(),
            "/home/a/kernel/arch/x86/src/tlb.rs".to_owned(),
            format!("{}/tests/source_lines.rs", env!("CARGO_MANIFEST_DIR")),
            format!("{registry}/x86_64-0.15.5/src/structures/paging/mapper/mod.rs"),
            format!("{registry}/page_table_multiarch-0.6.1/src/bits64.rs"),
            "/home/a/kernel/entry.S".to_owned(),
        ];
        for file in users {
            assert!(is_frame_of_user(Some(&file), "f"), "{file}");
        }
        assert!(!is_frame_of_user(Some("../sysdeps/x86_64/multiarch/memmove.S"), "__memmove_avx_unaligned_erms"));
        assert!(is_frame_of_user(Some("/home/a/kernel/src/lib.rs"), "memset_entries<u64>"));
    }

    #[test]
    fn a_file_of_a_published_crate_is_named_from_its_folder_on() {
        let file = "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/x86_64-0.15.5/src/lib.rs";
        assert_eq!(without_registry(file), "x86_64-0.15.5/src/lib.rs");
        assert_eq!(without_registry("/home/a/kernel/src/lib.rs"), "/home/a/kernel/src/lib.rs");
    }

    #[test]
    fn without_a_file_a_frame_is_the_users_by_the_crate_of_its_function() {
        let helpers = [
            "core::ptr::write_volatile::h0123456789abcdef",
            "core::ptr::mut_ptr::<impl *mut T>::write_volatile",
            "<core::sync::atomic::AtomicU64>::store",
            "<alloc::boxed::Box<kernel::Space> as core::ops::function::FnOnce<()>>::call_once",
            "<T as core::convert::Into<U>>::into",
            "pagewright_check::cpu::Cpu<I>::publish",
            "x86_64::instructions::tlb::flush",
            "x86::tlb::flush",
            "__memmove_avx_unaligned_erms",
            "",
        ];
        for function in helpers {
            assert!(!is_frame_of_user(None, function), "{function}");
        }
        let users = [
            "kernel::space::Space::unmap::h0123456789abcdef",
            "kernel::space::unmap::{{closure}}",
            "<kernel::Space<core::Frame> as core::ops::drop::Drop>::drop",
            "<core::cell::Cell<u64> as kernel::Entry>::set",
            "x86_64::structures::paging::mapper::MapperFlush<S>::flush",
        ];
        for function in users {
            assert!(is_frame_of_user(None, function), "{function}");
        }
    }
}
