//! What a futex word is called: two threads that name the same word sleep on one queue
//! (`get_futex_key`, `kernel/futex/core.c`).
//!
//! INV-FUTEX-KEY: keys are equal exactly if the words are one word of the same memory, for as long
//! as it is mapped: a word that processes share is named by its object, a word that is one space's
//! by the space and the address. A page that can still be copied from under the word has no lasting
//! name, so it is made the space's own first, or refused.

use crate::error::MmError;
use crate::gup::{GupFlags, GupRequest, MakeDirty, UserPage};
use crate::mm::Mm;
use crate::space::Space;
use crate::user::copy::is_user;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{FileId, PAGE_SIZE, SpaceId, VirtAddr};

/// Who can know the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FutexScope {
    /// Only threads of this space (`FUTEX_PRIVATE_FLAG`).
    Private,
    /// Whoever maps it.
    Shared,
}

/// What will be done to the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FutexAccess {
    /// It is looked at, or somebody is woken.
    Read,
    /// It is stored to.
    Write,
}

/// The name of a futex word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FutexKey {
    /// A word that only one space's threads use.
    ///
    /// Not the same queue as [`FutexKey::Anon`] of the same address.
    Private {
        /// The space.
        space: SpaceId,
        /// The word's address.
        at: VirtAddr,
    },
    /// A word of anonymous memory, of a caller who did not say that it is private
    /// (`FUT_OFF_MMSHARED`).
    Anon {
        /// The space.
        space: SpaceId,
        /// The word's address.
        at: VirtAddr,
    },
    /// A word of a file or of shared memory (`FUT_OFF_INODE`).
    Object {
        /// The object.
        file: FileId,
        /// Page of the object.
        index: u64,
        /// Byte in the page.
        offset: u16,
    },
}

/// Bytes of a futex word.
const WORD: usize = 4;

impl<P: Platform> Mm<P> {
    /// The key of the word at `at`.
    ///
    /// A word that may be shared is faulted in; if its page is a file's that is mapped privately
    /// and writable, it becomes the space's own.
    ///
    /// # Errors
    /// `EINVAL` if `at` is not aligned; `EFAULT` if it is not in user memory, if a shared word
    /// can't be read or, to be stored to, written, and if it lies in memory that can only be read
    /// and is nobody's object: such a word never changes. `ENOMEM`.
    pub fn futex_key(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        scope: FutexScope,
        access: FutexAccess,
    ) -> Result<FutexKey, MmError> {
        if !at.is_aligned(WORD as u64) {
            return Err(MmError::MisalignedWord { at });
        }
        if !is_user::<P>(at, WORD) {
            return Err(MmError::Inaccessible { va: at });
        }
        match scope {
            FutexScope::Private => Ok(FutexKey::Private { space: space.id(), at }),
            FutexScope::Shared => self.call(|| self.shared_key(space, at, access)),
        }
    }

    fn shared_key(&self, space: &Space<P>, at: VirtAddr, access: FutexAccess) -> Result<FutexKey, MmError> {
        let page = at.align_down(PAGE_SIZE);
        let mut read_only = false;
        let writable = self.gup_page(space, page, GupRequest::get(GupFlags::WRITE), true, None);
        let page = match writable {
            Err(MmError::Inaccessible { .. }) if access == FutexAccess::Read => {
                read_only = true;
                self.gup_page(space, page, GupRequest::get(GupFlags::empty()), true, None)?
            }
            writable => writable?,
        };
        let key = self.key_of(space, at, &page, read_only);
        self.release_user_page(page, MakeDirty::No);
        key
    }

    fn key_of(&self, space: &Space<P>, at: VirtAddr, page: &UserPage, read_only: bool) -> Result<FutexKey, MmError> {
        let refused = MmError::Inaccessible { va: at };
        let folio = self.frames().folio(page.pfn());
        match folio.owner() {
            FolioOwner::Anon(_) if read_only => Err(refused),
            FolioOwner::Anon(_) => Ok(FutexKey::Anon { space: space.id(), at }),
            FolioOwner::File(file) => {
                let index = folio.index() + u64::from(folio.page_of(page.pfn()));
                Ok(FutexKey::Object { file, index, offset: at.page_offset() as u16 })
            }
            // The zero page, or a page that a truncation took meanwhile.
            FolioOwner::None => Err(refused),
        }
    }
}
