//! Faults: the leaves they map, what they count, and what a fault that waited must look at again.

mod cleared;
mod distant;
mod in_transition;
mod leaves;
mod look_again;
mod native_rules;
mod past_the_end;
mod races;
mod reuse;
