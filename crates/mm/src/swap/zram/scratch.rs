//! The buffers in which a page is compressed, and the compressor.
//!
//! The compressor's table is part of the buffers and allocated with them, because the compressor's
//! own allocation could not fail gracefully.
//!
//! Not guaranteed: detection of corrupted memory. As in Linux, there is no checksum.

use alloc::boxed::Box;
use alloc::vec::Vec;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use pagewright_sync::{AllocError, try_boxed};
use pagewright_types::PAGE_SIZE;

use super::pool::LARGEST;

const PAGE: usize = PAGE_SIZE as usize;

/// The word that a page repeats.
pub(super) type Word = [u8; 8];

/// A compressed page.
pub(super) enum Compressed<'a> {
    /// One word, repeated (`ZRAM_SAME`).
    Same(Word),
    /// Compressed bytes; a whole page of them is the page itself (`ZRAM_HUGE`).
    Bytes(&'a [u8]),
}

/// The buffers of one CPU.
pub(super) struct Scratch {
    pub(super) page: Box<[u8]>,
    packed: Box<[u8]>,
    /// One table, on the heap: its 8 KiB are a large part of a kernel stack.
    table: Vec<CompressTable>,
}

fn buffer(bytes: usize) -> Result<Box<[u8]>, AllocError> {
    try_boxed(bytes, core::iter::repeat(0))
}

impl Scratch {
    /// Allocates the buffers.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn try_new() -> Result<Self, AllocError> {
        let (page, packed) = (buffer(PAGE)?, buffer(get_maximum_output_size(PAGE))?);
        let mut table = Vec::new();
        table.try_reserve_exact(1).map_err(|_| AllocError { bytes: size_of::<CompressTable>() })?;
        table.push(CompressTable::small());
        Ok(Self { page, packed, table })
    }

    /// Compresses the page.
    pub(super) fn compress(&mut self) -> Compressed<'_> {
        if let Some(word) = same_filled(&self.page) {
            return Compressed::Same(word);
        }
        match compress_into_with_table(&self.page, &mut self.packed, &mut self.table[0]) {
            Ok(len) if len <= LARGEST => Compressed::Bytes(&self.packed[..len]),
            Ok(_) | Err(_) => Compressed::Bytes(&self.page),
        }
    }

    /// The buffer for `len` stored bytes, which [`Self::decompress`] then reads.
    pub(super) fn stored(&mut self, len: usize) -> &mut [u8] {
        if len == PAGE { &mut self.page } else { &mut self.packed[..len] }
    }

    /// Restores the page from `len` stored bytes; `None` if they are corrupted.
    pub(super) fn decompress(&mut self, len: usize) -> Option<&[u8]> {
        let decompressed = if len == PAGE { Ok(PAGE) } else { decompress_into(&self.packed[..len], &mut self.page) };
        decompressed.is_ok_and(|bytes| bytes == PAGE).then_some(&self.page)
    }

    /// The page that repeats one word.
    pub(super) fn fill(&mut self, word: Word) -> &[u8] {
        self.page.chunks_exact_mut(word.len()).for_each(|chunk| chunk.copy_from_slice(&word));
        &self.page
    }
}

/// The word that the page repeats, if it does (`page_same_filled`).
fn same_filled(page: &[u8]) -> Option<Word> {
    let (words, _) = page.as_chunks();
    let (first, rest) = words.split_first()?;
    rest.iter().all(|word| word == first).then_some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with more and more noise compress to each length around the limit.
    #[test]
    fn a_page_is_stored_compressed_up_to_the_largest_object_that_shares_a_frame() {
        let mut scratch = Scratch::try_new().expect("memory");
        let mut state = 1_u64;
        let noise: Vec<u8> = core::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(PAGE)
        .collect();
        let mut lengths = Vec::new();
        for noisy in LARGEST - 64..LARGEST + 64 {
            scratch.page.fill(0);
            scratch.page[..noisy].copy_from_slice(&noise[..noisy]);
            let mut packed = buffer(get_maximum_output_size(PAGE)).expect("memory");
            let compressed = compress_into_with_table(&scratch.page, &mut packed, &mut CompressTable::small());
            let len = compressed.expect("the buffer is large enough");
            let page = scratch.page.clone();
            match scratch.compress() {
                Compressed::Bytes(bytes) if len <= LARGEST => assert_eq!(bytes, &packed[..len], "{len} bytes"),
                Compressed::Bytes(bytes) => assert_eq!(bytes, &*page, "{len} bytes"),
                Compressed::Same(_) => panic!("the page repeats no word"),
            }
            lengths.push(len);
        }
        assert!([LARGEST - 1, LARGEST, LARGEST + 1].iter().all(|len| lengths.contains(len)), "{lengths:?}");
    }
}
