//! The Linux error numbers that memory calls return.

use core::fmt;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// An error number of Linux, the same on both instruction sets.
        ///
        /// `include/uapi/asm-generic/errno-base.h` and `errno.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Errno {
            $($(#[$doc])* $name = $number,)*
        }

        impl Errno {
            /// The positive number, as in C's `errno`.
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The symbolic name, such as `ENOMEM`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The error with this number, if the table has it.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1,
    /// No such file, directory, or page.
    ENOENT = 2,
    /// No such process.
    ESRCH = 3,
    /// Input/output error.
    EIO = 5,
    /// Bad file descriptor.
    EBADF = 9,
    /// Try again.
    EAGAIN = 11,
    /// Out of memory.
    ENOMEM = 12,
    /// Permission denied.
    EACCES = 13,
    /// Bad address.
    EFAULT = 14,
    /// Device or resource busy.
    EBUSY = 16,
    /// File exists.
    EEXIST = 17,
    /// No such device.
    ENODEV = 19,
    /// Invalid argument.
    EINVAL = 22,
    /// File too large.
    EFBIG = 27,
    /// No space left on device.
    ENOSPC = 28,
    /// Function not implemented.
    ENOSYS = 38,
    /// Value too large for its type.
    EOVERFLOW = 75,
    /// Operation not supported.
    EOPNOTSUPP = 95,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_round_trip_through_their_numbers() {
        for error in [Errno::EPERM, Errno::ENOMEM, Errno::EOPNOTSUPP] {
            assert_eq!(Errno::from_number(error.number()), Some(error));
        }
        assert_eq!(Errno::from_number(0), None);
    }
}
