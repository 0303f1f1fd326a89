//! Memory calls one by one, and in races: what each does, what refuses it, and that nothing is
//! left.

mod advise;
mod basics;
mod beside_linux;
mod blocks;
mod brk;
mod forks;
mod limits;
mod lock_races;
mod locks;
mod merged_rights;
mod oom;
mod pool;
mod remap;
mod remap_races;
mod remap_tables;
mod reschedule;
mod reverse_map;
