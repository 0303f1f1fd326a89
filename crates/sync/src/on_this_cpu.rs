//! The mark of a value that stays on the CPU that made it.
//!
//! **INV-LOCK-CPU** A guard stays on the CPU or task that acquired its lock, because the ranks held
//! are counted there, and is not shared between CPUs. No guard is `Send` or `Sync`, so the compiler
//! checks this.
//!
//! Not guaranteed: that the CPU does not change while a task is preempted. Then the backend keeps
//! the ranks for the task.

use core::marker::PhantomData;

/// The field that makes its struct neither `Send` nor `Sync`.
pub type OnThisCpu = PhantomData<*mut ()>;
