//! The OOM killer: which process ends when no memory is left (`mm/oom_kill.c`).
//!
//! [`pagewright_mm::oom`] says how much each process counts, and chooses (INV-MM-OOM). The thread
//! that met the lack of memory leaves its CPU and makes its access again. No other process is
//! killed while one still ends, or when its end has freed memory.
//!
//! **INV-KERNEL-OOM** When memory runs out, a process is killed only if no other process that may
//! be killed has a higher score. The first process is not killed while there is another that may
//! be. All processes that use the space of the killed one end with it, but the first.
//!
//! Not guaranteed: help for a call of the kernel that needs memory. It fails with `ENOMEM`.

use crate::memory::mm;
use crate::process::{ExitStatus, Process};
use crate::report;
use crate::signal::SIGKILL;
use crate::task::{CallStop, INIT, Scheduler, TaskId, Thread, scheduler};
use pagewright_mm::counters::RssKind;
use pagewright_mm::oom::select_bad_process;
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;

/// Kills a process, unless one that was killed still ends, and lets the thread try again.
///
/// If no process may be killed, the one of the thread is, where Linux panics.
pub(crate) fn out_of_memory(thread: &Thread) -> CallStop {
    let mut scheduler = scheduler();
    // A process that was killed may have ended since (`ALLOC_WMARK_HIGH` in
    // `__alloc_pages_may_oom`).
    if mm().tlb().frames().zones().any(|zone| zone.free() >= zone.watermarks().high) {
        return again();
    }
    // Its space is gone from here before its frames are free.
    if scheduler.processes.values().any(|process| process.group_exit.is_some() && process.exit_status.is_none()) {
        return again();
    }
    // In the order of their ids, the oldest first. One that has ended uses no memory any more, even
    // if another process still uses its space (`find_lock_task_mm`).
    let alive = scheduler.processes.iter().filter(|(_, process)| process.exit_status.is_none());
    let candidates = alive.filter_map(|(id, process)| {
        let space = process.space.upgrade()?;
        let unkillable = plant!(OomInitKilled; false, *id == INIT);
        let badness = mm().oom_badness(&space.0, process.oom_score_adj)?;
        (!unkillable).then_some((badness, *id))
    });
    let victim = select_bad_process(candidates).unwrap_or(thread.process);
    let name = scheduler.name_of(victim);
    let process = scheduler.process(victim);
    let (shared, adjustment) = (process.space.clone(), process.oom_score_adj);
    let space = shared.upgrade();
    let user = process.credentials.user.real;
    // Its memory is free when all that use its space have ended (`__oom_kill_process`).
    let ends = |(id, other): &(&TaskId, &Process)| {
        other.exit_status.is_none() && other.space.ptr_eq(&shared) && (**id != INIT || victim == INIT)
    };
    let next = |scheduler: &Scheduler, at| scheduler.processes.range(at..).find(ends).map(|(id, _)| *id);
    let mut at = TaskId(0);
    while let Some(id) = next(&scheduler, at) {
        scheduler.end_process(id, ExitStatus::Signal(SIGKILL));
        at = TaskId(id.0 + 1);
    }
    drop(scheduler);
    if let Some(space) = space {
        let kib = |kind| space.0.rss().of(kind) * PAGE_SIZE / 1024;
        report::say(format_args!(
            "Out of memory: Killed process {} ({name}) total-vm:{}kB, anon-rss:{}kB, file-rss:{}kB, shmem-rss:{}kB, \
             UID:{user} pgtables:{}kB oom_score_adj:{adjustment}",
            victim.0,
            space.0.map().read().bytes() / 1024,
            kib(RssKind::Anon),
            kib(RssKind::File),
            kib(RssKind::Shmem),
            space.0.table().bytes() / 1024,
        ));
    }
    again()
}

/// The thread leaves its CPU; its registers are those of the access.
fn again() -> CallStop {
    CallStop::Done
}
