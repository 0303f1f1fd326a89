//! Memory calls one by one, and in races: what each does, and what refuses it.
//!
//! Nothing is left over afterwards.

mod advise;
mod basics;
mod beside_linux;
mod brk;
mod forks;
mod huge_leaves;
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
