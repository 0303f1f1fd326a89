//! The locks and containers under real threads, on a back end that yields to the host's scheduler.
//!
//! What this cannot see – orders that the host's CPU happens not to produce – is in the `loom`
//! tests.
#![cfg(not(loom))]

mod arc;
mod backend;
mod cpumask;
mod mailbox;
mod mutual_exclusion;
mod order;
mod percpu;
