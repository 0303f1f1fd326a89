//! Memory tiers: pages that are not used go to slower memory before they are evicted.
//!
//! | file | what it does |
//! | --- | --- |
//! | `demote` | reclaim moves pages to the next lower tier (`demote_folio_list`) |
//!
//! Which nodes are of which tier is said by `frame` (`Frames::demotion_target`).
//!
//! Not guaranteed: that a page which is used again comes back. Promotion is not built yet.

mod demote;
