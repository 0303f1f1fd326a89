//! Processes: what their threads share, and what remains when they have ended.
//!
//! A [`Process`] is in [`Scheduler`](crate::task::Scheduler), whose lock guards it, until it is
//! reaped.

use crate::credentials::Credentials;
use crate::file::{DescriptorTable, FsContext};
use crate::job_control::JobState;
use crate::limits::ProcessLimits;
use crate::memory::SpaceHandle;
use crate::signal::{PendingSignals, SIGCHLD, SigActions};
use crate::task::{INIT, TaskId};
use crate::timers::ProcessTimers;
use crate::usage::Usage;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use spin::Mutex;

/// How a process ended, as `wait4` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It exited with this status.
    Exit(u8),
    /// This signal killed it.
    Signal(u8),
}

impl ExitStatus {
    /// The word that `wait4` stores.
    pub(crate) fn wait_status(self) -> u32 {
        match self {
            Self::Exit(status) => u32::from(status) << 8,
            Self::Signal(signal) => u32::from(signal),
        }
    }

    /// The status that a shell shows.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Exit(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// The group and the session of the first process, which no process leads.
pub(crate) const NO_LEADER: TaskId = TaskId(0);

/// A process.
pub(crate) struct Process {
    /// Its number, which its descriptors share: a later process with the same number has another.
    pub(crate) handle: Arc<TaskId>,
    pub(crate) parent: TaskId,
    pub(crate) group: TaskId,
    pub(crate) session: TaskId,
    /// Whether it has called `execve`, after which its parent cannot move it to another group.
    pub(crate) has_executed: bool,
    /// The name of its program, which its threads have unless they choose one (`comm`).
    pub(crate) program: String,
    /// Its address space, which its threads own.
    pub(crate) space: Weak<SpaceHandle>,
    pub(crate) limits: ProcessLimits,
    /// Those of its first thread.
    pub(crate) credentials: Arc<Credentials>,
    /// Whether others with the same user may look into it (`PR_SET_DUMPABLE`).
    pub(crate) is_dumpable: bool,
    /// The signal that it gets when its parent ends (`PR_SET_PDEATHSIG`); 0 for none.
    pub(crate) parent_death_signal: u8,
    pub(crate) threads: u32,
    /// The threads that have begun to end.
    pub(crate) exiting_threads: u32,
    /// The thread in `execve`, which waits for the end of all others.
    pub(crate) exec_thread: Option<TaskId>,
    /// Set when all of its threads must end.
    pub(crate) group_exit: Option<ExitStatus>,
    /// Set when its last thread has ended.
    pub(crate) exit_status: Option<ExitStatus>,
    /// Whether its parent sleeps in `vfork`.
    pub(crate) vfork: bool,
    pub(crate) pending: PendingSignals,
    pub(crate) job: JobState,
    /// Its signal actions, which its threads own.
    pub(crate) actions: Weak<Mutex<SigActions>>,
    /// Its descriptors, which its threads own.
    pub(crate) files: Weak<Mutex<DescriptorTable>>,
    /// Its working directory, which its threads own.
    pub(crate) fs: Weak<Mutex<FsContext>>,
    /// The signal that its parent gets when it ends; 0 for none.
    pub(crate) exit_signal: u8,
    /// Moves its score when memory runs out (`oom_score_adj`).
    pub(crate) oom_score_adj: i32,
    /// The arguments of its program, each with its zero byte.
    pub(crate) arguments: Arc<[u8]>,
    /// The environment that its program was started with, each word with its zero byte.
    pub(crate) environment: Arc<[u8]>,
    pub(crate) timers: ProcessTimers,
    /// What its threads used, without those that run, and what its reaped children used.
    pub(crate) usage: Usage,
    pub(crate) children_usage: Usage,
}

impl Process {
    /// The program's name, as `ps` shows it.
    pub(crate) fn name(&self) -> &str {
        &self.program
    }

    /// A process with one thread.
    pub(crate) fn new(
        handle: &Arc<TaskId>,
        parent: TaskId,
        group: TaskId,
        program: String,
        space: &Arc<SpaceHandle>,
        limits: ProcessLimits,
        credentials: Arc<Credentials>,
    ) -> Self {
        let signal = if **handle == INIT { 0 } else { SIGCHLD };
        Self {
            handle: handle.clone(),
            parent,
            group,
            session: NO_LEADER,
            has_executed: false,
            program,
            space: Arc::downgrade(space),
            limits,
            credentials,
            is_dumpable: true,
            parent_death_signal: 0,
            threads: 1,
            exiting_threads: 0,
            exec_thread: None,
            group_exit: None,
            exit_status: None,
            vfork: false,
            pending: PendingSignals::default(),
            job: JobState::default(),
            actions: Weak::new(),
            files: Weak::new(),
            fs: Weak::new(),
            exit_signal: signal,
            oom_score_adj: 0,
            arguments: Arc::from([]),
            environment: Arc::from([]),
            timers: ProcessTimers::new(),
            usage: Usage::default(),
            children_usage: Usage::default(),
        }
    }
}
