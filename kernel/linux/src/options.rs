//! The kernel's command line: `name=value` words, then `--` and the program with its arguments.
//!
//! An unknown word or a refused setting powers the machine off, because a run with another
//! configuration than the requested one proves nothing.

use alloc::string::String;
use alloc::vec::Vec;
use pagewright_mm::{MmSetting, MmSettings};
use pagewright_plant::{plant, planted};

/// Values that are not the library's defaults, since most processes here are small.
const DEFAULTS: [(MmSetting, &str); 1] = [(MmSetting::CowPageTables, "auto")];

/// The options of the command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Settings of the memory manager (`set.NAME=VALUE`).
    pub(crate) set: Vec<(MmSetting, u64)>,
    /// Whether page counts are recounted at power-off (`check`).
    pub(crate) check: bool,
    /// Whether memory calls and faults are recorded (`record`).
    pub(crate) record: bool,
    /// The size of a swap device in pages (`swap=16384`); 0 for none.
    ///
    /// The machine boots as if a program had set that size of `/dev/zram0` and run `mkswap` and
    /// `swapon`.
    pub(crate) swap: u32,
    /// Whether the program has input from the serial line (`input`).
    pub(crate) input: bool,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

impl Options {
    /// Parses the command line.
    ///
    /// # Panics
    /// When a word is unknown.
    pub(crate) fn parse(line: &str) -> Self {
        let mut options = Self::default();
        let (words, command) = line.split_once("-- ").unwrap_or((line, ""));
        for word in words.split_whitespace() {
            options.word(word);
        }
        options.command = split(command);
        options
    }

    fn word(&mut self, word: &str) {
        if word == "check" {
            self.check = true;
            return;
        }
        if word == "record" {
            self.record = true;
            return;
        }
        if word == "input" {
            self.input = true;
            return;
        }
        if let Some(name) = word.strip_prefix("plant=") {
            plant(name);
            return;
        }
        if let Some(slots) = word.strip_prefix("swap=") {
            self.swap = slots.parse().unwrap_or_else(|_| panic!("command line: {word}: must be a number of pages"));
            return;
        }
        let setting = word.strip_prefix("set.").and_then(|word| word.split_once('='));
        let known = setting.and_then(|(name, value)| {
            let setting = MmSetting::ALL.iter().find(|setting| setting.name() == name)?;
            Some((*setting, setting.parse(value)?))
        });
        let Some(known) = known else { panic!("command line: unknown word {word}") };
        self.set.push(known);
    }

    /// The settings of the memory manager: those of the command line over the kernel's own.
    ///
    /// # Panics
    /// When a value is refused.
    pub(crate) fn settings(&self) -> MmSettings {
        let settings = MmSettings::default();
        let defaults = DEFAULTS.map(|(setting, word)| (setting, setting.parse(word).expect("a value of the setting")));
        for (setting, value) in defaults.iter().chain(&self.set) {
            if let Err(error) = settings.set(*setting, *value) {
                panic!("command line: {error}");
            }
        }
        settings
    }
}

/// Plants a bug.
///
/// # Panics
/// When there is no bug with this name.
#[cfg(feature = "planted")]
fn plant(name: &str) {
    let Some(bug) = pagewright_plant::PlantedBug::named(name) else { panic!("command line: no planted bug {name}") };
    pagewright_plant::choose(Some(bug));
    plant!(StackOverflow => overflow());
}

/// Overflows the stack of CPU 1 if that bug is planted.
pub(crate) fn overflow_if_planted() {
    plant!(OtherStackOverflow => if pagewright_hal::this_cpu() == pagewright_types::CpuId::new(1) { overflow() });
}

planted! {
    fn overflow() {
        core::hint::black_box(recurse(0));
    }

    /// Overflows the stack.
    #[expect(unconditional_recursion, reason = "the planted bug")]
    fn recurse(depth: usize) -> usize {
        let frame = core::hint::black_box([depth; 64]);
        recurse(depth + 1) + frame[depth % 64]
    }
}

/// Refuses to plant a bug.
///
/// # Panics
/// Always: this kernel was built without planted bugs.
#[cfg(not(feature = "planted"))]
fn plant(name: &str) {
    panic!("command line: plant={name}: this kernel has no planted bugs");
}

/// Splits a line at blanks, and unescapes `%xx` to the byte with that hexadecimal number.
fn split(line: &str) -> Vec<String> {
    line.split(' ').filter(|word| !word.is_empty()).map(unescape).collect()
}

fn unescape(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| byte == b'%').and_then(|digits| core::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            // `%00` stands for an empty argument.
            Some(0) => rest = &after[2..],
            Some(code) => {
                bytes.push(code);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
