//! Acknowledgement by replicas.
//!
//! `WAIT` reports how many replicas have received the writes of *its own connection*, and it blocks every command
//! behind it. So a script that needs an acknowledgement does not use the connection that all requests share: it goes on
//! a separate connection, with a `WAIT` behind it. Scripts that arrive while a `WAIT` is in flight form the next batch
//! and share one `WAIT`.
//!
//! A script reaches this room only if its policy asks for replicas and its server may have some. The steps:
//!
//! 1. Choose the path by the policy and by the last known replication status: the shared connection, the shared
//!    connection plus a status check, or the ack batcher.
//! 2. The ack batcher runs the script and its `WAIT`. The script's reply comes first, the replica count later.
//! 3. The ack policy compares the count with the number it needs. The caller releases a grant that falls short.

mod batcher;
mod demand;
mod history;
mod policy;
mod run;
mod wait_connection;

pub(crate) use self::demand::{Purpose, give_up_if_strict};
pub(crate) use self::policy::AckPolicy;
pub(crate) use self::run::{PendingAck, eval};
