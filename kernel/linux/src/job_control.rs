//! Job control: processes that stop and continue (`kernel/signal.c`).
//!
//! A stop begins when a thread takes a stop signal whose action is the default
//! ([`Scheduler::begin_stop`]). Each thread of the process then waits ([`WaitReason::Stopped`])
//! before it enters user mode, or before it makes the call again for which it slept. A thread that
//! sleeps in a wait that signals interrupt counts as stopped where it is. When all are, the stop is
//! complete and the parent is told. `SIGCONT` ends the stop when it is sent, whatever its action.
//!
//! Not guaranteed: `EINTR` of calls during which a process stopped. Those that return it in Linux
//! (`epoll_wait`, `sigtimedwait`) are made again as all others are.

use crate::process::Process;
use crate::signal::{SI_KERNEL, SIG_IGN, SIGCHLD, SIGCONT, SIGHUP, SigCause, SigInfo, count_stop};
use crate::task::{CallStop, INIT, Resume, Scheduler, SchedulerGuard, TaskId, Thread, WaitReason};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// The signals that stop a process by default (`SIG_KERNEL_STOP_MASK`).
const STOP_SIGNALS: [u8; 4] = [linux::SIGSTOP as u8, linux::SIGTSTP as u8, linux::SIGTTIN as u8, linux::SIGTTOU as u8];

/// Whether the default action of a signal stops the process.
pub(crate) fn is_stop_signal(signal: u8) -> bool {
    STOP_SIGNALS.contains(&signal)
}

/// What a process did that its parent can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEvent {
    /// This signal stopped it.
    Stopped(u8),
    Continued,
}

/// The stop of a process.
#[derive(Clone, Copy, Debug)]
struct JobStop {
    signal: u8,
    /// Whether every thread has stopped.
    is_complete: bool,
}

/// Whether a process is stopped, and what its parent has not waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobState {
    stop: Option<JobStop>,
    /// The last event, until the parent waits for it.
    pub(crate) event: Option<JobEvent>,
}

impl JobState {
    /// Whether a stop has begun.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }
}

/// Has a thread wait until its process continues.
pub(crate) fn wait_for_continue(scheduler: SchedulerGuard) -> CallStop {
    CallStop::Sleep { scheduler, wait: WaitReason::Stopped, deadline: None, at_deadline: 0 }
}

impl Scheduler {
    /// Begins to stop the process of a thread that took a stop signal (`do_signal_stop`).
    ///
    /// Returns `false` if the process goes on: signals of a terminal stop no process whose group
    /// has no parent to continue it.
    pub(crate) fn begin_stop(&mut self, thread: &Thread, signal: u8) -> bool {
        let group = self.process(thread.process).group;
        if u32::from(signal) != linux::SIGSTOP && self.is_orphaned(group) {
            return false;
        }
        self.process(thread.process).job.stop = Some(JobStop { signal, is_complete: false });
        count_stop();
        true
    }

    /// Tells the parent of a process that it has stopped, when the last of its threads has.
    pub(crate) fn complete_stop(&mut self, id: TaskId) {
        let process = self.process(id);
        // A process that is killed does not stop any more (`zap_other_threads`).
        if process.group_exit.is_some() {
            return;
        }
        let living = process.threads - process.exiting_threads;
        let Some(JobStop { signal, is_complete: false }) = process.job.stop else { return };
        let stopped = self.asleep.values().filter(|sleeper| sleeper.thread.process == id);
        let stopped = stopped.filter(|sleeper| sleeper.wait == WaitReason::Stopped || sleeper.wait.is_interruptible());
        if stopped.count() as u32 == living {
            let job = &mut self.process(id).job;
            (job.stop, job.event) = (Some(JobStop { signal, is_complete: true }), Some(JobEvent::Stopped(signal)));
            self.tell_parent(id, JobEvent::Stopped(signal));
        }
    }

    /// Applies the effects of a signal that do not depend on its delivery (`prepare_signal`).
    pub(crate) fn prepare_signal(&mut self, process: TaskId, signal: u8) {
        if is_stop_signal(signal) {
            self.drop_pending(process, SIGCONT);
        } else if signal == SIGCONT {
            STOP_SIGNALS.iter().for_each(|signal| self.drop_pending(process, *signal));
            self.continue_process(process);
        }
    }

    /// Ends the stop of a process, whose threads continue what they did.
    fn continue_process(&mut self, id: TaskId) {
        let job = &mut self.process(id).job;
        let Some(stop) = job.stop.take() else { return };
        job.event = Some(JobEvent::Continued);
        while let Some((id, _)) =
            self.asleep.iter().find(|(_, sleeper)| sleeper.wait == WaitReason::Stopped && sleeper.thread.process == id)
        {
            let id = *id;
            if let Some(sleeper) = self.asleep.remove(&id) {
                self.make_ready(sleeper.thread);
            }
        }
        // As in Linux, a parent that was not told of the stop is told now.
        self.tell_parent(id, if stop.is_complete { JobEvent::Continued } else { JobEvent::Stopped(stop.signal) });
    }

    /// Tells the parent of a process what it did (`do_notify_parent_cldstop`).
    fn tell_parent(&mut self, id: TaskId, event: JobEvent) {
        let process = self.process(id);
        let (parent, user) = (process.parent, process.credentials.user.real);
        let actions = self.processes.get(&parent).and_then(|parent| parent.actions.upgrade());
        let Some(action) = actions.map(|actions| actions.lock().get(SIGCHLD)) else { return };
        if action.handler != SIG_IGN && action.flags & u64::from(linux::SA_NOCLDSTOP) == 0 {
            self.post(parent, SigInfo::of_job(id, user, event));
        }
        self.wake(usize::MAX, Resume::Again, |thread, wait| wait == WaitReason::Child && thread.process == parent);
    }

    /// Whether no process of a group has a parent outside that could continue it.
    ///
    /// Linux: `is_current_pgrp_orphaned`. Only a parent in the same session can.
    fn is_orphaned(&self, group: TaskId) -> bool {
        let mut members = self.processes.values().filter(|process| process.group == group);
        !members.any(|process| {
            let parent = self.processes.get(&process.parent).filter(|_| process.parent != INIT);
            let can_continue = |parent: &Process| parent.group != group && parent.session == process.session;
            process.exit_status.is_none() && parent.is_some_and(can_continue)
        })
    }

    /// Hangs up the stopped processes of groups that the end of a process orphaned.
    ///
    /// Linux: `kill_orphaned_pgrp`. The children that the process left have [`INIT`] as parent now.
    pub(crate) fn hang_up_orphans(&mut self, ended: TaskId, left: &[TaskId]) {
        let known = |id: &TaskId| self.processes.get(id);
        let Some(process) = known(&ended) else { return };
        // A process of another group of the session could continue this group until now.
        let could_continue = |other: &Process| other.group != process.group && other.session == process.session;
        let own = known(&process.parent).is_some_and(could_continue).then_some(process.group);
        let of_children = left.iter().filter_map(known).filter(|child| could_continue(child));
        let groups = of_children.map(|child| child.group).chain(own);
        let mut orphaned: Vec<TaskId> = groups.filter(|group| self.is_orphaned(*group)).collect();
        orphaned.dedup();
        for group in orphaned {
            let is_member = |process: &Process| process.group == group && process.exit_status.is_none();
            let members = self.processes.iter().filter(|(_, process)| is_member(process));
            let members: Vec<_> = members.map(|(id, process)| (*id, process.job.is_stopped())).collect();
            if !members.iter().any(|(_, is_stopped)| *is_stopped) {
                continue;
            }
            for signal in [SIGHUP, SIGCONT] {
                let info = SigInfo { signal, code: SI_KERNEL, cause: SigCause::Kernel };
                members.iter().for_each(|(member, _)| self.post(*member, info));
            }
        }
    }

    /// Whether a process is stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.processes.values().any(|process| process.job.is_stopped())
    }

    /// The state of a thread, or of a process by its first thread, as `/proc` shows it.
    pub(crate) fn state_of(&self, id: TaskId) -> char {
        let Some(entry) = self.threads.get(&id) else { return 'Z' };
        let Some(sleeper) = self.asleep.get(&id) else { return 'R' };
        let is_stopped = self.processes.get(&entry.process).is_some_and(|process| process.job.is_stopped());
        match sleeper.wait {
            WaitReason::Stopped => 'T',
            wait if wait.is_interruptible() => {
                if is_stopped {
                    'T'
                } else {
                    'S'
                }
            }
            _ => 'D',
        }
    }
}
