//! Replaces `linux` where the host is not Linux on x86-64: a type without values.

use super::AgainstError;
use super::initial_state::HostSettings;
use super::missing_feature::MissingFeature;
use super::observation::Observation;
use crate::random::Operation;
use pagewright_types::{Access, VirtAddr};

/// A Linux side, of which there is none on this host.
pub(super) enum Linux {}

impl Linux {
    pub(super) fn start() -> Result<Self, AgainstError> {
        Err(AgainstError::NoLinux)
    }

    pub(super) fn missing(&self) -> &[MissingFeature] {
        match *self {}
    }

    pub(super) fn host(&self) -> HostSettings {
        match *self {}
    }

    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        match *self {}
    }

    pub(super) fn finish(&mut self) -> Result<(), AgainstError> {
        match *self {}
    }

    pub(super) fn fork_process(&mut self, _process: usize) -> Result<Observation, AgainstError> {
        match *self {}
    }

    pub(super) fn exit_process(&mut self, _process: usize) -> Result<Observation, AgainstError> {
        match *self {}
    }

    pub(super) fn minor_faults(&self, _process: usize) -> Result<u64, AgainstError> {
        match *self {}
    }

    pub(super) fn access(
        &self,
        _process: usize,
        _va: VirtAddr,
        _access: Access,
        _value: u64,
    ) -> Result<Observation, AgainstError> {
        match *self {}
    }

    pub(super) fn call(
        &self,
        _process: usize,
        _operation: &Operation,
        _value: u64,
        _live: &[usize],
    ) -> Result<Observation, AgainstError> {
        match *self {}
    }
}
