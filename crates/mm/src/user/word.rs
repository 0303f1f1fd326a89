//! One word of user memory (`get_user`, `put_user`).

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::VirtAddr;

/// A word as user memory has it, least significant byte first.
pub trait UserWord: Copy + Default {
    /// Bytes that it has.
    const BYTES: usize;

    /// The word with these bytes.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// Hands its bytes to `take`.
    fn with_bytes<T>(self, take: impl FnOnce(&[u8]) -> T) -> T;
}

macro_rules! words {
    ($($word:ty),*) => {
        $(impl UserWord for $word {
            const BYTES: usize = size_of::<Self>();

            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, Self::from_le_bytes)
            }

            fn with_bytes<T>(self, take: impl FnOnce(&[u8]) -> T) -> T {
                take(&self.to_le_bytes())
            }
        })*
    };
}

words!(u8, u16, u32, u64);

impl<P: Platform> Mm<P> {
    /// The word at `at`.
    ///
    /// If it is aligned it is read at once: no store to it is seen in part.
    ///
    /// # Errors
    /// [`MmError::Inaccessible`].
    pub fn get_user<T: UserWord>(&self, space: &Space<P>, at: VirtAddr) -> Result<T, MmError> {
        self.call(|| self.user_word(space, at))
    }

    /// The same, within a call.
    pub(super) fn user_word<T: UserWord>(&self, space: &Space<P>, at: VirtAddr) -> Result<T, MmError> {
        let mut bytes = [0; size_of::<u64>()];
        let bytes = &mut bytes[..T::BYTES];
        match self.read_user(space, at, bytes) {
            0 => Ok(T::from_bytes(bytes)),
            _ => Err(MmError::Inaccessible { va: at }),
        }
    }

    /// Stores a word at `at`.
    ///
    /// If it is aligned it is stored at once.
    ///
    /// # Errors
    /// [`MmError::Inaccessible`]; of a word across two pages the first bytes may have been stored.
    pub fn put_user<T: UserWord>(&self, space: &Space<P>, at: VirtAddr, word: T) -> Result<(), MmError> {
        match self.call(|| word.with_bytes(|bytes| self.write_user(space, at, bytes))) {
            0 => Ok(()),
            _ => Err(MmError::Inaccessible { va: at }),
        }
    }
}
