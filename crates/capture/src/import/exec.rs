//! The exec of a new image: its executable, its mappings, and the pages that `execve` fills.

use std::io::Write;
use std::path::PathBuf;

use super::address_map::page_down;
use super::context::Context;
use super::error::ImportError;
use super::image::{self, CapturedLayout, ElfFile};
use super::nr;
use super::process::{ImagePhase, Process};
use crate::trace::TaskEvent;

impl Process {
    /// Replaces the image of the process; `first_fetch` is the address of its first instruction.
    pub(super) fn exec<W: Write>(
        &mut self,
        command: Vec<String>,
        first_fetch: u64,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        self.phase = ImagePhase::Running;
        if cx.premapped() {
            return Ok(());
        }
        let name = match self
            .open_call
            .take()
            .filter(|call| call.number == nr::EXECVE)
            .and_then(|call| call.args[0].text.clone())
        {
            Some(path) => self.descriptors.resolve(&path),
            None => self.search(command.first().map_or("", String::as_str)),
        };
        self.load(name, command, CapturedLayout::valgrind(first_fetch), cx)
    }

    /// Loads the executable `name` into a new space.
    pub(super) fn load<W: Write>(
        &mut self,
        name: PathBuf,
        command: Vec<String>,
        captured: CapturedLayout,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        let executable = self.program(name)?;
        let interpreter = match executable.interpreter() {
            Some(path) => Some(self.program(path.to_owned())?),
            None => None,
        };
        let file = cx.file(&executable.path)?;
        let interpreter = match &interpreter {
            Some(program) => Some((program, cx.file(&program.path)?)),
            None => None,
        };
        let loaded = image::load((&executable, file), interpreter, command, captured, cx.options.layout);
        self.descriptors.exec();
        self.tool_ranges.clear();
        self.pending.clear();
        self.space = loaded.space;
        self.stack_top = captured.stack_top;
        self.fresh_stack = true;
        self.emit_task(TaskEvent::Exec { image: loaded.image }, cx)?;
        for addr in loaded.padded {
            cx.emit_kernel(self.pid, self.current, addr.page(), true)?;
        }
        Ok(())
    }

    /// Emits the stores of `execve` to the stack: the strings and vectors above the first access.
    pub(super) fn fill_stack<W: Write>(&mut self, captured: u64, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        self.fresh_stack = false;
        let bottom = page_down(captured);
        self.kernel_touch(bottom, self.stack_top - bottom, true, cx)
    }

    /// Finds a command as a shell does.
    fn search(&self, name: &str) -> PathBuf {
        if name.contains('/') {
            return self.descriptors.resolve(name.as_bytes());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|candidate| candidate.is_file())
            .unwrap_or_else(|| PathBuf::from(name))
    }

    fn program(&self, executable: PathBuf) -> Result<ElfFile, ImportError> {
        ElfFile::read(&executable).map_err(|why| ImportError::Executable {
            path: self.lines.path().to_owned(),
            line: self.lines.number(),
            executable,
            why,
        })
    }
}
