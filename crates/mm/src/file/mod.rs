//! Files and shared memory: what a mapping that is not anonymous shows.
//!
//! - [`FileOps`] – what an embedder supplies: size, contents, whether they are at hand.
//! - [`FileObject`] – a file with its page cache, and the spaces that map it.
//! - [`Files`] – all of them, by id.
//!
//! Protocol: the cache holds one reference on each page, each mapping another. A page is found or made under the cache's lock; its
//! contents are filled in before it is put there, so whoever finds it can use it.
//!
//! Neighbours: `fault` takes pages from here; `rmap` asks here who maps a file.
//!
//! Not guaranteed: write-back. Pages dirtied through shared mappings stay in the cache.

mod cache;
mod object;
mod registry;

pub use object::{FileObject, FileOps, Kind};
pub use registry::Files;
