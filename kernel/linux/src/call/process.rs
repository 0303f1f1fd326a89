//! Beginning, replacing, ending and awaiting processes and threads.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::exec;
use crate::finish;
use crate::memory::{SpaceHandle, mm};
use crate::record;
use crate::signal::{Actions, Info, Pending, SIGCHLD, SIGNALS};
use crate::task::{Answer, End, FIRST, Id, Known, Process, Resume, State, Stop, Thread, Wait, state};
use crate::tree;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_syscall::CloneRequest;
use pagewright_types::VirtAddr;
use spin::Mutex;

pub(super) fn exit(_thread: &mut Thread, a: Arguments) -> Answer {
    Err(Stop::Exit(End::Exit(a[0] as u8)))
}

pub(super) fn exit_group(_thread: &mut Thread, a: Arguments) -> Answer {
    Err(Stop::ExitProcess(End::Exit(a[0] as u8)))
}

fn has(request: &CloneRequest, flag: u32) -> bool {
    request.flags & u64::from(flag) != 0
}

/// `clone3`, whose arguments are in memory (`struct clone_args`).
pub(super) fn clone3(thread: &mut Thread, a: Arguments) -> Answer {
    /// Words of `struct clone_args` that are known, and the least.
    const WORDS: usize = 11;
    const LEAST: u64 = 64;
    if a[1] < LEAST {
        return Err(Errno::EINVAL.into());
    }
    let bytes = thread.space.read_vec(address(a[0]), (a[1] as usize).min(WORDS * 8))?;
    let word = |index: usize| {
        bytes.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let (flags, child_tid, parent_tid) = (word(0), address(word(2)), address(word(3)));
    let (exit_signal, stack, stack_size) = (word(4), word(5), word(6));
    // `clone3_args_valid`: flags of signals have a word of their own, and a stack has a size.
    if flags & u64::from(linux::CSIGNAL) != 0 || exit_signal > SIGNALS as u64 || (stack == 0) != (stack_size == 0) {
        return Err(Errno::EINVAL.into());
    }
    let stack = stack.checked_add(stack_size).ok_or(Errno::EINVAL)?;
    begin(thread, &CloneRequest { flags, exit_signal, stack, parent_tid, child_tid, tls: word(7) })
}

/// `CLONE_*` that are understood, beside those without an effect here.
const KNOWN: u32 = linux::CLONE_VM
    | linux::CLONE_FS
    | linux::CLONE_FILES
    | linux::CLONE_SIGHAND
    | linux::CLONE_THREAD
    | linux::CLONE_VFORK
    | linux::CLONE_SETTLS
    | linux::CLONE_PARENT_SETTID
    | linux::CLONE_CHILD_SETTID
    | linux::CLONE_CHILD_CLEARTID
    | linux::CLONE_SYSVSEM
    | linux::CLONE_DETACHED;

/// `CLONE_CLEAR_SIGHAND`: the child handles no signal.
const CLEAR_HANDLERS: u64 = 1 << 32;

/// Begins a thread or a process.
pub(super) fn begin(thread: &mut Thread, asked: &CloneRequest) -> Answer {
    if asked.flags & !(u64::from(KNOWN) | CLEAR_HANDLERS) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if has(asked, linux::CLONE_THREAD) && !(has(asked, linux::CLONE_VM) && has(asked, linux::CLONE_SIGHAND)) {
        return Err(Errno::EINVAL.into());
    }
    thread.context.save();
    let mut context = thread.context.clone();
    context.set_syscall_result(0);
    if asked.stack != 0 {
        context.set_sp(VirtAddr::new(asked.stack));
    }
    if has(asked, linux::CLONE_SETTLS) {
        context.set_thread_pointer_unloaded(asked.tls);
    }
    let actions = actions(thread, asked);
    let (id, process, space) = record::ordered(|| bear(thread, asked, &actions))?;
    if has(asked, linux::CLONE_PARENT_SETTID) {
        let _ = thread.space.write_u32(asked.parent_tid, id.0);
    }
    let child_tid = |flag| if has(asked, flag) { asked.child_tid } else { VirtAddr::ZERO };
    let child = Box::new(Thread {
        id,
        born: id,
        process,
        context,
        space,
        files: shared(&thread.files, has(asked, linux::CLONE_FILES)),
        place: shared(&thread.place, has(asked, linux::CLONE_FS)),
        actions,
        blocked: thread.blocked,
        blocked_before: None,
        signal_stack: if has(asked, linux::CLONE_VM) { (0, 0) } else { thread.signal_stack },
        clear_at_exit: child_tid(linux::CLONE_CHILD_CLEARTID),
        set_at_start: child_tid(linux::CLONE_CHILD_SETTID),
        call: (0, 0),
        progress: 0,
        resume: None,
        deadline: None,
    });
    let mut state = self::state();
    state.make_ready(child);
    if has(asked, linux::CLONE_VFORK) {
        let late = u64::from(id.0);
        return Err(Stop::Sleep { state, wait: Wait::Vfork(id), deadline: None, late });
    }
    Ok(u64::from(id.0))
}

/// Gives a child its memory, its number and its process, and tells of it.
fn bear(
    thread: &Thread,
    asked: &CloneRequest,
    actions: &Arc<Mutex<Actions>>,
) -> Result<(Id, Id, Arc<SpaceHandle>), Errno> {
    let space = if has(asked, linux::CLONE_VM) {
        thread.space.clone()
    } else {
        Arc::new(SpaceHandle(mm().fork(&thread.space.0)?))
    };
    let mut state = state();
    let id = state.new_id();
    let process = enter_process(&mut state, thread, id, asked, &space, actions);
    state.threads.insert(id, Known { process, pending: Pending::default() });
    drop(state);
    let birth = match (has(asked, linux::CLONE_THREAD), has(asked, linux::CLONE_VM)) {
        (true, _) => "thread",
        (false, true) => "vfork",
        (false, false) => "fork",
    };
    record::event(format_args!("{birth} {:x}", id.0));
    Ok((id, process, space))
}

fn enter_process(
    state: &mut State,
    thread: &Thread,
    id: Id,
    asked: &CloneRequest,
    space: &Arc<SpaceHandle>,
    actions: &Arc<Mutex<Actions>>,
) -> Id {
    if has(asked, linux::CLONE_THREAD) {
        state.process(thread.process).threads += 1;
        return thread.process;
    }
    let parent = state.process(thread.process);
    let (group, path, limits) = (parent.group, parent.path.clone(), parent.limits.clone());
    let mut child = Process::new(id, thread.process, group, path, space, limits);
    child.vfork = has(asked, linux::CLONE_VFORK);
    child.actions = Arc::downgrade(actions);
    // One that is none is not sent (`do_notify_parent`).
    child.exit_signal =
        u8::try_from(asked.exit_signal).ok().filter(|signal| usize::from(*signal) <= SIGNALS).unwrap_or(0);
    state.processes.insert(id, child);
    id
}

/// The same, or a copy.
fn shared<T: Clone>(of_parent: &Arc<Mutex<T>>, share: bool) -> Arc<Mutex<T>> {
    if share {
        return of_parent.clone();
    }
    let copy = of_parent.lock().clone();
    Arc::new(Mutex::new(copy))
}

fn actions(thread: &Thread, asked: &CloneRequest) -> Arc<Mutex<Actions>> {
    if asked.flags & CLEAR_HANDLERS != 0 {
        let actions = thread.actions.lock();
        return Arc::new(Mutex::new(actions.for_new_program(actions.trampoline)));
    }
    shared(&thread.actions, has(asked, linux::CLONE_SIGHAND))
}

/// An array of strings, of which `room` is left for more.
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
///
/// Other threads of the process end first (`de_thread`); if it fails then, others may begin again.
pub(super) fn execve(thread: &mut Thread, a: Arguments) -> Answer {
    let answer = replace(thread, a);
    if let Err(Stop::Error(_)) = answer {
        state().process(thread.process).sole.take_if(|sole| *sole == thread.id);
    }
    answer
}

fn replace(thread: &mut Thread, a: Arguments) -> Answer {
    let path = thread.space.read_string(address(a[0]))?;
    let path = String::from_utf8_lossy(&path).into_owned();
    let path = match path.as_str() {
        "/proc/self/exe" => state().process(thread.process).path.clone(),
        path => tree::absolute(&thread.place.lock().directory, path),
    };
    let mut room = exec::STRINGS_MAX;
    let request = exec::Request {
        path,
        arguments: strings(thread, address(a[1]), &mut room)?,
        environment: strings(thread, address(a[2]), &mut room)?,
    };
    exec::look(&request)?;
    be_alone(thread)?;
    let limits = state().process(thread.process).limits.clone();
    let image = match exec::load(&request, &limits) {
        Ok(image) => image,
        Err(error) => {
            mm().tlb().switch_to(thread.space.0.table().context());
            return Err(error.into());
        }
    };
    thread.context = image.context;
    thread.context.load();
    let old = core::mem::replace(&mut thread.space, image.space);
    drop(old);
    let actions = thread.actions.lock().for_new_program(image.trampoline);
    thread.actions = Arc::new(Mutex::new(actions));
    thread.signal_stack = (0, 0);
    thread.clear_at_exit = VirtAddr::ZERO;
    let files = thread.files.lock().clone();
    thread.files = Arc::new(Mutex::new(files));
    let closed = thread.files.lock().take_close_on_exec();
    drop(closed);
    let mut state = state();
    let process = state.process(thread.process);
    (process.path, process.space) = (image.path, Arc::downgrade(&thread.space));
    process.actions = Arc::downgrade(&thread.actions);
    if thread.process != FIRST {
        process.exit_signal = SIGCHLD;
    }
    state.let_parent_go(thread.process);
    Err(Stop::Done)
}

/// Makes every other thread of the process end, and waits for that.
///
/// The one that stays gets the process's number.
fn be_alone(thread: &mut Thread) -> Result<(), Stop> {
    let mut state = state();
    let me = thread.id;
    let process = state.process(thread.process);
    if process.threads > 1 {
        if process.sole.is_some_and(|sole| sole != me) {
            // Another was first; this one ends on its way to user mode.
            return Err(Errno::EAGAIN.into());
        }
        process.sole = Some(me);
        let of = thread.process;
        state.wake(usize::MAX, Resume::Again, |other, _| other.process == of && other.id != me);
        return Err(Stop::Sleep { state, wait: Wait::Alone, deadline: None, late: 0 });
    }
    process.sole = None;
    if let Some(known) = state.threads.remove(&me) {
        state.threads.insert(thread.process, known);
    }
    thread.id = thread.process;
    Ok(())
}

impl State {
    /// A child that was begun by `vfork` needs its parent's memory no longer.
    fn let_parent_go(&mut self, child: Id) {
        if core::mem::take(&mut self.process(child).vfork) {
            let answer = Resume::Answer(u64::from(child.0));
            self.wake(usize::MAX, answer, |_, wait| wait == Wait::Vfork(child));
        }
    }

    fn end(&mut self, id: Id, end: End) {
        self.let_parent_go(id);
        let process = self.process(id);
        let (parent, signal) = (process.parent, process.exit_signal);
        process.ended = Some(end);
        let orphans = self.processes.iter_mut().filter(|(_, other)| other.parent == id);
        // Nobody chooses the signal that the first process gets.
        orphans.for_each(|(_, orphan)| (orphan.parent, orphan.exit_signal) = (FIRST, SIGCHLD));
        let forgotten = if signal == SIGCHLD { self.forgets_children(parent) } else { None };
        let parent_lives = self.processes.get(&parent).is_some_and(|parent| parent.ended.is_none());
        if signal != 0 && parent_lives && forgotten != Some(true) {
            self.post(parent, Info::of_end(signal, id, end));
        }
        if forgotten.is_some() {
            self.processes.remove(&id);
        }
        // Whoever polls a descriptor of the process looks again.
        self.wake_pipes();
        self.wake(usize::MAX, Resume::Again, |thread, wait| {
            wait == Wait::Child && (thread.process == parent || thread.process == FIRST)
        });
    }
}

/// Ends a thread that no CPU runs any more but this one.
pub(crate) fn end_thread(thread: Box<Thread>, end: End) {
    if thread.clear_at_exit > VirtAddr::ZERO && thread.space.write_u32(thread.clear_at_exit, 0).is_ok() {
        super::futex::wake(&thread, thread.clear_at_exit, 1);
    }
    let (id, process) = (thread.id, thread.process);
    let (last, end) = {
        let mut state = state();
        let known = state.process(process);
        known.leaving += 1;
        (known.leaving == known.threads, known.ending.unwrap_or(end))
    };
    tell_end(&thread, last, end);
    if process == FIRST && last {
        // The machine ends with its first process, whose memory is still there to be counted.
        let status = finish::judged(end);
        if record::is_on() {
            // A replay takes it apart, too.
            mm().tlb().leave_space();
            drop(thread);
        }
        finish::power_off(status);
    }
    mm().tlb().leave_space();
    // Descriptors are closed, and the space ended if it was the last thread's, before anybody hears
    // of the end.
    drop(thread);
    let mut state = state();
    state.threads.remove(&id);
    let known = state.process(process);
    known.threads -= 1;
    known.leaving -= 1;
    if known.threads > 0 {
        if known.threads == 1 && known.sole.is_some() {
            state.wake(1, Resume::Again, |other, wait| other.process == process && wait == Wait::Alone);
        }
        return;
    }
    let end = known.ending.unwrap_or(end);
    state.end(process, end);
}

/// Tells whoever records that a thread ends, and its process if it is the last.
fn tell_end(thread: &Thread, last: bool, end: End) {
    if record::is_on() {
        record::runs(thread);
        if last {
            record::event(format_args!("exit {:x}", end.status()));
        } else {
            record::event(format_args!("end"));
        }
    }
}

pub(super) fn wait4(thread: &mut Thread, a: Arguments) -> Answer {
    let wanted = a[0] as i32;
    let mut state = state();
    let me = thread.process;
    let group = state.process(me).group;
    let matches = |id: Id, child: &Process| {
        child.parent == me
            && match wanted {
                -1 => true,
                0 => child.group == group,
                1.. => id.0 == wanted as u32,
                _ => child.group.0 == wanted.unsigned_abs(),
            }
    };
    let mut children = state.processes.iter().filter(|(id, child)| **id != me && matches(**id, child)).peekable();
    if children.peek().is_none() {
        return Err(Errno::ECHILD.into());
    }
    let ended = children.find_map(|(id, child)| Some((*id, child.ended?)));
    let Some((id, end)) = ended else {
        if a[2] & u64::from(linux::WNOHANG) != 0 {
            return Ok(0);
        }
        return Err(Stop::Sleep { state, wait: Wait::Child, deadline: None, late: 0 });
    };
    state.processes.remove(&id);
    drop(state);
    record::event(format_args!("reaped {:x}", id.0));
    if a[1] != 0 {
        thread.space.write_u32(address(a[1]), end.wait_status())?;
    }
    if a[3] != 0 {
        // Nobody counts what children used.
        thread.space.write(address(a[3]), &[0; 144])?;
    }
    Ok(u64::from(id.0))
}
