//! The locks of a command that are not one exclusive lock: a side of a read-write lock, or several locks as one.

use clap::Args;
use tidelock::{Client, Lock};

use crate::exit::Outcome;

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Hold the lock for reading, together with other readers; a store without read-write locks is an error
    #[arg(long, conflicts_with_all = ["write", "fenced", "also"])]
    pub(crate) read: bool,
    /// Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error
    #[arg(long, conflicts_with_all = ["fenced", "also"])]
    pub(crate) write: bool,
    /// Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them,
    /// so two commands cannot block each other, whatever the order of the names
    #[arg(long, value_name = "NAME", conflicts_with = "fenced")]
    pub(crate) also: Vec<String>,
    /// Wait in order of arrival; a store without fair locks is an error
    #[arg(long, conflicts_with_all = ["read", "write", "also"])]
    pub(crate) fair: bool,
}

impl Which {
    /// The lock that the flags ask for.
    pub(crate) fn lock(&self, client: &Client, name: &str) -> Outcome<Lock> {
        if self.read || self.write {
            let sides = client.read_write_lock(name)?;
            let side = if self.read {
                sides.read()
            } else {
                sides.write()
            };
            return Ok(side.clone());
        }
        if self.fair {
            return Ok(client.fair_lock(name));
        }
        if self.also.is_empty() {
            return Ok(client.lock(name));
        }
        let names = std::iter::once(name).chain(self.also.iter().map(String::as_str));
        Ok(client.multi_lock(names.map(|name| client.lock(name)))?)
    }
}
