//! What `/proc` shows.
mod maps;
mod smaps;
mod status;
mod vmstat;
