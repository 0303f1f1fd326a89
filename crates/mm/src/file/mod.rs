//! Files and shared memory: the objects behind mappings that are not anonymous.
//!
//! - [`FileOps`] – what an embedder supplies for a file: reading, writing back, punching holes.
//! - [`FileObject`] – a file or a piece of shared memory, with its page cache and its mappers.
//! - [`Files`] – all objects, by id.
//! - `memfd` – shared memory with a descriptor; [`Tmpfs`] – files that share a limit; [`Seals`] –
//!   restrictions that cannot be removed.
//! - `resize` – truncation, holes, preallocation; `io` – reads and writes through the cache;
//!   `writeback` – dirty pages to their file.
//! - `linger` – what TLBs may still read of pages that moved or left the cache.
//!
//! Protocol: the cache holds one reference to each page, and each mapping another. A page is filled
//! before it is added to the cache, so a page found there is up to date. An operation that changes
//! size, seals or holes holds the object's `resize` lock (Linux's `i_rwsem`). A page is removed in
//! this order: take it out of the cache, increment `FileObject::removals`, unmap it from every
//! table. A fault that found it earlier reads `removals` again with its table locked
//! (INV-FILE-REMOVED).
//!
//! Neighbours: `fault` maps pages from here; `rmap` asks an object for the spaces that map it;
//! `madvise`, `msync` and `mincore` operate on the object behind a mapping.
//!
//! Not guaranteed: periodic writeback. Dirty pages are written by [`Mm::msync`](crate::Mm::msync),
//! by [`Mm::write_back`](crate::Mm::write_back), and by background reclaim when memory is short.

mod cache;
mod exchange;
mod io;
mod linger;
mod memfd;
mod object;
mod registry;
mod resize;
mod seals;
mod tmpfs;
mod writeback;

pub use memfd::MemfdFlags;
pub(crate) use object::{FILE_IDS, FILE_PAGES};
pub use object::{FileKind, FileObject, FileOps, TmpfsFileOps};
pub use registry::Files;
pub use resize::FallocateFlags;
pub use seals::Seals;
pub use tmpfs::Tmpfs;
