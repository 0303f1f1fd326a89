//! The command line's words for sizes, sets of CPUs and nodes.
//!
//! ```text
//!  size   2G  512M  64K  4096          bytes, in units of 1024
//!  cpus   0-3,8                        as in Linux's cpulist files
//!  node   1:8G   0:1G,cpus=0-15        number, memory, CPUs near it
//! ```

use crate::config::NodeConfig;
use pagewright_types::{CpuId, CpuMask, NodeId};
use thiserror::Error;

/// A word that means nothing, with the word.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigParseError {
    /// No size.
    #[error("'{input}' is no size; write a number and K, M, G or T, such as 512M")]
    Size {
        /// What was given.
        input: String,
    },
    /// A size of more than 64 bits.
    #[error("'{input}' is more than can be counted")]
    Huge {
        /// What was given.
        input: String,
    },
    /// No set of CPUs.
    #[error("'{input}' is no list of CPUs; write numbers and ranges below {}, such as 0-3,8", CpuMask::MAX)]
    Cpus {
        /// What was given.
        input: String,
    },
    /// No node.
    #[error("'{input}' is no node; write NUMBER:SIZE or NUMBER:SIZE,cpus=LIST, such as 0:1G,cpus=0-15")]
    Node {
        /// What was given.
        input: String,
    },
    /// A node number given twice, or one left out.
    #[error("node {node} is given where node {expected} should stand; nodes are counted from 0 without gaps")]
    NodeOrder {
        /// The number given.
        node: NodeId,
        /// The number that should follow.
        expected: usize,
    },
}

/// A number of bytes.
///
/// # Errors
/// [`ConfigParseError::Size`], [`ConfigParseError::Huge`].
pub fn size(input: &str) -> Result<u64, ConfigParseError> {
    let no_size = || ConfigParseError::Size { input: input.to_owned() };
    let (digits, shift) = match input.as_bytes().last() {
        Some(b'K' | b'k') => (&input[..input.len() - 1], 10),
        Some(b'M' | b'm') => (&input[..input.len() - 1], 20),
        Some(b'G' | b'g') => (&input[..input.len() - 1], 30),
        Some(b'T' | b't') => (&input[..input.len() - 1], 40),
        Some(_) | None => (input, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(no_size());
    }
    let huge = || ConfigParseError::Huge { input: input.to_owned() };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(huge)
}

/// A set of CPUs.
///
/// # Errors
/// [`ConfigParseError::Cpus`].
pub fn cpus(input: &str) -> Result<CpuMask, ConfigParseError> {
    let bad = || ConfigParseError::Cpus { input: input.to_owned() };
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u16>().ok().filter(|number| plain && usize::from(*number) < CpuMask::MAX);
        number.ok_or_else(bad)
    };
    let mut mask = CpuMask::EMPTY;
    for part in input.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(bad());
        }
        for cpu in first..=last {
            mask.insert(CpuId::new(cpu));
        }
    }
    Ok(mask)
}

/// A node and its number.
///
/// # Errors
/// [`ConfigParseError::Node`], and what [`size`] and [`cpus`] say.
pub fn node(input: &str) -> Result<(NodeId, NodeConfig), ConfigParseError> {
    let bad = || ConfigParseError::Node { input: input.to_owned() };
    let (number, rest) = input.split_once(':').ok_or_else(bad)?;
    let number = number.parse::<u8>().map_err(|_| bad())?;
    let (bytes, list) = match rest.split_once(',') {
        Some((bytes, list)) => (bytes, Some(list.strip_prefix("cpus=").ok_or_else(bad)?)),
        None => (rest, None),
    };
    let bytes = size(bytes)?;
    let cpus = list.map_or(Ok(CpuMask::EMPTY), cpus)?;
    Ok((NodeId::new(number), NodeConfig { bytes, cpus }))
}

/// All nodes of a machine, each as [`node`] reads it, in order.
///
/// # Errors
/// [`ConfigParseError::NodeOrder`], and what [`node`] says.
pub fn nodes<'a>(inputs: impl IntoIterator<Item = &'a str>) -> Result<Vec<NodeConfig>, ConfigParseError> {
    let mut nodes = Vec::new();
    for input in inputs {
        let (number, config) = node(input)?;
        if number.index() != nodes.len() {
            return Err(ConfigParseError::NodeOrder { node: number, expected: nodes.len() });
        }
        nodes.push(config);
    }
    Ok(nodes)
}
