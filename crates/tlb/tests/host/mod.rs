//! TLB debts and engines on a machine of host threads, both instruction sets.

mod batch;
mod broadcast;
mod cover;
mod dropped;
mod hotplug;
mod ipi;
mod ledger;
mod lines;
mod linger;
mod order;
mod parked;
mod place;
mod secondary;
mod space;
mod switch;
mod threads;
