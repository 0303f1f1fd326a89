//! Where a page is while it is compressed.
//!
//! The compressor is used without its `alloc`: its table stands here, so that nothing is allocated
//! without a chance to fail.
//!
//! Not guaranteed: that what was stored is what was written, should the machine's memory lose a
//! bit. There is no checksum, as in Linux.

use alloc::boxed::Box;
use alloc::vec::Vec;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use pagewright_sync::AllocError;
use pagewright_types::PAGE_SIZE;

use super::pool::LARGEST;

const PAGE: usize = PAGE_SIZE as usize;

/// A word that a page consists of.
pub(super) type Word = [u8; 8];

/// What is left of a page.
pub(super) enum Packed<'a> {
    /// A word, over and over (`ZRAM_SAME`).
    Same(Word),
    /// Compressed bytes; a page of them is the page itself (`ZRAM_HUGE`).
    Bytes(&'a [u8]),
}

/// One CPU's buffers.
pub(super) struct Scratch {
    pub(super) page: Box<[u8]>,
    packed: Box<[u8]>,
    /// One, not within this value: it has 8 KiB, and a kernel's stack not many times that.
    table: Vec<CompressTable>,
}

fn buffer(bytes: usize) -> Result<Box<[u8]>, AllocError> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_| AllocError { bytes })?;
    buffer.resize(bytes, 0);
    Ok(buffer.into_boxed_slice())
}

impl Scratch {
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
    pub(super) fn pack(&mut self) -> Packed<'_> {
        if let Some(word) = same_filled(&self.page) {
            return Packed::Same(word);
        }
        match compress_into_with_table(&self.page, &mut self.packed, &mut self.table[0]) {
            Ok(len) if len <= LARGEST => Packed::Bytes(&self.packed[..len]),
            Ok(_) | Err(_) => Packed::Bytes(&self.page),
        }
    }

    /// Where `len` bytes that were stored go before [`Self::unpack`].
    pub(super) fn stored(&mut self, len: usize) -> &mut [u8] {
        if len == PAGE { &mut self.page } else { &mut self.packed[..len] }
    }

    /// Makes a page of `len` bytes that were stored; `None` if they are not what was.
    pub(super) fn unpack(&mut self, len: usize) -> Option<&[u8]> {
        let unpacked = if len == PAGE { Ok(PAGE) } else { decompress_into(&self.packed[..len], &mut self.page) };
        unpacked.is_ok_and(|bytes| bytes == PAGE).then_some(&self.page)
    }

    /// A page of one word.
    pub(super) fn fill(&mut self, word: Word) -> &[u8] {
        self.page.chunks_exact_mut(word.len()).for_each(|chunk| chunk.copy_from_slice(&word));
        &self.page
    }
}

/// The word that a page consists of, if there is one (`page_same_filled`).
fn same_filled(page: &[u8]) -> Option<Word> {
    let (words, _) = page.as_chunks();
    let (first, rest) = words.split_first()?;
    rest.iter().all(|word| word == first).then_some(*first)
}
