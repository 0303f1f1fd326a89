//! Futex keys: threads that wait on the same word wait on one queue.
//!
//! **INV-FUTEX-KEY** Two words have one key exactly if they are the same word of the same memory,
//! while it is mapped.
//!
//! The key of a word in a file or in shared memory has the object, the key of an anonymous word has
//! the space and the address. A page that a later copy-on-write would replace has no lasting key,
//! so it is copied first, or the word is refused.
//!
//! Linux: `get_futex_key` of `kernel/futex/core.c`.

use crate::error::MmError;
use crate::gup::{GupFlags, GupRequest, MakeDirty, UserPage};
use crate::mm::Mm;
use crate::space::Space;
use crate::user::copy::is_user;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{FileId, PAGE_SIZE, SpaceId, VirtAddr};

/// Whether other spaces can use the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FutexScope {
    /// Only threads of this space use it (`FUTEX_PRIVATE_FLAG`).
    Private,
    /// Every space that maps it can use it.
    Shared,
}

/// How the futex operation accesses the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FutexAccess {
    /// The operation only reads the word, or only wakes waiters.
    Read,
    /// The operation stores to the word.
    Write,
}

/// The key of a futex word, by which waiters are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FutexKey {
    /// A word of [`FutexScope::Private`].
    ///
    /// Its queue differs from that of [`FutexKey::Anon`] with the same address.
    Private {
        /// The space.
        space: SpaceId,
        /// The word's address.
        at: VirtAddr,
    },
    /// A word of [`FutexScope::Shared`] in anonymous memory (`FUT_OFF_MMSHARED`).
    Anon {
        /// The space.
        space: SpaceId,
        /// The word's address.
        at: VirtAddr,
    },
    /// A word of [`FutexScope::Shared`] in a file or in shared memory (`FUT_OFF_INODE`).
    Object {
        /// The file or shared memory.
        file: FileId,
        /// Page of the object.
        index: u64,
        /// Offset of the word in the page, in bytes.
        offset: u16,
    },
}

/// Size of a futex word in bytes.
const WORD: usize = 4;

impl<P: Platform> Mm<P> {
    /// Returns the key of the word at `at` (`get_futex_key`).
    ///
    /// A shared word is faulted in. In a private writable mapping of a file, that copies its page.
    ///
    /// # Errors
    /// - [`MmError::MisalignedWord`] (`EINVAL`).
    /// - [`MmError::Inaccessible`] (`EFAULT`) if the word is not in user memory, if the program
    ///   cannot access a shared word as `access` says, or if a shared word is in a read-only
    ///   anonymous page, which never changes.
    /// - Memory to fault the word in (`ENOMEM`).
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
            FutexScope::Shared => self.declare_return_of(|| self.shared_key(space, at, access)),
        }
    }

    fn shared_key(&self, space: &Space<P>, at: VirtAddr, access: FutexAccess) -> Result<FutexKey, MmError> {
        let page = at.align_down(PAGE_SIZE);
        let mut read_only = false;
        let writable = self.gup_page(space, page, GupRequest::get(GupFlags::WRITE).fast(), None);
        let page = match writable {
            Err(MmError::Inaccessible { .. }) if access == FutexAccess::Read => {
                read_only = true;
                self.gup_page(space, page, GupRequest::get(GupFlags::empty()).fast(), None)?
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
            // The zero page, or a page that a concurrent truncation has removed.
            FolioOwner::None => Err(refused),
        }
    }
}
