//! Which thread runs where next.
//!
//! A pure queue over opaque thread numbers: it knows clocks only as numbers it is shown, touches no
//! machine, and gives the same answers for the same questions and the same seed. The replayer asks
//! [`Scheduler::next`] for a turn, lets the thread run on that CPU until [`Turn::until`] and says
//! with [`Scheduler::put_back`], [`Scheduler::block`] or [`Scheduler::exit`] what became of it.
//!
//! Rule: of all CPUs that have something to run, the one whose next turn would start earliest goes;
//! among equals one whose thread ran there before, and then the seed decides. A CPU goes on with
//! its thread while the slice lasts; then it takes the thread that has waited longest among those
//! it may run, at equal waits one that ran here before.
//!
//! Not modelled: priorities, load balancing by anything but time, and the cost of the decision.

use crate::time::Picos;
use pagewright_types::{CpuId, CpuMask};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A thread, as the replayer numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(u32);

impl ThreadId {
    /// Thread `raw`.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The number.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// A thread gets a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where.
    pub cpu: CpuId,
    /// Who.
    pub thread: ThreadId,
    /// When it starts: the CPU's clock, or later when the thread became ready later.
    pub start: Picos,
    /// When to ask again: at the end of the slice, or before the CPU runs too far ahead of the
    /// others.
    pub until: Picos,
    /// Whether the CPU ran another thread before, or none.
    pub switched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a CPU since this moment.
    Ready(Picos),
    /// Has a CPU, on which its slice ends then.
    Running(CpuId, Picos),
    /// Waits for something else.
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
    /// Who ran last on each CPU.
    last_on: Vec<Option<ThreadId>>,
    slice: Picos,
    lookahead: Picos,
    random: Pcg64,
    /// Rebuilt by each [`Scheduler::next`], kept for its memory: by CPU, the place in `threads` of
    /// who runs there.
    running: Vec<Option<usize>>,
    /// Likewise, the places of those who wait for a CPU.
    ready: Vec<usize>,
}

impl Scheduler {
    /// No threads on `cpus` CPUs that share time in slices of `slice`.
    ///
    /// No turn lasts longer than `lookahead`, so that no CPU runs further than that ahead of
    /// another that has work: the finer, the truer the order of what CPUs do to each other.
    pub fn new(cpus: u16, slice: Picos, lookahead: Picos, seed: u64) -> Self {
        let random = Pcg64::seed_from_u64(seed);
        let (last_on, running) = (vec![None; usize::from(cpus)], vec![None; usize::from(cpus)]);
        Self { threads: Vec::new(), last_on, slice, lookahead, random, running, ready: Vec::new() }
    }

    /// Adds a thread that may run from `ready` on, on the CPUs of `affinity`.
    ///
    /// # Panics
    /// When the thread is there already, or no CPU of the machine may run it.
    pub fn add(&mut self, id: ThreadId, affinity: CpuMask, ready: Picos) {
        assert!(self.threads.iter().all(|thread| thread.id != id), "thread {} is there already", id.raw());
        let usable = affinity.iter().any(|cpu| cpu.index() < self.last_on.len());
        assert!(usable, "thread {} may run on no CPU of this machine", id.raw());
        self.threads.push(Thread { id, state: State::Ready(ready), affinity, last: None });
    }

    /// Takes a thread away for good.
    pub fn exit(&mut self, id: ThreadId) {
        self.threads.retain(|thread| thread.id != id);
    }

    /// Whether there are no threads at all.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// The CPUs on which no thread is.
    pub fn idle_cpus(&self) -> impl Iterator<Item = CpuId> {
        let runs =
            |cpu: CpuId| self.threads.iter().any(|thread| matches!(thread.state, State::Running(on, _) if on == cpu));
        (0..self.last_on.len()).map(|cpu| CpuId::new(cpu as u16)).filter(move |cpu| !runs(*cpu))
    }

    /// The thread waits for something else than a CPU.
    pub fn block(&mut self, id: ThreadId) {
        self.thread(id).state = State::Blocked;
    }

    /// What a blocked thread waited for happened at `at`.
    pub fn wake(&mut self, id: ThreadId, at: Picos) {
        let thread = self.thread(id);
        if thread.state == State::Blocked {
            thread.state = State::Ready(at);
        }
    }

    /// The thread stopped at `now`, in the middle of its slice or at its end, and could go on.
    ///
    /// It keeps its CPU while the slice lasts.
    pub fn put_back(&mut self, id: ThreadId, now: Picos) {
        let thread = self.thread(id);
        if let State::Running(_, slice_end) = thread.state
            && slice_end <= now
        {
            thread.state = State::Ready(now);
        }
    }

    /// Gives up the rest of the slice at `now` (`sched_yield`).
    pub fn yield_now(&mut self, id: ThreadId, now: Picos) {
        self.thread(id).state = State::Ready(now);
    }

    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        match self.threads.iter_mut().find(|thread| thread.id == id) {
            Some(thread) => thread,
            None => panic!("no thread {}", id.raw()),
        }
    }

    /// The next turn, given each CPU's clock, or `None` when every thread is blocked.
    pub fn next(&mut self, clock: impl Fn(CpuId) -> Picos) -> Option<Turn> {
        self.sort_by_state();
        let mut best: Option<((Picos, bool), CpuId, usize)> = None;
        let mut equals = 0;
        for cpu in (0..self.last_on.len()).map(|cpu| CpuId::new(cpu as u16)) {
            let Some((start, index)) = self.candidate(cpu, clock(cpu)) else { continue };
            // At equal times a thread stays where its translations are.
            let rank = (start, self.threads[index].last != Some(cpu));
            match best.map(|(first, _, _)| rank.cmp(&first)) {
                Some(std::cmp::Ordering::Greater) => continue,
                Some(std::cmp::Ordering::Equal) => {
                    // Each of n equals ends up chosen with probability 1/n.
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

    /// Looks at each thread once, so that a CPU that has nobody costs next to nothing.
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

    /// Which thread `cpu` would run next, and when.
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

    /// Runs `threads` threads to the end of their work on `cpus` CPUs and returns all turns.
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
    fn a_thread_keeps_its_cpu_for_its_slice_and_no_longer_when_others_wait() {
        let turns = run(1, 2, 0);
        let mut previous: Option<Turn> = None;
        for turn in &turns {
            assert_eq!(turn.switched, previous.is_none_or(|previous| previous.thread != turn.thread));
            assert!(turn.start < turn.until);
            previous = Some(*turn);
        }
        let switches = turns.iter().filter(|turn| turn.switched).count();
        assert_eq!(switches, 20, "1000 of work each, in slices of 100");
    }

    #[test]
    fn no_cpu_idles_while_a_thread_waits() {
        let turns = run(3, 3, 1);
        for cpu in 0..3 {
            let here: Vec<_> = turns.iter().filter(|turn| turn.cpu == CpuId::new(cpu)).collect();
            assert!(!here.is_empty() && here.iter().all(|turn| turn.thread == here[0].thread), "each has its own");
        }
    }

    #[test]
    fn affinity_and_ready_times_are_kept() {
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
