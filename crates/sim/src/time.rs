//! Modelled time.
//!
//! A clock is a whole number of picoseconds, so sums do not depend on their order, and the same
//! seed gives the same figures bit for bit. 64 bits hold 213 days. Nothing here is measured: a
//! clock advances only by the cost model.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A moment since the machine was switched on, or a duration, in picoseconds of modelled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Picos(u64);

impl Picos {
    /// No time, or the moment at which the machine was switched on.
    pub const ZERO: Self = Self(0);
    /// The latest moment.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes `raw` picoseconds.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// Makes `nanos` nanoseconds.
    ///
    /// # Panics
    /// In debug builds past 213 days.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos * 1000)
    }

    /// The number of picoseconds.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The duration from `earlier` to this moment; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The later of two moments.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

impl Add for Picos {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Picos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Picos {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Picos {
    type Output = Self;

    #[inline]
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl fmt::Display for Picos {
    /// Prints the time in the largest unit of which it has at least one, with three decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ps", self.0),
            1_000..1_000_000 => (1_000, "ns"),
            1_000_000..1_000_000_000 => (1_000_000, "us"),
            1_000_000_000..1_000_000_000_000 => (1_000_000_000, "ms"),
            1_000_000_000_000.. => (1_000_000_000_000, "s"),
        };
        write!(f, "{}.{:03} {name}", self.0 / unit, self.0 % unit / (unit / 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_prints_in_the_largest_unit_that_fits() {
        assert_eq!(Picos::new(999).to_string(), "999 ps");
        assert_eq!(Picos::new(1_234_567).to_string(), "1.234 us");
        assert_eq!(Picos::from_nanos(2_000_000_050).to_string(), "2.000 s");
        assert_eq!(Picos::ZERO.since(Picos::new(5)), Picos::ZERO);
    }
}
