//! Calls that fail, because they are refused or because an allocation fails, change nothing.

mod bad_calls;
mod every_allocation;
mod refusals;
mod scene;
mod state;
mod steps;
