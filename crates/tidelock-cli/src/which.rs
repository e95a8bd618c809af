//! The locks of a command that are not one exclusive lock: a side of a read-write lock, several locks as one, or permits
//! of a semaphore.

use std::str::FromStr;

use clap::Args;
use tidelock::{Client, Lock, Permits};

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
    /// Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores
    /// is an error
    ///
    /// The total counts only while the semaphore is new: later commands may leave it out, and its number stays.
    #[arg(long, value_name = "N[/TOTAL]", conflicts_with_all = ["read", "write", "fenced", "also", "fair"])]
    pub(crate) permits: Option<WantedPermits>,
}

/// How many permits a command wants, and how many a new semaphore gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantedPermits {
    count: u16,
    total: Option<u32>,
}

impl FromStr for WantedPermits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, total) = match text.split_once('/') {
            Some((count, total)) => (count, Some(total)),
            None => (text, None),
        };
        let wrong = || format!("{text:?} is not a number of permits, such as 2 or 2/5");
        let count = count.parse().map_err(|_| wrong())?;
        let total = total.map(str::parse).transpose().map_err(|_| wrong())?;
        if count == 0 || total.is_some_and(|total| total < u32::from(count)) {
            return Err(wrong());
        }
        Ok(Self { count, total })
    }
}

impl WantedPermits {
    /// The permits that the flag asks for. Sets the number of a new semaphore.
    pub(crate) async fn lock(self, client: &Client, name: &str) -> Outcome<Lock<Permits>> {
        let semaphore = client.semaphore(name);
        if let Some(total) = self.total {
            semaphore.set_permits_if_new(total).await?;
        }
        Ok(semaphore.permits(self.count))
    }
}

impl Which {
    /// The lock that the flags ask for.
    pub(crate) fn lock(&self, client: &Client, name: &str) -> Outcome<Lock> {
        if self.read || self.write {
            let sides = client.read_write_lock(name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_a_number_and_perhaps_a_total() {
        let wanted = |count, total| Ok(WantedPermits { count, total });
        assert_eq!("2/5".parse(), wanted(2, Some(5)));
        assert_eq!("1".parse(), wanted(1, None));
        assert_eq!("5/5".parse(), wanted(5, Some(5)));
        for wrong in ["0/5", "6/5", "", "/", "2/", "/5", "-1/5", "2/5/7", "two"] {
            assert!(wrong.parse::<WantedPermits>().is_err(), "{wrong}");
        }
    }
}
