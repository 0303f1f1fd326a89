//! `fork`, `vfork`, `clone`, `clone3`: new threads and processes.
//!
//! Not guaranteed: namespaces and `CLONE_INTO_CGROUP`, which are refused with `EINVAL`.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::{DescriptorTable, OpenFile, OpenTarget};
use crate::limits::check_thread_count;
use crate::memory::{SpaceHandle, mm};
use crate::process::Process;
use crate::record;
use crate::run_queue::Scheduling;
use crate::signal::{NSIG, PendingSignals, SigActions, SignalCheck};
use crate::task::{CallStop, INIT, Scheduler, SyscallResult, TaskId, Thread, ThreadEntry, WaitReason, scheduler};
use crate::usage::{Accounted, Usage};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_arch::Isa;
use pagewright_hal::Machine;
use pagewright_syscall::CloneRequest;
use pagewright_types::{PAGE_SIZE, VirtAddr};
use spin::Mutex;

/// The supported flags.
///
/// `CLONE_IO`, `CLONE_SYSVSEM`, `CLONE_PTRACE` and `CLONE_UNTRACED` share or change what no task
/// has here: an I/O scheduler, semaphores to undo, a tracer.
const KNOWN: u32 = linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_PIDFD
    | linux::CLONE_PTRACE
    | linux::CLONE_VFORK
    | linux::CLONE_PARENT
    | linux::CLONE_THREAD
    | linux::CLONE_SYSVSEM
    | linux::CLONE_SETTLS
    | linux::CLONE_PARENT_SETTID
    | linux::CLONE_CHILD_CLEARTID
    | linux::CLONE_DETACHED
    | linux::CLONE_UNTRACED
    | linux::CLONE_CHILD_SETTID
    | linux::CLONE_IO;

/// `CLONE_CLEAR_SIGHAND`: the handlers of the child are reset.
const CLEAR_HANDLERS: u64 = 1 << 32;

/// The words of `struct clone_args`, and its least size in bytes.
const WORDS: usize = 11;
const LEAST: u64 = 64;
/// The most nested PID namespaces, and so the most numbers that a caller can choose.
const MAX_PID_NS_LEVEL: u64 = 32;
/// The limit of numbers that a caller can choose (`pid_max`).
pub(crate) const PID_MAX: i32 = 32768;

fn has(request: &CloneRequest, flag: u32) -> bool {
    request.flags & u64::from(flag) != 0
}

fn has_all(flags: u64, wanted: u32) -> bool {
    flags & u64::from(wanted) == u64::from(wanted)
}

/// `clone3`, whose arguments are in memory (`copy_clone_args_from_user`).
pub(super) fn clone3(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (at, size) = (address(a[0]), a[1]);
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG.into());
    }
    if size < LEAST {
        return Err(Errno::EINVAL.into());
    }
    let bytes = thread.space.read_vec(at, size as usize)?;
    let (known, unknown) = bytes.split_at(bytes.len().min(WORDS * 8));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG.into());
    }
    let word = |index: usize| {
        known.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let (flags, pidfd, child_tid, parent_tid) = (word(0), address(word(1)), address(word(2)), address(word(3)));
    let (exit_signal, stack, stack_size) = (word(4), word(5), word(6));
    let (numbers, number_count) = (word(8), word(9));
    if number_count > MAX_PID_NS_LEVEL || (numbers == 0) != (number_count == 0) || exit_signal > NSIG as u64 {
        return Err(Errno::EINVAL.into());
    }
    let numbers = thread.space.read_vec(address(numbers), number_count as usize * 4)?;
    let wrong = flags & u64::from(linux::CSIGNAL | linux::CLONE_DETACHED) != 0
        || flags & CLEAR_HANDLERS != 0 && flags & u64::from(linux::CLONE_SIGHAND) != 0
        || flags & u64::from(linux::CLONE_THREAD | linux::CLONE_PARENT) != 0 && exit_signal != 0
        || !is_valid_stack(stack, stack_size);
    if wrong {
        return Err(Errno::EINVAL.into());
    }
    let stack = stack + stack_size;
    let request = CloneRequest { flags, exit_signal, stack, parent_tid, child_tid, tls: word(7), pidfd };
    check(thread, &request)?;
    // There is one PID namespace, so there is at most one number.
    let number = match numbers.len() {
        0 => None,
        4 => Some(i32::from_le_bytes([numbers[0], numbers[1], numbers[2], numbers[3]])),
        _ => return Err(Errno::EINVAL.into()),
    };
    let number = match number {
        None => None,
        Some(number) if (1..PID_MAX).contains(&number) => Some(TaskId(number.unsigned_abs())),
        Some(_) => return Err(Errno::EINVAL.into()),
    };
    clone_checked(thread, &request, number)
}

/// Whether a stack is in user memory and has a size, or neither is given (`clone3_stack_valid`).
fn is_valid_stack(stack: u64, size: u64) -> bool {
    let end = <<Machine as pagewright_arch::Effects>::Isa as Isa>::USER_END;
    (stack == 0) == (size == 0) && stack.checked_add(size).is_some_and(|top| top <= end.raw())
}

/// `fork`, `vfork`, `clone`.
pub(super) fn clone(thread: &mut Thread, request: &CloneRequest) -> SyscallResult {
    check(thread, request)?;
    clone_checked(thread, request, None)
}

/// Checks the flags of a request (`kernel_clone`, `copy_process`).
fn check(thread: &Thread, request: &CloneRequest) -> Result<(), Errno> {
    let flags = request.flags;
    let unknown = flags & !(u64::from(KNOWN) | CLEAR_HANDLERS) != 0;
    let alone = has(request, linux::CLONE_THREAD) && !has(request, linux::CLONE_SIGHAND)
        || has(request, linux::CLONE_SIGHAND) && !has(request, linux::CLONE_VM);
    // The first process has no parent whose child another process could be.
    let orphan = has(request, linux::CLONE_PARENT) && thread.process == INIT;
    let same_place =
        has_all(flags, linux::CLONE_PIDFD | linux::CLONE_PARENT_SETTID) && request.pidfd == request.parent_tid;
    let of_thread =
        has(request, linux::CLONE_PIDFD) && flags & u64::from(linux::CLONE_THREAD | linux::CLONE_DETACHED) != 0;
    if unknown || alone || orphan || same_place || of_thread { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The number of a new thread: this one, if the caller chose one.
fn new_number(thread: &Thread, number: Option<TaskId>) -> Result<Arc<TaskId>, Errno> {
    let mut scheduler = scheduler();
    check_thread_count(&mut scheduler, thread)?;
    Ok(Arc::new(scheduler.choose_id(number)?))
}

/// Makes a new thread ready, as other threads may have scheduled it since it has a number.
fn start(scheduler: &mut Scheduler, mut child: Box<Thread>) {
    if let Some(entry) = scheduler.threads.get(&child.id) {
        child.scheduling = entry.scheduling;
    }
    scheduler.make_ready(child);
}

/// Makes a thread or a process, with this number if the caller chose one.
fn clone_checked(thread: &mut Thread, request: &CloneRequest, number: Option<TaskId>) -> SyscallResult {
    thread.context.save();
    let mut context = thread.context.clone();
    context.set_syscall_result(0);
    if request.stack != 0 {
        context.set_sp(VirtAddr::new(request.stack));
    }
    if has(request, linux::CLONE_SETTLS) {
        context.set_thread_pointer_unloaded(request.tls);
    }
    let actions = actions(thread, request);
    let files = files(thread, request)?;
    let handle = new_number(thread, number)?;
    let id = *handle;
    let pidfd = open_pidfd(thread, request, &handle)?;
    let (process, space, scheduling) = match record::ordered(|| create_task(thread, request, &actions, &handle)) {
        Ok(created) => created,
        Err(error) => {
            close_pidfd(thread, pidfd);
            return Err(error.into());
        }
    };
    if has(request, linux::CLONE_PARENT_SETTID) {
        let _ = thread.space.write_u32(request.parent_tid, id.0);
    }
    let fs = shared(&thread.fs, has(request, linux::CLONE_FS));
    if !has(request, linux::CLONE_THREAD) {
        let mut scheduler = scheduler();
        let created = scheduler.process(process);
        (created.files, created.fs) = (Arc::downgrade(&files), Arc::downgrade(&fs));
    }
    let child_tid = |flag| if has(request, flag) { request.child_tid } else { VirtAddr::ZERO };
    let child = Box::new(Thread {
        id,
        first_id: id,
        process,
        context,
        space,
        files,
        fs,
        actions,
        credentials: thread.credentials.clone(),
        scheduling,
        policy: mm().task_policy(),
        blocked: thread.blocked,
        saved_blocked: None,
        signal_check: SignalCheck::default(),
        signal_stack: if has(request, linux::CLONE_VM) { (0, 0) } else { thread.signal_stack },
        clear_child_tid: child_tid(linux::CLONE_CHILD_CLEARTID),
        set_child_tid: child_tid(linux::CLONE_CHILD_SETTID),
        call: (0, 0),
        bytes_moved: 0,
        messages: None,
        words: Vec::new(),
        opening: None,
        resume: None,
        deadline: None,
        usage: Usage::default(),
        accounted: Accounted::default(),
        noted: Usage::default(),
    });
    let mut scheduler = self::scheduler();
    start(&mut scheduler, child);
    if has(request, linux::CLONE_VFORK) {
        let at_deadline = u64::from(id.0);
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Vfork(id), deadline: None, at_deadline });
    }
    Ok(u64::from(id.0))
}

/// Opens the descriptor of `CLONE_PIDFD`, and stores its number for the program.
fn open_pidfd(thread: &Thread, request: &CloneRequest, handle: &Arc<TaskId>) -> Result<Option<u64>, Errno> {
    if !has(request, linux::CLONE_PIDFD) {
        return Ok(None);
    }
    let open = OpenFile::new(OpenTarget::Process(handle.clone()), linux::O_RDWR);
    let number = thread.add_descriptor(&open, true)?;
    if let Err(error) = thread.space.write_u32(request.pidfd, number as u32) {
        close_pidfd(thread, Some(number));
        return Err(error);
    }
    Ok(Some(number))
}

fn close_pidfd(thread: &Thread, number: Option<u64>) {
    let closed = number.map(|number| thread.files.lock().take(number));
    drop(closed);
}

/// Makes the address space and the process of a child, and records it.
fn create_task(
    thread: &Thread,
    request: &CloneRequest,
    actions: &Arc<Mutex<SigActions>>,
    handle: &Arc<TaskId>,
) -> Result<(TaskId, Arc<SpaceHandle>, Scheduling), Errno> {
    let id = **handle;
    let space = if has(request, linux::CLONE_VM) {
        thread.space.clone()
    } else {
        Arc::new(SpaceHandle::forked(mm().fork(&thread.space.0)?, &thread.space))
    };
    let mut scheduler = scheduler();
    // Another thread may have chosen the same number meanwhile, or taken the last one of its user.
    scheduler.choose_id(Some(id))?;
    check_thread_count(&mut scheduler, thread)?;
    let process = add_to_process(&mut scheduler, thread, handle, request, &space, actions);
    let caller = scheduler.threads.get(&thread.id);
    let name = caller.and_then(|entry| entry.name.clone());
    let scheduling = caller.map_or(thread.scheduling, |entry| entry.scheduling).for_child();
    let entry = ThreadEntry {
        process,
        pending: PendingSignals::default(),
        name,
        credentials: thread.credentials.clone(),
        scheduling,
        robust_list: VirtAddr::ZERO,
        inherited_lock: None,
    };
    scheduler.threads.insert(id, entry);
    drop(scheduler);
    let birth = match (has(request, linux::CLONE_THREAD), has(request, linux::CLONE_VM)) {
        (true, _) => "thread",
        (false, true) => "vfork",
        (false, false) => "fork",
    };
    record::event(format_args!("{birth} {:x}", id.0));
    Ok((process, space, scheduling))
}

fn add_to_process(
    scheduler: &mut Scheduler,
    thread: &Thread,
    handle: &Arc<TaskId>,
    request: &CloneRequest,
    space: &Arc<SpaceHandle>,
    actions: &Arc<Mutex<SigActions>>,
) -> TaskId {
    if has(request, linux::CLONE_THREAD) {
        scheduler.process(thread.process).threads += 1;
        return thread.process;
    }
    let caller = scheduler.process(thread.process);
    let (group, session) = (caller.group, caller.session);
    let (program, limits) = (caller.program.clone(), caller.limits.clone());
    let oom_score_adj = caller.oom_score_adj;
    let (arguments, environment) = (caller.arguments.clone(), caller.environment.clone());
    let (parent, exit_signal) = if has(request, linux::CLONE_PARENT) {
        (caller.parent, caller.exit_signal)
    } else {
        // An invalid signal is not sent (`do_notify_parent`).
        let signal = u8::try_from(request.exit_signal).ok().filter(|signal| usize::from(*signal) <= NSIG);
        (thread.process, signal.unwrap_or(0))
    };
    let id = **handle;
    let is_dumpable = caller.is_dumpable;
    let mut child = Process::new(handle, parent, group, program, space, limits, thread.credentials.clone());
    (child.session, child.is_dumpable) = (session, is_dumpable);
    child.vfork = has(request, linux::CLONE_VFORK);
    child.actions = Arc::downgrade(actions);
    child.exit_signal = exit_signal;
    (child.oom_score_adj, child.arguments, child.environment) = (oom_score_adj, arguments, environment);
    scheduler.processes.insert(id, child);
    id
}

/// The parent's, or a copy of it.
fn shared<T: Clone>(of_parent: &Arc<Mutex<T>>, share: bool) -> Arc<Mutex<T>> {
    if share {
        return of_parent.clone();
    }
    let copy = of_parent.lock().clone();
    Arc::new(Mutex::new(copy))
}

/// The descriptors of the parent, or a copy of them.
fn files(thread: &Thread, request: &CloneRequest) -> Result<Arc<Mutex<DescriptorTable>>, Errno> {
    if has(request, linux::CLONE_FILES) {
        return Ok(thread.files.clone());
    }
    let copied = thread.files.lock().try_clone()?;
    Ok(Arc::new(Mutex::new(copied)))
}

fn actions(thread: &Thread, request: &CloneRequest) -> Arc<Mutex<SigActions>> {
    if request.flags & CLEAR_HANDLERS != 0 {
        let actions = thread.actions.lock();
        return Arc::new(Mutex::new(actions.for_new_program(actions.trampoline)));
    }
    shared(&thread.actions, has(request, linux::CLONE_SIGHAND))
}
