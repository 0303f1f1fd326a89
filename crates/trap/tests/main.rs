//! The tests of trapped instructions.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod instructions;
mod stores;
mod torn_entry;
mod x86_64_crate;
