//! The memory manager of Pagewright.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod tree;
