//! In the place of `linux` where there is no x86-64 Linux: nothing can be asked, so there is no
//! value of its type.

use super::AgainstError;
use super::lack::{Host, Lack};
use super::seen::Seen;
use crate::random::Operation;
use pagewright_types::{Access, VirtAddr};

/// No Linux.
pub(super) enum Linux {}

impl Linux {
    pub(super) fn start() -> Result<Self, AgainstError> {
        Err(AgainstError::NoLinux)
    }

    pub(super) fn lacks(&self) -> &[Lack] {
        match *self {}
    }

    pub(super) fn host(&self) -> Host {
        match *self {}
    }

    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        match *self {}
    }

    pub(super) fn finish(&mut self) -> Result<(), AgainstError> {
        match *self {}
    }

    pub(super) fn fork_process(&mut self, _process: usize) -> Result<Seen, AgainstError> {
        match *self {}
    }

    pub(super) fn exit_process(&mut self, _process: usize) -> Result<Seen, AgainstError> {
        match *self {}
    }

    pub(super) fn access(
        &self,
        _process: usize,
        _va: VirtAddr,
        _access: Access,
        _value: u64,
    ) -> Result<Seen, AgainstError> {
        match *self {}
    }

    pub(super) fn call(
        &self,
        _process: usize,
        _operation: &Operation,
        _value: u64,
        _live: &[usize],
    ) -> Result<Seen, AgainstError> {
        match *self {}
    }
}
