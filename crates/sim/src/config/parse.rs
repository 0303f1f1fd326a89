//! Parses the sizes, CPU lists, nodes and distances of the command line.
//!
//! ```text
//!  size      2G  512M  64K  4096       bytes, in units of 1024
//!  cpus      0-3,8                     as in Linux's cpulist files
//!  node      1:8G   0:1G,cpus=0-15     number, memory, CPUs
//!  distance  0,1:20                    two nodes, their distance in both directions
//! ```

use crate::config::{NodeConfig, NodeDistance};
use pagewright_types::{CpuId, CpuMask, NodeId};
use thiserror::Error;

/// Why an option of the command line cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigParseError {
    /// Not a size.
    #[error("'{input}' is not a size; write a number and K, M, G or T, such as 512M")]
    Size {
        /// The text.
        input: String,
    },
    /// A size of more than 64 bits.
    #[error("'{input}' is too large: a size has at most 64 bits")]
    Huge {
        /// The text.
        input: String,
    },
    /// Not a list of CPUs.
    #[error("'{input}' is not a list of CPUs; write numbers and ranges below {}, such as 0-3,8", CpuMask::MAX)]
    Cpus {
        /// The text.
        input: String,
    },
    /// Not a node.
    #[error("'{input}' is not a node; write NUMBER:SIZE or NUMBER:SIZE,cpus=LIST, such as 0:1G,cpus=0-15")]
    Node {
        /// The text.
        input: String,
    },
    /// Not a distance of two nodes.
    #[error("'{input}' is not a distance; write NODE,NODE:DISTANCE, such as 0,1:20")]
    Distance {
        /// The text.
        input: String,
    },
    /// A node number is repeated or missing.
    #[error("node {node} is given in place of node {expected}; nodes are numbered from 0 without gaps")]
    NodeOrder {
        /// The number given.
        node: NodeId,
        /// The number that is expected there.
        expected: usize,
    },
}

/// Parses a number of bytes.
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

/// Parses a list of CPUs.
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

/// Parses a node and its number.
///
/// # Errors
/// [`ConfigParseError::Node`], and the errors of [`size`] and [`cpus`].
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

/// Parses all nodes of a machine, in order.
///
/// # Errors
/// [`ConfigParseError::NodeOrder`], and the errors of [`node`].
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

/// Parses the distance of two nodes.
///
/// # Errors
/// [`ConfigParseError::Distance`].
pub fn distance(input: &str) -> Result<NodeDistance, ConfigParseError> {
    let parts = || {
        let (nodes, distance) = input.split_once(':')?;
        let (one, other) = nodes.split_once(',')?;
        let node = |text: &str| text.parse().ok().map(NodeId::new);
        Some(NodeDistance { nodes: [node(one)?, node(other)?], distance: distance.parse().ok()? })
    };
    parts().ok_or_else(|| ConfigParseError::Distance { input: input.to_owned() })
}
