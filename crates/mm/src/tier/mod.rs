//! Memory tiers: pages that are not used go to slower memory, and come back when they are.
//!
//! | file | what it does |
//! | --- | --- |
//! | `demote` | reclaim moves pages to the next lower tier (`demote_folio_list`) |
//! | `promote` | hint faults move hot pages to the top tier (`should_numa_migrate_memory`) |
//!
//! `frame` says which nodes are of which tier (`Frames::is_top_tier`, `Frames::demotion_target`).
//!
//! Neighbours: `numa` makes and serves the hints; `reclaim` chooses what is demoted.
//!
//! Not guaranteed: that a page which is used again comes back.

mod demote;
mod promote;

pub(crate) use promote::PromotionState;
