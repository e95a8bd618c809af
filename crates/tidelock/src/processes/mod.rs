//! Which processes use a store, what each of them holds longest and waits for, which elections it leads and which jobs it
//! ran last, and which locks are awaited.
//!
//! Each client writes a record of its process to the store every ten seconds, unless
//! [`publish_process_info`](crate::ClientBuilder::publish_process_info) is off. An acquisition writes nothing of it. The
//! record of a process in another language is read too, if it writes one; the page on the wire protocol has its text.

mod awaited;
mod beat;
mod list;
mod process;
mod record;

pub use self::awaited::{AwaitedLock, WaitingProcess};
pub(crate) use self::beat::publish;
pub use self::process::{
    Process, ProcessElection, ProcessHold, ProcessJob, ProcessWait, WaitBucket,
};
