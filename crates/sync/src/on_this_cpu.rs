//! The mark of a value that stays on the CPU that made it.
//!
//! INV-LOCK-CPU: a guard is dropped by the CPU or task that acquired its lock, because
//! [`Backend::held`](crate::Backend::held) counts the locks of each. The compiler checks it: no
//! guard is `Send`.
//!
//! Not guaranteed: that the CPU does not change while a task is preempted. Then the backend keeps
//! the ranks for the task.

use core::marker::PhantomData;

/// The field that makes its struct neither `Send` nor `Sync`.
pub type OnThisCpu = PhantomData<*mut ()>;
