//! The kernel's command line: `name=value` words, then `--` and the program with its arguments.
//!
//! A word that nobody knows, and a setting that is refused, end the machine: a run under another
//! configuration than was asked for would prove nothing.

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "planted")]
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_mm::{MmSetting, MmSettings};
#[cfg(feature = "planted")]
use pagewright_types::CpuId;

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Settings of the memory manager.
    pub(crate) set: Vec<(MmSetting, u64)>,
    /// Whether every count is counted again at power-off (`check`).
    pub(crate) check: bool,
    /// Whether memory calls and faults are told (`record`).
    pub(crate) record: bool,
    /// Pages of `/dev/zram0` if it is swapped to from the beginning (`swap=16384`): as if a program
    /// gave it that size, then ran `mkswap` and `swapon`.
    pub(crate) swap: u32,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

impl Options {
    /// # Panics
    /// When a word is not known.
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
            Some((*setting, value.parse().ok()?))
        });
        let Some(known) = known else { panic!("command line: unknown word {word}") };
        self.set.push(known);
    }

    /// The settings.
    ///
    /// # Panics
    /// When a value is refused.
    pub(crate) fn settings(&self) -> MmSettings {
        let settings = MmSettings::default();
        for (setting, value) in &self.set {
            if let Err(error) = settings.set(*setting, *value) {
                panic!("command line: {error}");
            }
        }
        settings
    }
}

/// Makes the kernel err.
///
/// # Panics
/// When no such mistake is known.
#[cfg(feature = "planted")]
fn plant(name: &str) {
    match name {
        "stack-overflow" => overflow(),
        "other-stack-overflow" => return OTHER_OVERFLOWS.store(true, Ordering::Release),
        _ => {}
    }
    let Some(plant) = pagewright_plant::PlantedBug::named(name) else { panic!("command line: no planted bug {name}") };
    pagewright_plant::choose(Some(plant));
}

/// Whether CPU 1 uses more stack than there is (`plant=other-stack-overflow`).
#[cfg(feature = "planted")]
static OTHER_OVERFLOWS: AtomicBool = AtomicBool::new(false);

/// What each CPU does first of all.
#[cfg(feature = "planted")]
pub(crate) fn overflow_if_planted() {
    if OTHER_OVERFLOWS.load(Ordering::Acquire) && pagewright_hal::this_cpu() == CpuId::new(1) {
        overflow();
    }
}

#[cfg(feature = "planted")]
fn overflow() {
    core::hint::black_box(recurse(0));
}

/// Uses more stack than there is.
#[cfg(feature = "planted")]
#[expect(unconditional_recursion, reason = "that is the mistake")]
fn recurse(depth: usize) -> usize {
    let frame = core::hint::black_box([depth; 64]);
    recurse(depth + 1) + frame[depth % 64]
}

/// # Panics
/// This kernel was built without mistakes to choose.
#[cfg(not(feature = "planted"))]
fn plant(name: &str) {
    panic!("command line: plant={name}: this kernel has no planted bugs");
}

/// Splits at blanks; `%xx` stands for the byte with that hexadecimal number, blanks among them.
fn split(line: &str) -> Vec<String> {
    line.split(' ').filter(|word| !word.is_empty()).map(unescape).collect()
}

fn unescape(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| byte == b'%').and_then(|digits| core::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            // An empty argument.
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
