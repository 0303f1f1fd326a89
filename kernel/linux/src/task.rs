//! Threads and processes: who is ready, who sleeps and on what.
//!
//! A [`Thread`] is owned by the CPU that runs it, by the queue of those that are ready, or by the
//! sleepers. What others may want to know of it while it runs – its process, signals – is in
//! [`State`], under one lock.
//!
//! Protocol of sleeping: a call decides under the lock that it must wait and hands the lock back
//! with its answer ([`Stop::Sleep`]); the CPU puts the thread among the sleepers before it lets go.
//! So a waker either comes before the decision or finds the sleeper. Signals, and the end of the
//! process, may have come while the thread was running, when there was nobody to wake: who has one
//! to look at does not sleep ([`State::put_to_sleep`]).
//!
//! Not guaranteed: fairness between processes, priorities, affinity. There is one queue.

use crate::errno::Errno;
use crate::file::{Files, Open, Place};
use crate::limits::Limits;
use crate::memory::SpaceHandle;
use crate::signal::{Actions, Pending, SignalSet};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use pagewright_hal::UserContext;
use pagewright_types::{CpuMask, SpaceId, VirtAddr};
use spin::{Mutex, MutexGuard};

/// A thread, or the process whose first thread has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u32);

/// The first process; the machine lives as long as it does.
pub(crate) const FIRST: Id = Id(1);

/// How a process ended, as `wait4` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It said so, with a status.
    Exit(u8),
    /// A signal killed it.
    Signal(u8),
}

impl End {
    /// The word that `wait4` stores.
    pub(crate) fn wait_status(self) -> u32 {
        match self {
            Self::Exit(status) => u32::from(status) << 8,
            Self::Signal(signal) => u32::from(signal),
        }
    }

    /// What a shell calls it.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Exit(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// What a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A word of memory, as one of the kinds in a set (`FUTEX_WAIT_BITSET`).
    Futex(FutexKey, u32),
    /// A child that changes.
    Child,
    /// Some pipe.
    Pipe,
    /// Some descriptor, or a deadline.
    Poll,
    /// A child that was begun by `vfork` to have a space of its own, or to end.
    Vfork(Id),
    /// Its deadline.
    Time,
    /// A signal.
    Signal,
    /// The end of the other threads of its process.
    Alone,
}

impl Wait {
    /// Whether signals end it; the end of the process ends each (`TASK_INTERRUPTIBLE`,
    /// `TASK_KILLABLE`).
    pub(crate) fn is_interruptible(self) -> bool {
        match self {
            Self::Futex(..) | Self::Child | Self::Pipe | Self::Poll | Self::Time | Self::Signal => true,
            Self::Vfork(_) | Self::Alone => false,
        }
    }

    /// Whether a call that a signal ended is made again behind a handler that asks for it
    /// (`ERESTARTSYS`); a call that waits for a time or a signal never is (`ERESTART_RESTARTBLOCK`,
    /// `ERESTARTNOHAND`).
    fn restarts(self, deadline: Option<u64>) -> bool {
        match self {
            Self::Futex(..) => deadline.is_none(),
            Self::Child | Self::Pipe | Self::Vfork(_) | Self::Alone => true,
            Self::Poll | Self::Time | Self::Signal => false,
        }
    }
}

/// A word of memory, the same for all who share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FutexKey {
    /// Of one address space.
    Private(SpaceId, VirtAddr),
    /// Of a file or shared memory: byte offset.
    Shared(pagewright_types::FileId, u64),
}

/// How a sleeper goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// It looks again: its call is served anew.
    Again,
    /// The call answers this.
    Answer(u64),
    /// There is a signal to look at, and the call would still wait: it fails, or is made again
    /// behind the handler if that and the call say so.
    Interrupted { restarts: bool },
}

/// Why a system call does not answer at once with a value.
pub(crate) enum Stop {
    /// It fails.
    Error(Errno),
    /// It must wait; the lock under which that was decided comes along.
    Sleep {
        state: Guard,
        wait: Wait,
        /// In ns since boot; then the call answers `late`.
        deadline: Option<u64>,
        late: u64,
    },
    /// Others go first; then it answers the value.
    Yield(u64),
    /// The registers are as they shall be.
    Done,
    /// The thread ends.
    Exit(End),
    /// The process ends.
    ExitProcess(End),
}

impl<E: Into<Errno>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// What a system call answers.
pub(crate) type Answer = Result<u64, Stop>;
/// The lock on [`State`], taken.
pub(crate) type Guard = MutexGuard<'static, State>;

/// One thread.
pub(crate) struct Thread {
    pub(crate) id: Id,
    /// The number that it was born with, by which a recording knows it: `execve` gives a thread its
    /// process's.
    pub(crate) born: Id,
    pub(crate) process: Id,
    pub(crate) context: UserContext,
    pub(crate) space: Arc<SpaceHandle>,
    pub(crate) files: Arc<Mutex<Files>>,
    pub(crate) place: Arc<Mutex<Place>>,
    pub(crate) actions: Arc<Mutex<Actions>>,
    /// Signals that it does not want now.
    pub(crate) blocked: SignalSet,
    /// What `rt_sigsuspend` will put back.
    pub(crate) blocked_before: Option<SignalSet>,
    /// The stack on which handlers run if they ask for it: start and length.
    pub(crate) signal_stack: (u64, u64),
    /// Word that is cleared, and on which one sleeper is woken, when the thread ends.
    pub(crate) clear_at_exit: VirtAddr,
    /// Word that gets the thread's number before it first runs.
    pub(crate) set_at_start: VirtAddr,
    /// The call under way: its number and first argument.
    pub(crate) call: (u64, u64),
    /// Bytes that the call under way has moved before it slept.
    pub(crate) progress: usize,
    /// How it goes on after it slept.
    pub(crate) resume: Option<Resume>,
    /// Until when the call under way waits, once it has begun to.
    pub(crate) deadline: Option<u64>,
}

impl Thread {
    /// What a descriptor is open on.
    pub(crate) fn open_file(&self, number: u64) -> Result<Arc<Open>, Errno> {
        Ok(self.files.lock().get(number)?.open.clone())
    }
}

struct Sleeper {
    thread: Box<Thread>,
    wait: Wait,
    deadline: Option<u64>,
    late: u64,
}

/// What others know of a process.
pub(crate) struct Process {
    pub(crate) parent: Id,
    pub(crate) group: Id,
    /// The program's file.
    pub(crate) path: String,
    /// Its memory; its threads have it.
    pub(crate) space: Weak<SpaceHandle>,
    pub(crate) limits: Limits,
    pub(crate) threads: u32,
    /// Those of them that have begun to end.
    pub(crate) leaving: u32,
    /// The thread that is to be its only one, for `execve`.
    pub(crate) sole: Option<Id>,
    /// Set when all of its threads shall end.
    pub(crate) ending: Option<End>,
    /// Set when the last has.
    pub(crate) ended: Option<End>,
    /// The parent sleeps until this has a space of its own.
    pub(crate) vfork: bool,
    pub(crate) pending: Pending,
    /// What it does about signals; its threads have them.
    pub(crate) actions: Weak<Mutex<Actions>>,
    /// The signal that its end sends to its parent, or 0.
    pub(crate) exit_signal: u8,
}

impl Process {
    /// The program's name, as `ps` shows it.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// A process of one thread.
    pub(crate) fn new(id: Id, parent: Id, group: Id, path: String, space: &Arc<SpaceHandle>, limits: Limits) -> Self {
        let signal = if id == FIRST { 0 } else { crate::signal::SIGCHLD };
        Self {
            parent,
            group,
            path,
            space: Arc::downgrade(space),
            limits,
            threads: 1,
            leaving: 0,
            sole: None,
            ending: None,
            ended: None,
            vfork: false,
            pending: Pending::default(),
            actions: Weak::new(),
            exit_signal: signal,
        }
    }
}

/// What others know of a thread.
pub(crate) struct Known {
    pub(crate) process: Id,
    /// Signals for it alone.
    pub(crate) pending: Pending,
}

/// Everything about threads that several CPUs may want.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) processes: BTreeMap<Id, Process>,
    /// Threads that have not ended.
    pub(crate) threads: BTreeMap<Id, Known>,
    ready: VecDeque<Box<Thread>>,
    asleep: BTreeMap<Id, Sleeper>,
    /// CPUs that sleep.
    idle: CpuMask,
    last: u32,
}

static STATE: Mutex<State> = Mutex::new(State {
    processes: BTreeMap::new(),
    threads: BTreeMap::new(),
    ready: VecDeque::new(),
    asleep: BTreeMap::new(),
    idle: CpuMask::EMPTY,
    last: 0,
});

/// The one lock.
pub(crate) fn state() -> Guard {
    STATE.lock()
}

impl State {
    /// A number that nobody has had.
    pub(crate) fn new_id(&mut self) -> Id {
        self.last += 1;
        Id(self.last)
    }

    /// Puts a thread at the end of the queue, and wakes a CPU for it.
    pub(crate) fn make_ready(&mut self, thread: Box<Thread>) {
        self.ready.push_back(thread);
        let sleeping = self.idle.iter().next();
        if let Some(cpu) = sleeping {
            self.idle.remove(cpu);
            pagewright_hal::kick(cpu);
        }
    }

    /// The thread that has waited longest.
    pub(crate) fn next_ready(&mut self) -> Option<Box<Thread>> {
        self.ready.pop_front()
    }

    /// Whether somebody waits for a CPU.
    pub(crate) fn is_anybody_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The running CPU has nothing to do, or has again.
    pub(crate) fn set_idle(&mut self, idle: bool) {
        let me = pagewright_hal::this_cpu();
        if idle {
            self.idle.insert(me);
        } else {
            self.idle.remove(me);
        }
    }

    /// Lets a thread sleep, unless it has something to look at first (`signal_pending_state` in
    /// `schedule`).
    pub(crate) fn put_to_sleep(&mut self, mut thread: Box<Thread>, wait: Wait, deadline: Option<u64>, late: u64) {
        if self.must_end(&thread).is_some() || wait.is_interruptible() && self.is_interrupted(&thread) {
            thread.resume = Some(Resume::Interrupted { restarts: wait.restarts(deadline) });
            self.make_ready(thread);
        } else {
            self.asleep.insert(thread.id, Sleeper { thread, wait, deadline, late });
        }
    }

    /// Wakes up to `most` of those sleepers that `which` picks; returns how many.
    pub(crate) fn wake(&mut self, most: usize, resume: Resume, mut which: impl FnMut(&Thread, Wait) -> bool) -> usize {
        let picked = self.asleep.iter().filter(|(_, sleeper)| which(&sleeper.thread, sleeper.wait));
        let picked: alloc::vec::Vec<Id> = picked.map(|(id, _)| *id).take(most).collect();
        for id in &picked {
            self.wake_one(*id, resume);
        }
        picked.len()
    }

    /// Lets one sleeper that `which` picks look at a signal; one that waits for none but the end of
    /// another thread is not disturbed.
    ///
    /// It looks first whether what it waits for has come, as in Linux: who waits for a child is
    /// told of it although `SIGCHLD` came along.
    pub(crate) fn interrupt(&mut self, which: impl Fn(&Thread) -> bool) {
        self.wake(1, Resume::Again, |thread, wait| wait.is_interruptible() && which(thread));
    }

    fn wake_one(&mut self, id: Id, resume: Resume) {
        if let Some(mut sleeper) = self.asleep.remove(&id) {
            sleeper.thread.resume = Some(resume);
            self.make_ready(sleeper.thread);
        }
    }

    /// Makes up to `most` sleepers on one word sleep on another (`FUTEX_REQUEUE`); returns how
    /// many.
    pub(crate) fn move_sleepers(&mut self, from: FutexKey, to: FutexKey, most: usize) -> usize {
        let mut moved = 0;
        for sleeper in self.asleep.values_mut() {
            if let Wait::Futex(key, _) = &mut sleeper.wait
                && *key == from
                && moved < most
            {
                *key = to;
                moved += 1;
            }
        }
        moved
    }

    /// Wakes those whose time has come.
    pub(crate) fn wake_late(&mut self, now: u64) {
        let late = self.asleep.iter().filter(|(_, sleeper)| sleeper.deadline.is_some_and(|deadline| deadline <= now));
        // Who polls has to say of each descriptor that there is nothing.
        let resume =
            |sleeper: &Sleeper| if sleeper.wait == Wait::Poll { Resume::Again } else { Resume::Answer(sleeper.late) };
        let late: alloc::vec::Vec<(Id, Resume)> = late.map(|(id, sleeper)| (*id, resume(sleeper))).collect();
        for (id, resume) in late {
            self.wake_one(id, resume);
        }
    }

    /// Wakes everybody who waits for a pipe; each looks again.
    pub(crate) fn wake_pipes(&mut self) {
        self.wake(usize::MAX, Resume::Again, |_, wait| matches!(wait, Wait::Pipe | Wait::Poll));
    }

    /// The process of this number.
    ///
    /// # Panics
    /// When it has been reaped; who runs in it knows that it has not.
    pub(crate) fn process(&mut self, id: Id) -> &mut Process {
        match self.processes.get_mut(&id) {
            Some(process) => process,
            None => panic!("process {} is gone", id.0),
        }
    }

    /// Makes every thread of a process end.
    pub(crate) fn end_process(&mut self, id: Id, end: End) {
        let process = self.process(id);
        if process.ending.is_none() {
            process.ending = Some(end);
        }
        self.wake(usize::MAX, Resume::Again, |thread, _| thread.process == id);
        // Those that run on other CPUs look when they are interrupted, at the latest by their next
        // tick.
    }
}

/// Whether somebody waits for a CPU, as far as can be told without waiting: interrupts may be
/// closed, and whoever has the lock may wait for this CPU.
pub(crate) fn may_be_ready() -> bool {
    STATE.try_lock().is_none_or(|state| state.is_anybody_ready())
}
