//! Memory calls one by one, on the simulated machine and both instruction sets: what each does,
//! what refuses it with which errno, and that nothing is left over.
//!
//! Not covered: anything that needs two CPUs at once, which `file_races`, `remap_races` and the
//! random programs look for.

#[path = "memory/advise.rs"]
mod advise;
#[path = "memory/beside_linux.rs"]
mod beside_linux;
#[path = "memory/calls.rs"]
mod calls;
#[path = "memory/files.rs"]
mod files;
#[path = "memory/limits.rs"]
mod limits;
#[path = "memory/locks.rs"]
mod locks;
#[path = "memory/remap.rs"]
mod remap;
mod support;
