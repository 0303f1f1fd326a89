//! How large folios are mapped: the states in which their counts are worth a comparison.
//!
//! The rules for references, mapcounts and deposits hold for a folio that one entry maps, almost
//! whatever the memory manager does. So states are counted in which a mistake would show.

use super::tables::TableScan;
use crate::tally::Antecedent;
use alloc::vec::Vec;
use pagewright_types::Pfn;

impl TableScan {
    /// The antecedents that hold for the large folio at `head`.
    pub(super) fn states_of_large(&self, head: Pfn) -> Vec<Antecedent> {
        let Some(folio) = self.folios.get(&head) else { return Vec::new() };
        let mapped =
            || self.pages.range(head..head.add(folio.frames)).map(|(_, page)| page).filter(|page| page.mapcount > 0);
        let whole = folio.entire_logical.count;
        let most = mapped().map(|page| page.logical.count).max().unwrap_or(0);
        let [fewest, greatest] = [mapped().map(|page| page.mapcount).min(), mapped().map(|page| page.mapcount).max()];
        let states = [
            (folio.entire > 0 && folio.small > 0, Antecedent::LargeBothWays),
            (whole + most > 1, Antecedent::LargeShared),
            (fewest < greatest, Antecedent::LargeUnequal),
            (folio.is_apart, Antecedent::LargeApart),
        ];
        states.into_iter().filter_map(|(holds, state)| holds.then_some(state)).collect()
    }
}
