//! Files and shared memory: what a mapping that is not anonymous shows.
//!
//! - [`FileOps`] – what an embedder supplies: size, contents, whether they are at hand, and where
//!   to write them back.
//! - [`FileObject`] – a file with its page cache, and the spaces that map it.
//! - [`Files`] – all of them, by id.
//! - `memfd` – shared memory with a descriptor; [`Tmpfs`] – files that share a limit; [`Seals`] –
//!   what may not be done to it any more.
//! - `resize` – truncation, holes, room made in advance; `io` – reads and writes through the cache;
//!   `writeback` – dirty pages back to the file.
//!
//! Protocol: the cache holds one reference on each page, each mapping another. A page is found or
//! made under the cache's lock; its contents are filled in before it is put there, so whoever finds
//! it can use it. Who changes size, seals or holes has the object's `resize` lock (Linux's
//! `i_rwsem`). A page is taken away in this order: out of the cache, [`FileObject::removals`]
//! raised, out of every table. A fault that found it before looks at `removals` again with its
//! table locked (INV-FILE-REMOVED).
//!
//! Neighbours: `fault` takes pages from here; `rmap` asks here who maps a file; `advise`, `msync`
//! and `mincore` come here for the file behind a mapping.
//!
//! Not guaranteed: that dirty pages are written back by themselves. [`Mm::msync`](crate::Mm::msync)
//! and [`Mm::write_back`](crate::Mm::write_back) do it when they are called, and background reclaim
//! when memory is short.

mod cache;
mod io;
mod memfd;
mod object;
mod registry;
mod resize;
mod seals;
mod tmpfs;
mod writeback;

pub use memfd::MemfdFlags;
pub(crate) use object::{FILE_IDS, FILE_PAGES};
pub use object::{FileKind, FileObject, FileOps};
pub use registry::Files;
pub use resize::FallocateFlags;
pub use seals::Seals;
pub use tmpfs::Tmpfs;
