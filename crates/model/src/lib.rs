//! The oracle of Pagewright.
#![forbid(unsafe_code)]
