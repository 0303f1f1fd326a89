//! What the host's kernel takes for the steps that `benches/memory.rs` measures of ours.
//!
//! The steps and units are the same: first stores to 16 MiB, unmapping in runs, forking 64 MiB. A
//! figure of Linux includes kernel entry and exit, with the mitigations and the virtualisation of
//! this host, and the TLB misses that follow. Ours does not. The measured memory has no huge pages.

#[path = "support/table.rs"]
mod table;

use fork::{Fork, fork};
use memmap2::{Advice, MmapMut};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pause};
use std::hint::black_box;
use std::time::{Duration, Instant};
use table::{Scenario, in_parts, measure, timed};

const PAGE: usize = 4096;
/// Pages faulted in before they are unmapped.
const BATCH: u64 = 4096;
/// Pages of the parent that is forked.
const FORKED: u64 = (64 << 20) / PAGE as u64;
/// Mappings of the parent that is forked with little mapped.
const FORKED_MAPPINGS: u64 = 10_000;

fn map(pages: u64) -> MmapMut {
    let map = MmapMut::map_anon(pages as usize * PAGE).expect("memory");
    map.advise(Advice::NoHugePage).expect("MADV_NOHUGEPAGE is supported");
    map
}

fn touch(map: &mut MmapMut, pages: u64) {
    for page in 0..pages as usize {
        map[page * PAGE] = black_box(1);
    }
}

fn populated(pages: u64) -> MmapMut {
    let mut map = map(pages);
    touch(&mut map, pages);
    map
}

fn fault(times: u64) -> Duration {
    in_parts(times, BATCH, |part| {
        let mut map = map(BATCH);
        timed(|| touch(&mut map, part))
    })
}

fn unmap(times: u64, run: u64) -> Duration {
    in_parts(times, BATCH, |part| {
        let runs = part.div_ceil(run);
        // A read-only page between two runs keeps Linux from merging their mappings.
        let fence = || map(1).make_read_only().expect("mprotect");
        let (maps, _fences): (Vec<_>, Vec<_>) = (0..runs).map(|_| (populated(run), fence())).unzip();
        let start = Instant::now();
        drop(maps);
        start.elapsed().mul_f64(part as f64 / (runs * run) as f64)
    })
}

fn fork_and_kill() -> Duration {
    let start = Instant::now();
    match fork().expect("room for a process") {
        Fork::Child => loop {
            // Waits to be killed, without storing to its memory.
            pause();
        },
        Fork::Parent(child) => {
            let time = start.elapsed();
            let child = Pid::from_raw(child);
            kill(child, Signal::SIGKILL).expect("our child");
            waitpid(child, None).expect("our child");
            time
        }
    }
}

fn fork_pages(times: u64) -> Duration {
    // Dropped at the end, because the forks of other scenarios would copy it too.
    let mut parent = populated(FORKED);
    in_parts(times, FORKED, |part| {
        touch(&mut parent, FORKED);
        fork_and_kill().mul_f64(part as f64 / FORKED as f64)
    })
}

fn fork_mappings(times: u64) -> Duration {
    // Neighbours with other rights are not merged.
    let half = || (0..FORKED_MAPPINGS / 2).map(|_| (map(1), map(1).make_read_only().expect("mprotect")));
    let _mappings: Vec<_> = half().collect();
    in_parts(times, FORKED_MAPPINGS, |part| fork_and_kill().mul_f64(part as f64 / FORKED_MAPPINGS as f64))
}

fn main() {
    let mut scenarios = vec![Scenario::new("Linux: minor fault, first store", fault)];
    for run in [1, 16, 512] {
        let name = format!("Linux: unmap {run} populated, per page");
        scenarios.push(Scenario::new(name, move |times| unmap(times, run)));
    }
    let empty = |times| (0..times).map(|_| fork_and_kill()).sum();
    scenarios.push(Scenario::new("Linux: fork with little mapped, per fork", empty));
    scenarios.push(Scenario::new("Linux: fork of 64 MiB, per page", fork_pages));
    scenarios.push(Scenario::new("Linux: fork of 10 000 mappings, per mapping", fork_mappings));
    measure(scenarios);
}
