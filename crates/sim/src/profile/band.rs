//! The bands of the costs of flushing, of moving lines and of memory, and profiles at their ends.
//!
//! Key type: [`BandEnd`]. A profile gives the band beside the value, with its source. Without one
//! the band is half of the value to one and a half times it. A result that a mechanism owes to one
//! assumed cost shows as a verdict that changes within the band.
//!
//! Not guaranteed: that the machine's cost is in its band. A band is as good as its source.

use super::Profile;
use crate::cost::{Cost, FlushShare};
use crate::time::Picos;

/// The value that a profile gives, or an end of its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandEnd {
    /// The low end of the band.
    Low,
    /// The value.
    Given,
    /// The high end of the band.
    High,
}

/// The ends of the bands of all costs; both are the value if it [has none](Cost::has_band).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bands(pub(super) [[Picos; 2]; Cost::COUNT]);

/// The band of `cost`, or `None` if `given` is none.
pub(super) fn checked(cost: Cost, value: Picos, given: Option<[Picos; 2]>) -> Option<[Picos; 2]> {
    match given {
        Some([low, high]) => (cost.has_band() && (low..=high).contains(&value)).then_some([low, high]),
        None if cost.has_band() => Some([Picos::new(value.raw() / 2), Picos::new(value.raw() * 3 / 2)]),
        None => Some([value; 2]),
    }
}

impl Profile {
    /// The ends of the band of `cost`.
    pub fn band(&self, cost: Cost) -> [Picos; 2] {
        self.bands.0[cost as usize]
    }

    /// The same profile with the costs of flushing at ends of their bands.
    ///
    /// `waits` is for the costs that are paid once for each wait, `entries` for those that are paid
    /// for each entry ([`Cost::flush_share`]). What a batch saves is least with cheap waits and
    /// dear entries, and most with dear waits and cheap entries.
    #[must_use]
    pub fn with_flushes_at(mut self, waits: BandEnd, entries: BandEnd) -> Self {
        for cost in Cost::ALL {
            let end = match cost.flush_share() {
                FlushShare::None => BandEnd::Given,
                FlushShare::PerWait => waits,
                FlushShare::PerEntry => entries,
            };
            let [low, high] = self.band(*cost);
            match end {
                BandEnd::Low => self.costs.0[*cost as usize] = low,
                BandEnd::Given => {}
                BandEnd::High => self.costs.0[*cost as usize] = high,
            }
        }
        self
    }

    /// The same profile with the costs of moving cache lines at an end of their bands.
    #[must_use]
    pub fn with_lines_at(mut self, end: BandEnd) -> Self {
        for cost in [Cost::LineNear, Cost::LineFar] {
            let [low, high] = self.band(cost);
            match end {
                BandEnd::Low => self.costs.0[cost as usize] = low,
                BandEnd::Given => {}
                BandEnd::High => self.costs.0[cost as usize] = high,
            }
        }
        self
    }

    /// The same profile with another value of one cost, to find where a result changes.
    #[must_use]
    pub fn with_cost(mut self, cost: Cost, value: Picos) -> Self {
        self.costs.0[cost as usize] = value;
        self
    }
}
