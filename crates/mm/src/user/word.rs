//! Words in user memory (`get_user`, `put_user`).

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::Platform;
use pagewright_types::VirtAddr;

/// A word in user memory, which is little-endian.
pub trait UserWord: Copy + Default {
    /// Its size in bytes.
    const BYTES: usize;

    /// Returns the word with these bytes.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// Calls `body` with its bytes.
    fn with_bytes<T>(self, body: impl FnOnce(&[u8]) -> T) -> T;
}

macro_rules! words {
    ($($word:ty),*) => {
        $(impl UserWord for $word {
            const BYTES: usize = size_of::<Self>();

            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, Self::from_le_bytes)
            }

            fn with_bytes<T>(self, body: impl FnOnce(&[u8]) -> T) -> T {
                body(&self.to_le_bytes())
            }
        })*
    };
}

words!(u8, u16, u32, u64);

impl<P: Platform> Mm<P> {
    /// Reads the word at `at` (`get_user`), an aligned word in one access.
    ///
    /// # Errors
    /// [`MmError::Inaccessible`] if the program cannot read it.
    pub fn get_user<T: UserWord>(&self, space: &Space<P>, at: VirtAddr) -> Result<T, MmError> {
        self.declare_return_of(|| self.user_word(space, at))
    }

    /// Does the same as [`Mm::get_user`], within a call.
    pub(super) fn user_word<T: UserWord>(&self, space: &Space<P>, at: VirtAddr) -> Result<T, MmError> {
        let mut bytes = [0; size_of::<u64>()];
        let bytes = &mut bytes[..T::BYTES];
        match self.read_user(space, at, bytes) {
            0 => Ok(T::from_bytes(bytes)),
            _ => Err(MmError::Inaccessible { va: at }),
        }
    }

    /// Stores a word at `at` (`put_user`), an aligned word in one access.
    ///
    /// # Errors
    /// [`MmError::Inaccessible`] if the program cannot write it. The first bytes of a word across
    /// two pages may have been stored.
    pub fn put_user<T: UserWord>(&self, space: &Space<P>, at: VirtAddr, word: T) -> Result<(), MmError> {
        match self.declare_return_of(|| word.with_bytes(|bytes| self.write_user(space, at, bytes))) {
            0 => Ok(()),
            _ => Err(MmError::Inaccessible { va: at }),
        }
    }
}
