//! What is excused from the limits on length, and why. An entry that is no longer needed is itself a finding.

/// Leave to be longer than the rest.
#[derive(Debug)]
pub(crate) struct Exception {
    /// The file, from the root of the repository.
    pub(crate) path: &'static str,
    /// The function, or `None` for the file as a whole.
    pub(crate) function: Option<&'static str>,
    /// Why splitting it would make it worse.
    pub(crate) reason: &'static str,
}

/// The exceptions.
pub(crate) const LONG: &[Exception] = &[];
