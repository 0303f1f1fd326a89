//! Distances between nodes, as the firmware's SLIT gives them.
//!
//! Key type: [`NodeDistance`]. A pair of nodes without one has Linux's default.
//!
//! Not guaranteed: distances that differ by direction, which a SLIT may have.

use super::{ConfigError, MachineConfig};
use pagewright_types::NodeId;

/// The distance of a node to itself (Linux's `LOCAL_DISTANCE`; ACPI 6.5 §5.2.17).
pub const LOCAL_DISTANCE: u8 = 10;
/// The distance of two nodes without another one (Linux's `REMOTE_DISTANCE`).
pub const REMOTE_DISTANCE: u8 = 20;
/// The distance that means unreachable; no two nodes of a machine have it.
const UNREACHABLE: u16 = 255;

/// The distance between two nodes, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDistance {
    /// The two nodes.
    pub nodes: [NodeId; 2],
    /// The distance: 11 to 254, relative to the 10 of a node's own memory.
    pub distance: u16,
}

impl MachineConfig {
    /// The distance from each node to each node, row by row.
    pub fn distance_matrix(&self) -> Vec<u8> {
        let nodes = self.nodes.len();
        let default = |cell: usize| if cell / nodes == cell % nodes { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        let mut matrix: Vec<u8> = (0..nodes * nodes).map(default).collect();
        for NodeDistance { nodes: [one, other], distance } in &self.distances {
            matrix[one.index() * nodes + other.index()] = *distance as u8;
            matrix[other.index() * nodes + one.index()] = *distance as u8;
        }
        matrix
    }

    /// Checks that each distance is possible and is of two nodes of the machine.
    pub(super) fn validate_distances(&self) -> Result<(), ConfigError> {
        for (index, given) in self.distances.iter().enumerate() {
            let NodeDistance { nodes: [one, other], distance } = *given;
            if let Some(node) = [one, other].into_iter().find(|node| node.index() >= self.nodes.len()) {
                return Err(ConfigError::DistanceOfNoNode { node, nodes: self.nodes.len() });
            }
            if one == other {
                return Err(ConfigError::DistanceToItself { node: one });
            }
            // What Linux accepts of a SLIT (`slit_valid`).
            if !(u16::from(LOCAL_DISTANCE) + 1..UNREACHABLE).contains(&distance) {
                return Err(ConfigError::Distance { nodes: [one, other], distance });
            }
            if self.distances[..index].iter().any(|first| first.nodes == [one, other] || first.nodes == [other, one]) {
                return Err(ConfigError::DistanceTwice { nodes: [one, other] });
            }
        }
        Ok(())
    }
}
