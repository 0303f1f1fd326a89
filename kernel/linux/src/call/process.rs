//! `execve`, `execveat`, `exit` and `exit_group`.

use super::{Arguments, address, futex, path};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::exec::{self, ExecRequest};
use crate::inode::InodeKind;
use crate::job_control::JobState;
use crate::memory::{SpaceHandle, mm};
use crate::process::ExitStatus;
use crate::record;
use crate::report;
use crate::signal::{self, SIGCHLD, SigCause, SigInfo, count_stop};
use crate::task::{CallStop, INIT, Resume, Scheduler, SyscallResult, TaskId, Thread, WaitReason, scheduler};
use crate::timers::ProcessTimers;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;
use spin::Mutex;

pub(super) fn exit(_thread: &mut Thread, a: Arguments) -> SyscallResult {
    Err(CallStop::Exit(ExitStatus::Exit(a[0] as u8)))
}

pub(super) fn exit_group(_thread: &mut Thread, a: Arguments) -> SyscallResult {
    Err(CallStop::ExitProcess(ExitStatus::Exit(a[0] as u8)))
}

/// Reads an array of strings, whose bytes are subtracted from `room`.
fn strings(thread: &Thread, mut at: VirtAddr, room: &mut usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut all = Vec::new();
    if at == VirtAddr::ZERO {
        return Ok(all);
    }
    loop {
        let string = thread.space.read_u64(at)?;
        if string == 0 {
            return Ok(all);
        }
        let string = thread.space.read_string(address(string))?;
        *room = room.checked_sub(string.len() + 1 + size_of::<u64>()).ok_or(Errno::E2BIG)?;
        all.push(string);
        at = at.checked_add(8).ok_or(Errno::EFAULT)?;
    }
}

/// `execve`.
pub(super) fn execve(thread: &mut Thread, a: Arguments) -> SyscallResult {
    execveat(thread, [linux::AT_FDCWD as u64, a[0], a[1], a[2], 0, 0])
}

/// `execveat`.
///
/// The other threads of the process end first. If the call fails after that, new threads can be
/// made again.
pub(super) fn execveat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let answer = replace(thread, a);
    if let Err(CallStop::Error(_)) = answer {
        scheduler().process(thread.process).exec_thread.take_if(|exec_thread| *exec_thread == thread.id);
    }
    answer
}

/// Finds the program that `execveat` names (`alloc_bprm`, `do_open_execat`).
fn request(
    thread: &Thread,
    a: Arguments,
    name: &str,
    [arguments, environment]: [Vec<Vec<u8>>; 2],
) -> Result<ExecRequest, Errno> {
    let (directory, flags) = (a[0] as i32, a[4] as u32);
    if flags & !(linux::AT_EMPTY_PATH | linux::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let is_path = name.starts_with('/') || directory == linux::AT_FDCWD;
    let node = if !name.is_empty() {
        path::find(thread, &path::path_at(thread, a[0], address(a[1]))?, flags & linux::AT_SYMLINK_NOFOLLOW == 0)?
    } else if is_path {
        thread.fs.lock().directory.clone()
    } else {
        thread.named_file(a[0])?.inode().cloned().ok_or(Errno::EACCES)?
    };
    if matches!(node.kind, InodeKind::Link(_)) {
        return Err(Errno::ELOOP);
    }
    let path = match name {
        _ if is_path => path::absolute(thread, name),
        "" => format!("/dev/fd/{directory}"),
        _ => format!("/dev/fd/{directory}/{name}"),
    };
    // The name of what has no path does not say so (`bprm->comm_from_dentry`).
    let found = node.path();
    let named = if name.is_empty() { found.strip_suffix(" (deleted)").unwrap_or(&found) } else { &path };
    let name = named.rsplit('/').next().unwrap_or_default().to_string();
    let is_reachable = is_path || !thread.files.lock().get(a[0])?.close_on_exec;
    Ok(ExecRequest { node, path, name, is_reachable, arguments, environment })
}

fn replace(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let name = thread.space.read_path(address(a[1]))?;
    if name.is_empty() && a[4] as u32 & linux::AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT.into());
    }
    let mut room = exec::STRINGS_MAX;
    let arguments = strings(thread, address(a[2]), &mut room)?;
    let environment = strings(thread, address(a[3]), &mut room)?;
    let request = request(thread, a, &name, [arguments, environment])?;
    exec::check(&request, &thread.credentials)?;
    de_thread(thread)?;
    // A table that another process shares is copied (`unshare_files`).
    let is_shared = Arc::strong_count(&thread.files) > 1;
    let unshared = if is_shared { Some(thread.files.lock().try_clone()?) } else { None };
    let limits = scheduler().process(thread.process).limits.clone();
    let image = match exec::load(&request, &limits, &thread.credentials, thread.space.0.thp_disabled()) {
        Ok(image) => image,
        Err(error) => {
            mm().tlb().switch_to(thread.space.0.table().context());
            return Err(error.into());
        }
    };
    leave_memory(thread, &image.space);
    thread.context = image.context;
    thread.context.load();
    let old = core::mem::replace(&mut thread.space, image.space);
    thread.noted.note_peak(old.0.rss().peak_bytes());
    drop(old);
    let actions = thread.actions.lock().for_new_program(image.trampoline);
    thread.actions = Arc::new(Mutex::new(actions));
    thread.signal_stack = (0, 0);
    if let Some(files) = unshared {
        thread.files = Arc::new(Mutex::new(files));
    }
    let closed = thread.files.lock().take_close_on_exec();
    drop(closed);
    let mut scheduler = scheduler();
    let process = scheduler.process(thread.process);
    (process.program, process.space) = (image.name, Arc::downgrade(&thread.space));
    process.has_executed = true;
    process.timers.remove_posix();
    (process.arguments, process.environment) = (image.arguments, image.environment);
    process.actions = Arc::downgrade(&thread.actions);
    process.files = Arc::downgrade(&thread.files);
    let Credentials { user, group, .. } = &*thread.credentials;
    process.is_dumpable = user.effective == user.real && group.effective == group.real;
    if image.is_secure {
        process.parent_death_signal = 0;
    }
    if thread.process != INIT {
        process.exit_signal = SIGCHLD;
    }
    // The program's name replaces one that the thread chose (`begin_new_exec`).
    if let Some(entry) = scheduler.threads.get_mut(&thread.id) {
        entry.name = None;
    }
    scheduler.set_credentials(thread, image.credentials);
    scheduler.complete_vfork(thread.process);
    Err(CallStop::Done)
}

/// Does what a thread owes to the users of the memory that it leaves (`exec_mm_release`).
///
/// The CPU runs `next` before and after.
fn leave_memory(thread: &mut Thread, next: &SpaceHandle) {
    if futex::owes_words(thread) {
        mm().tlb().switch_to(thread.space.0.table().context());
        futex::release_words(thread);
        mm().tlb().switch_to(next.0.table().context());
    }
    scheduler().hand_on_pi_locks(thread.id);
}

/// Ends every other thread of the process, and waits for them (`de_thread`).
///
/// The remaining thread gets the number of the process.
fn de_thread(thread: &mut Thread) -> Result<(), CallStop> {
    let mut scheduler = scheduler();
    let me = thread.id;
    let process = scheduler.process(thread.process);
    if process.threads > 1 {
        if process.exec_thread.is_some_and(|exec_thread| exec_thread != me) {
            // Another thread was first. This one ends on the return to user mode.
            return Err(Errno::EAGAIN.into());
        }
        process.exec_thread = Some(me);
        count_stop();
        let of = thread.process;
        scheduler.wake(usize::MAX, Resume::Again, |other, _| other.process == of && other.id != me);
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::DeThread, deadline: None, at_deadline: 0 });
    }
    process.exec_thread = None;
    // Those that wait for its locks know it by the number that it gives up.
    if me != thread.process {
        scheduler.hand_on_pi_locks(me);
    }
    if let Some(known) = scheduler.threads.remove(&me) {
        scheduler.threads.insert(thread.process, known);
    }
    thread.id = thread.process;
    scheduler.renumber_running(thread.id);
    if let Some(entry) = scheduler.threads.get(&thread.id) {
        let credentials = entry.credentials.clone();
        scheduler.process(thread.process).credentials = credentials;
    }
    Ok(())
}

impl Scheduler {
    /// Wakes the parent of a child that `vfork` made (`complete_vfork_done`).
    fn complete_vfork(&mut self, child: TaskId) {
        if core::mem::take(&mut self.process(child).vfork) {
            let answer = Resume::Return(u64::from(child.0));
            self.wake(usize::MAX, answer, |_, wait| wait == WaitReason::Vfork(child));
        }
    }

    fn end(&mut self, id: TaskId, end: ExitStatus) {
        self.complete_vfork(id);
        let process = self.process(id);
        let (parent, signal, user) = (process.parent, process.exit_signal, process.credentials.user.real);
        process.exit_status = Some(end);
        // Another process may live on in it, after `vfork` (`exit_mm`).
        process.space = Weak::new();
        process.timers = ProcessTimers::new();
        process.job = JobState::default();
        let has_stopped = self.has_stopped();
        let orphans = self.processes.iter_mut().filter(|(_, other)| other.parent == id);
        // As in Linux, the first process always gets `SIGCHLD`.
        let (mut told, mut left) = (Vec::new(), Vec::new());
        for (child, orphan) in orphans {
            if has_stopped {
                left.push(*child);
            }
            (orphan.parent, orphan.exit_signal) = (INIT, SIGCHLD);
            if orphan.parent_death_signal != 0 && orphan.exit_status.is_none() {
                told.push((*child, orphan.parent_death_signal));
            }
        }
        for (child, signal) in told {
            let cause = SigCause::Sender(id, user);
            self.post(child, SigInfo { signal, code: signal::SI_USER, cause });
        }
        if has_stopped {
            self.hang_up_orphans(id, &left);
        }
        let forgotten = if signal == SIGCHLD { self.discards_children(parent) } else { None };
        let parent_lives = self.processes.get(&parent).is_some_and(|parent| parent.exit_status.is_none());
        if signal != 0 && parent_lives && forgotten != Some(true) {
            self.post(parent, SigInfo::of_end(signal, id, user, end));
        }
        if forgotten.is_some() {
            self.processes.remove(&id);
        }
        // Wakes the threads that poll a descriptor of the process.
        self.wake_transfers();
        self.wake(usize::MAX, Resume::Again, |thread, wait| {
            wait == WaitReason::Child && (thread.process == parent || thread.process == INIT)
        });
    }
}

/// Ends a thread, which runs on this CPU.
pub(crate) fn end_thread(mut thread: Box<Thread>, end: ExitStatus) {
    futex::release_words(&mut thread);
    let (id, process) = (thread.id, thread.process);
    let (last, end) = {
        let mut scheduler = scheduler();
        let known = scheduler.process(process);
        known.usage.note_peak(thread.space.0.rss().peak_bytes());
        known.exiting_threads += 1;
        (known.exiting_threads == known.threads, known.group_exit.unwrap_or(end))
    };
    record_exit(&thread, last, end);
    if process == INIT && last {
        // The machine powers off with its first process, whose memory is recounted before it goes.
        let status = report::exit_status(end);
        if record::is_on() {
            // A replay ends the space too.
            mm().tlb().leave_space();
            drop(thread);
        }
        report::power_off(status);
    }
    mm().tlb().leave_space();
    // Closes descriptors and, with the last thread, ends the space, before the parent is notified.
    drop(thread);
    let mut scheduler = scheduler();
    // Until here, others may begin to wait for its locks.
    scheduler.threads.remove(&id);
    scheduler.hand_on_pi_locks(id);
    let known = scheduler.process(process);
    known.threads -= 1;
    known.exiting_threads -= 1;
    if known.threads > 0 {
        scheduler.complete_stop(process);
        let known = scheduler.process(process);
        if known.threads == 1 && known.exec_thread.is_some() {
            scheduler.wake(1, Resume::Again, |other, wait| other.process == process && wait == WaitReason::DeThread);
        }
        return;
    }
    let end = known.group_exit.unwrap_or(end);
    scheduler.end(process, end);
}

/// Records the end of a thread, or of its process if it is the last one.
fn record_exit(thread: &Thread, last: bool, end: ExitStatus) {
    if record::is_on() {
        record::set_running(thread);
        if last {
            record::event(format_args!("exit {:x}", end.status()));
        } else {
            record::event(format_args!("end"));
        }
    }
}
