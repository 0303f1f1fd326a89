//! The thread scheduler: which thread runs on which CPU next.
//!
//! It is a queue of thread numbers. It touches no machine, is given the clocks as numbers, and
//! returns the same turns for the same calls and the same seed. The replayer gets a turn from
//! [`Scheduler::next`], runs the thread on that CPU until [`Turn::until`], and then calls
//! [`Scheduler::put_back`], [`Scheduler::block`] or [`Scheduler::exit`].
//!
//! The rule: of all CPUs with a thread to run, the one whose next turn starts earliest is next. At
//! equal times, a CPU whose thread ran there before comes first, and then the seed decides. A CPU
//! keeps its thread while the slice lasts. Then it takes the thread that has waited longest among
//! those that it may run; at equal waits, a thread that ran there before comes first.
//!
//! Not modelled: priorities, load balancing by anything but time, and the cost of the decision.

use crate::time::Picos;
use pagewright_types::{CpuId, CpuMask};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The number of a thread, which the replayer chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(u32);

impl ThreadId {
    /// The thread with number `raw`.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The number.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// One turn of a thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The CPU.
    pub cpu: CpuId,
    /// The thread.
    pub thread: ThreadId,
    /// When the turn starts: at the clock of the CPU, or when the thread becomes ready, if later.
    pub start: Picos,
    /// When the turn ends.
    ///
    /// It ends with the slice, or before the CPU runs too far ahead of the others.
    pub until: Picos,
    /// Whether the CPU ran another thread before, or none.
    pub switched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has waited for a CPU since this moment.
    Ready(Picos),
    /// It has a CPU, on which its slice ends at this moment.
    Running(CpuId, Picos),
    /// It waits for something other than a CPU.
    Blocked,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    id: ThreadId,
    state: State,
    affinity: CpuMask,
    last: Option<CpuId>,
}

/// The threads of one machine.
#[derive(Clone, Debug)]
pub struct Scheduler {
    threads: Vec<Thread>,
    /// The thread that ran last on each CPU.
    last_on: Vec<Option<ThreadId>>,
    slice: Picos,
    lookahead: Picos,
    random: Pcg64,
    /// For each CPU, the index in `threads` of the thread that runs there.
    ///
    /// Each [`Scheduler::next`] rebuilds it; it is kept to reuse its memory.
    running: Vec<Option<usize>>,
    /// Likewise, the indices of the threads that wait for a CPU.
    ready: Vec<usize>,
}

impl Scheduler {
    /// Makes a scheduler for `cpus` CPUs without threads, with slices of `slice`.
    ///
    /// No turn lasts longer than `lookahead`, so that no CPU runs further ahead of another CPU with
    /// work. A smaller value orders the effects of CPUs on each other more precisely.
    pub fn new(cpus: u16, slice: Picos, lookahead: Picos, seed: u64) -> Self {
        let random = Pcg64::seed_from_u64(seed);
        let (last_on, running) = (vec![None; usize::from(cpus)], vec![None; usize::from(cpus)]);
        Self { threads: Vec::new(), last_on, slice, lookahead, random, running, ready: Vec::new() }
    }

    /// Adds a thread that may run from `ready` on, on the CPUs of `affinity`.
    ///
    /// # Panics
    /// When the thread exists, or `affinity` has no CPU of the machine.
    pub fn add(&mut self, id: ThreadId, affinity: CpuMask, ready: Picos) {
        assert!(self.threads.iter().all(|thread| thread.id != id), "thread {} exists already", id.raw());
        let usable = affinity.iter().any(|cpu| cpu.index() < self.last_on.len());
        assert!(usable, "thread {} may run on no CPU of this machine", id.raw());
        self.threads.push(Thread { id, state: State::Ready(ready), affinity, last: None });
    }

    /// Removes a thread that has ended.
    pub fn exit(&mut self, id: ThreadId) {
        self.threads.retain(|thread| thread.id != id);
    }

    /// Whether there are no threads.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// The CPUs that run no thread.
    pub fn idle_cpus(&self) -> impl Iterator<Item = CpuId> {
        let runs =
            |cpu: CpuId| self.threads.iter().any(|thread| matches!(thread.state, State::Running(on, _) if on == cpu));
        (0..self.last_on.len()).map(|cpu| CpuId::new(cpu as u16)).filter(move |cpu| !runs(*cpu))
    }

    /// Blocks the thread until [`Scheduler::wake`].
    ///
    /// # Panics
    /// When there is no such thread.
    pub fn block(&mut self, id: ThreadId) {
        self.thread(id).state = State::Blocked;
    }

    /// Wakes a blocked thread, which becomes ready at `at`; does nothing if it is not blocked.
    ///
    /// # Panics
    /// When there is no such thread.
    pub fn wake(&mut self, id: ThreadId, at: Picos) {
        let thread = self.thread(id);
        if thread.state == State::Blocked {
            thread.state = State::Ready(at);
        }
    }

    /// Puts the thread back at `now`, when it can go on.
    ///
    /// It keeps its CPU while the slice lasts, and otherwise becomes ready.
    ///
    /// # Panics
    /// When there is no such thread.
    pub fn put_back(&mut self, id: ThreadId, now: Picos) {
        let thread = self.thread(id);
        if let State::Running(_, slice_end) = thread.state
            && slice_end <= now
        {
            thread.state = State::Ready(now);
        }
    }

    /// Gives up the rest of the slice of the thread at `now` (`sched_yield`).
    ///
    /// # Panics
    /// When there is no such thread.
    pub fn yield_now(&mut self, id: ThreadId, now: Picos) {
        self.thread(id).state = State::Ready(now);
    }

    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        match self.threads.iter_mut().find(|thread| thread.id == id) {
            Some(thread) => thread,
            None => panic!("no thread {}", id.raw()),
        }
    }

    /// The next turn, given the clock of each CPU, or `None` when every thread is blocked.
    pub fn next(&mut self, clock: impl Fn(CpuId) -> Picos) -> Option<Turn> {
        self.sort_by_state();
        let mut best: Option<((Picos, bool), CpuId, usize)> = None;
        let mut equals = 0;
        for cpu in (0..self.last_on.len()).map(|cpu| CpuId::new(cpu as u16)) {
            let Some((start, index)) = self.candidate(cpu, clock(cpu)) else { continue };
            // At equal times a thread stays on the CPU that caches its translations.
            let rank = (start, self.threads[index].last != Some(cpu));
            match best.map(|(first, _, _)| rank.cmp(&first)) {
                Some(std::cmp::Ordering::Greater) => continue,
                Some(std::cmp::Ordering::Equal) => {
                    // Each of n equal candidates is chosen with probability 1/n.
                    equals += 1;
                    if !self.random.next_u64().is_multiple_of(equals) {
                        continue;
                    }
                }
                Some(std::cmp::Ordering::Less) | None => equals = 1,
            }
            best = Some((rank, cpu, index));
        }
        best.map(|((start, _), cpu, index)| self.start(cpu, index, start))
    }

    /// Sorts all threads by state in one pass, so that a CPU without a thread costs little.
    fn sort_by_state(&mut self) {
        self.running.fill(None);
        self.ready.clear();
        for (index, thread) in self.threads.iter().enumerate() {
            match thread.state {
                State::Running(cpu, _) => self.running[cpu.index()] = Some(index),
                State::Ready(_) => self.ready.push(index),
                State::Blocked => {}
            }
        }
    }

    /// The thread that `cpu` would run next, and when.
    fn candidate(&self, cpu: CpuId, now: Picos) -> Option<(Picos, usize)> {
        if let Some(index) = self.running[cpu.index()] {
            return Some((now, index));
        }
        let ready = self.ready.iter().filter_map(|&index| match self.threads[index] {
            Thread { state: State::Ready(since), affinity, last, .. } if affinity.contains(cpu) => {
                Some(((since.max(now), since, last != Some(cpu)), index))
            }
            Thread { .. } => None,
        });
        ready.min().map(|((start, _, _), index)| (start, index))
    }

    fn start(&mut self, cpu: CpuId, index: usize, start: Picos) -> Turn {
        let thread = &mut self.threads[index];
        let slice_end = match thread.state {
            State::Running(_, end) => end,
            State::Ready(_) | State::Blocked => start + self.slice,
        };
        thread.state = State::Running(cpu, slice_end);
        thread.last = Some(cpu);
        let switched = self.last_on[cpu.index()].replace(thread.id) != Some(thread.id);
        let until = slice_end.min(start + self.lookahead);
        Turn { cpu, thread: thread.id, start, until, switched }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Picos = Picos::new(100);
    const LOOKAHEAD: Picos = Picos::new(30);

    /// Runs `threads` threads to the end of their work on `cpus` CPUs, and returns all turns.
    fn run(cpus: u16, threads: u32, seed: u64) -> Vec<Turn> {
        let mut sched = Scheduler::new(cpus, SLICE, LOOKAHEAD, seed);
        let mut clocks = vec![Picos::ZERO; usize::from(cpus)];
        let mut left = vec![Picos::new(1000); threads as usize];
        for id in 0..threads {
            sched.add(ThreadId::new(id), CpuMask::first(usize::from(cpus)), Picos::ZERO);
        }
        let mut turns = Vec::new();
        while let Some(turn) = sched.next(|cpu| clocks[cpu.index()]) {
            let left = &mut left[turn.thread.raw() as usize];
            let step = turn.until.since(turn.start).min(*left);
            assert!(step <= LOOKAHEAD);
            *left = *left - step;
            let now = turn.start + step;
            clocks[turn.cpu.index()] = now;
            if *left == Picos::ZERO {
                sched.exit(turn.thread);
            } else {
                sched.put_back(turn.thread, now);
            }
            turns.push(turn);
        }
        assert!(sched.is_empty());
        turns
    }

    #[test]
    fn the_same_seed_gives_the_same_turns_and_another_seed_others() {
        assert_eq!(run(4, 9, 7), run(4, 9, 7));
        assert_ne!(run(4, 9, 7), run(4, 9, 8));
    }

    #[test]
    fn a_thread_keeps_its_cpu_for_one_slice_while_others_wait() {
        let turns = run(1, 2, 0);
        let mut previous: Option<Turn> = None;
        for turn in &turns {
            assert_eq!(turn.switched, previous.is_none_or(|previous| previous.thread != turn.thread));
            assert!(turn.start < turn.until);
            previous = Some(*turn);
        }
        let switches = turns.iter().filter(|turn| turn.switched).count();
        assert_eq!(switches, 20, "each has 1000 of work, in slices of 100");
    }

    #[test]
    fn no_cpu_idles_while_a_thread_waits() {
        let turns = run(3, 3, 1);
        for cpu in 0..3 {
            let here: Vec<_> = turns.iter().filter(|turn| turn.cpu == CpuId::new(cpu)).collect();
            assert!(
                !here.is_empty() && here.iter().all(|turn| turn.thread == here[0].thread),
                "each CPU runs one thread only"
            );
        }
    }

    #[test]
    fn affinity_and_ready_times_are_respected() {
        let mut sched = Scheduler::new(2, SLICE, LOOKAHEAD, 0);
        sched.add(ThreadId::new(5), CpuMask::of(CpuId::new(1)), Picos::new(40));
        let turn = sched.next(|_| Picos::ZERO).expect("one is ready");
        assert_eq!((turn.cpu, turn.start, turn.until), (CpuId::new(1), Picos::new(40), Picos::new(70)));
        sched.block(turn.thread);
        assert_eq!(sched.next(|_| Picos::ZERO), None);
        sched.wake(turn.thread, Picos::new(500));
        let again = sched.next(|_| Picos::new(60)).expect("woken");
        assert_eq!((again.start, again.switched), (Picos::new(500), false));
    }
}
