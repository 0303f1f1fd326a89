//! A session of the shell of `pagewright boot --shell`, typed through a pipe.
//!
//! Not guaranteed: the calls of terminals. The shell has no job control.

use super::cases::{CASES, Machine};
use super::{Bench, Task};
use crate::error::Error;
use crate::watch;
use std::io::{Write, pipe};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is typed: commands, a line for `read`, and text for `cat` up to the end of the input.
const TYPED: &str = "echo one; seq 3 | sort -r\nread x\nhello\necho \"got $x\"\n(exit 3) || cat\nthe last\nlines\n";
/// What is shown from the first prompt on.
///
/// The host's terminal would show what is typed.
const SHOWN: &str = "/ # one\n3\n2\n1\n/ # / # got hello\n/ # the last\nlines\n/ # \n";

/// The session on a machine, if its busybox is installed.
pub(super) fn task<'a>(bench: &'a Bench, machine: &'a Machine, kernel: &'a Path) -> Option<Task<'a>> {
    let case = CASES.iter().find(|case| case.name == "shell")?;
    let busybox = bench.program(machine, case)?;
    Some(Box::new(move || judge(bench, machine, kernel, &busybox)))
}

/// Runs the session, prints a line, and returns the number of failures.
fn judge(bench: &Bench, machine: &Machine, kernel: &Path, busybox: &PathBuf) -> Result<usize, Error> {
    let mut boot = Command::new(&bench.pagewright);
    boot.args(["boot", "--arch", machine.isa.name(), "--check", "--kernel"]).arg(kernel);
    boot.args(["--shell", "--busybox"]).arg(busybox);
    let typed = || {
        let (input, mut to) = pipe()?;
        // A pipe holds more than that, and ends when `to` is dropped.
        to.write_all(TYPED.as_bytes()).map(|()| input)
    };
    boot.stdin(typed().map_err(Error::file("a pipe"))?);
    let output = watch::output(&mut boot, watch::SHORT)?;
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let session = shown.find("/ # ").map_or("", |start| &shown[start..]);
    let right = session == SHOWN && output.status.success() && said.contains("recounted");
    println!("test boot {} typed shell ... {}", machine.isa, if right { "ok" } else { "FAILED" });
    if !right {
        println!("{shown}\n{said}\nstatus {}", output.status);
    }
    Ok(usize::from(!right))
}
