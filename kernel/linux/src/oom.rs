//! The OOM killer: which process ends when no memory is left (`mm/oom_kill.c`).
//!
//! The process with the most pages, page tables and swap slots is killed, its score moved by
//! `oom_score_adj` as a share of all memory; of those with the same score, the newest. The thread
//! that met the lack of memory leaves its CPU and makes its access again. No other process is
//! killed while one still ends, or when its end has freed memory.
//!
//! INV-KERNEL-OOM: a process is killed only if no other one that may be killed has a higher score.
//! The first process is not killed while there is another that may be.
//!
//! Not guaranteed: help for a call of the kernel that needs memory. It fails with `ENOMEM`.

use crate::memory::mm;
use crate::process::ExitStatus;
use crate::report;
use crate::signal::SIGKILL;
use crate::task::{CallStop, INIT, TaskId, Thread, scheduler};
use pagewright_mm::counters::RssKind;
use pagewright_plant::plant;
use pagewright_types::PAGE_SIZE;

/// The adjustment of a process that is never killed (`OOM_SCORE_ADJ_MIN`).
const NEVER: i32 = -1000;

/// Kills a process, unless one that was killed still ends, and lets the thread try again.
///
/// If no process may be killed, the one of the thread is, where Linux panics.
pub(crate) fn out_of_memory(thread: &Thread) -> CallStop {
    let total = mm().tlb().frames().managed() + mm().swap_slots().0;
    let mut worst: Option<(i64, TaskId)> = None;
    let mut scheduler = scheduler();
    // A process that was killed may have ended since (`ALLOC_WMARK_HIGH` in
    // `__alloc_pages_may_oom`).
    if mm().tlb().frames().zones().any(|zone| zone.free() >= zone.watermarks().high) {
        return again();
    }
    for (id, process) in &scheduler.processes {
        // Its space is gone from here before its frames are free.
        if process.group_exit.is_some() && process.exit_status.is_none() {
            return again();
        }
        let Some(space) = process.space.upgrade() else { continue };
        let unkillable = plant!(OomInitKilled; false, *id == INIT);
        if unkillable || process.oom_score_adj == NEVER {
            continue;
        }
        let pages = space.0.rss().pages() + space.0.rss().swapped() + space.0.table().bytes() / PAGE_SIZE;
        let adjustment = plant!(OomScoreIgnored; 0, process.oom_score_adj);
        let score = pages as i64 + i64::from(adjustment) * (total as i64 / 1000);
        // Of equal ones the newest, as in `oom_evaluate_task`.
        if worst.is_none_or(|(most, _)| score >= most) {
            worst = Some((score, *id));
        }
    }
    let victim = worst.map_or(thread.process, |(_, id)| id);
    let name = scheduler.name_of(victim);
    let process = scheduler.process(victim);
    let (space, adjustment) = (process.space.upgrade(), process.oom_score_adj);
    let user = process.credentials.user.real;
    scheduler.end_process(victim, ExitStatus::Signal(SIGKILL));
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
