//! Which mutant is active in this process; part of `plant` in a build with mutants only.
//!
//! `PAGEWRIGHT_MUTANT` has its number. `PAGEWRIGHT_MUTANTS_REACHED` names a file to which the
//! process appends the number of each mutant whose place it reaches, once.

extern crate std;

use core::sync::atomic::{AtomicU64, Ordering};
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::string::String;
use std::sync::OnceLock;

struct Choice {
    active: Option<u32>,
    /// The file for the numbers of mutants that are reached.
    reached: Option<File>,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// A bit for each mutant that was reached; numbers beyond them are written each time.
///
/// No allocation: the heap of a test may refuse it.
static REACHED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn choice() -> Choice {
    let open = |path| OpenOptions::new().create(true).append(true).open(path).expect("the file of reached mutants");
    Choice {
        active: env::var("PAGEWRIGHT_MUTANT").ok().and_then(|number: String| number.parse().ok()),
        reached: env::var_os("PAGEWRIGHT_MUTANTS_REACHED").map(open),
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
fn note(mut reached: &File, number: u32) {
    let bit = 1 << (number % u64::BITS);
    let is_new = |word: &AtomicU64| word.fetch_or(bit, Ordering::Relaxed) & bit == 0;
    if REACHED.get((number / u64::BITS) as usize).is_none_or(is_new) {
        // One write of one line, which other processes of the test do not interrupt.
        let mut line = [0; "4294967295\n".len()];
        let mut left = line.as_mut_slice();
        writeln!(left, "{number}").expect("room for ten digits");
        let unused = left.len();
        reached.write_all(&line[..line.len() - unused]).expect("the file of reached mutants");
    }
}
