//! Which mutant is active in this process; part of `plant` in a build with mutants only.
//!
//! `PAGEWRIGHT_MUTANT` has its number. `PAGEWRIGHT_MUTANTS_REACHED` names a file to which the
//! process appends the number of each mutant whose place it reaches, once.

extern crate std;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::string::String;
use std::sync::{Mutex, OnceLock};

struct Choice {
    active: Option<u32>,
    reached: Option<Reached>,
}

struct Reached {
    file: OsString,
    numbers: Mutex<BTreeSet<u32>>,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

fn choice() -> Choice {
    Choice {
        active: env::var("PAGEWRIGHT_MUTANT").ok().and_then(|number: String| number.parse().ok()),
        reached: env::var_os("PAGEWRIGHT_MUTANTS_REACHED")
            .map(|file| Reached { file, numbers: Mutex::new(BTreeSet::new()) }),
    }
}

/// Whether the mutant with this number is active.
#[inline]
pub fn is(number: u32) -> bool {
    let choice = CHOICE.get_or_init(choice);
    if let Some(reached) = &choice.reached {
        note(reached, number);
    }
    choice.active == Some(number)
}

#[cold]
fn note(reached: &Reached, number: u32) {
    let Ok(mut numbers) = reached.numbers.lock() else { return };
    if numbers.insert(number) {
        // One write of one line, which other processes of the test do not interrupt.
        let line = std::format!("{number}\n");
        let file = OpenOptions::new().create(true).append(true).open(&reached.file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of reached mutants");
    }
}
