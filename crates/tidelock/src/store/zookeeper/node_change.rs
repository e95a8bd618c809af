//! The operations of a transaction: several changes of nodes that all take effect, or none.

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// The node exists, and has this version. `None`: any.
    Check { path: String, version: Option<i32> },
    /// Writes the node, if it has this version.
    Set {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    /// Creates a node that no session owns.
    Create { path: String, data: Vec<u8> },
    /// Deletes the node, if it has this version. `None`: any.
    Delete { path: String, version: Option<i32> },
}
