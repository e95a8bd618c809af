//! Which server has a lock, and the connection to it: endpoints, Sentinel, the slots of a cluster, and redirections.

pub(crate) mod attachments;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod job;
pub(crate) mod known_nodes;
pub(crate) mod live_connection;
pub(crate) mod replication;
pub(crate) mod router;
pub(crate) mod sentinel;
pub(crate) mod server_run;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod transaction;
