//! Linux's error numbers.

use core::fmt;
use linux_raw_sys::errno;
use pagewright_mm::{FaultError, MmError};

/// The error of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(u32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(pub(crate) const $name: Self = Self(errno::$name);)*

            /// The name of the error, if it is one of these.
            fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    E2BIG EACCES EAGAIN EBADF EBUSY ECHILD EDEADLK EEXIST EFAULT EINTR EINVAL EIO EISDIR ELOOP EMFILE EMLINK ENAMETOOLONG ENODATA ENODEV ENOENT ENOEXEC ENOMEM ENOSPC ENOSYS
    EADDRINUSE EAFNOSUPPORT ECONNREFUSED ECONNRESET EDOM EISCONN EMSGSIZE ELIBBAD ENOBUFS ENOPROTOOPT ENOTCONN ENOTSOCK EPROTONOSUPPORT EPROTOTYPE
    ESOCKTNOSUPPORT ETOOMANYREFS ENOTDIR ENOTEMPTY ENOTTY EOPNOTSUPP EOVERFLOW EPERM EPIPE ERANGE ESPIPE ESRCH ETIMEDOUT ETXTBSY EXDEV ENXIO
}

impl Errno {
    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The value of the result register.
    pub(crate) fn result(self) -> u64 {
        u64::from(self.0).wrapping_neg()
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl From<MmError> for Errno {
    fn from(error: MmError) -> Self {
        error.errno().into()
    }
}

impl From<pagewright_types::Errno> for Errno {
    fn from(errno: pagewright_types::Errno) -> Self {
        Self(u32::from(errno.number()))
    }
}

impl From<FaultError> for Errno {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::OutOfMemory(_) | FaultError::TooManyHolders { .. } => Self::ENOMEM,
            FaultError::NotMapped { .. }
            | FaultError::NotAllowed { .. }
            | FaultError::Guarded { .. }
            | FaultError::PastEnd { .. }
            | FaultError::Device { .. } => Self::EFAULT,
        }
    }
}

impl From<alloc::collections::TryReserveError> for Errno {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self::ENOMEM
    }
}
