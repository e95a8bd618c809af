//! Acknowledgement policy: how many replicas must have a grant before it counts as held.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
#[cfg(doc)]
use crate::guard::Guard;

/// How many replicas must acknowledge a grant before `acquire` returns it, and a renewal before it counts. A stricter
/// policy is slower, and safer when the primary is replaced.
///
/// | servers | `Any` | `Majority` | `All` |
/// | --- | --- | --- | --- |
/// | a primary alone | 0 | 0 | 0 |
/// | 1 + 1 replica | 1 | 1 | 1 |
/// | 1 + 2 | 1 | 1 | 2 |
/// | 1 + 3 | 1 | 2 | 3 |
/// | 1 + 4 | 1 | 2 | 4 |
///
/// The count covers the replicas that are connected to the primary at that moment. `Any`, and every renewal, counts
/// only replicas in sync. `Majority` and `All` also count replicas that disconnected within the last half minute,
/// because one of them may be about to replace the primary. A store without replicas (a single Redis, `sqlite:`,
/// `memory:`) fulfils every policy: the client sends nothing more.
///
/// `All` survives one failover. `Majority` and `Any` survive it if the promoted replica is among those that
/// acknowledged. Nothing guarantees that, because Sentinel ranks a replica's priority before its replication offset.
///
/// Releases are not acknowledged. If a failover forgets a release, the lock ends with its lease, which is safe.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{AcquireOptions, ReplicaAck, Client};
///
/// let client = Client::builder().acknowledge(ReplicaAck::Majority).connect("memory:").await?;
/// let careful = AcquireOptions::new().acknowledge(ReplicaAck::All);
/// let guard = client.lock("ledger").acquire_with(careful).await?;
/// assert!(guard.acknowledged().is_none()); // this store has no replicas
/// assert_eq!("all".parse::<ReplicaAck>()?, ReplicaAck::All);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ReplicaAck {
    /// No replica: a failover may forget a lock that was granted just before it.
    Off,
    /// One replica, if there is one. This is the default, and Redisson's behaviour. If the server does not allow the
    /// query, the client logs that once and grants locks without it.
    #[default]
    Any,
    /// As many replicas as make more than half of the servers, primary included. If the server does not allow the
    /// query, acquiring fails.
    Majority,
    /// Every replica that is connected now or was within the last half minute. If the server does not allow the query,
    /// acquiring fails.
    All,
}

impl ReplicaAck {
    /// How many of `replicas` must acknowledge.
    pub(crate) fn needed(self, replicas: u32) -> u32 {
        match self {
            Self::Off => 0,
            Self::Any => replicas.min(1),
            Self::Majority => replicas.div_ceil(2),
            Self::All => replicas,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Any => "any",
            Self::Majority => "majority",
            Self::All => "all",
        }
    }
}

impl fmt::Display for ReplicaAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for ReplicaAck {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        let all = [Self::Off, Self::Any, Self::Majority, Self::All];
        all.into_iter()
            .find(|policy| policy.word() == word)
            .ok_or_else(|| {
                Error::new(ErrorKind::InvalidOptions).because(format!(
                    "unknown policy {word:?}; use off, any, majority or all"
                ))
            })
    }
}

/// How many replicas an [`ReplicaAck`] policy demanded, and how many acknowledged the grant.
///
/// # Examples
/// ```no_run
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("redis+sentinel://one:26379/shop").await?;
/// let guard = client.lock("ledger").acquire().await?;
/// if let Some(replicas) = guard.acknowledged() {
///     assert!(replicas.reached >= replicas.needed);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Acknowledged {
    /// How many replicas had to acknowledge the grant.
    pub needed: u32,
    /// How many had acknowledged it when `acquire` returned; at least `needed`.
    pub reached: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_counts_servers_with_the_primary() {
        use ReplicaAck::{All, Any, Majority, Off};
        for (replicas, majority) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            assert_eq!(Majority.needed(replicas), majority, "1 + {replicas}");
            assert!(2 * (majority + 1) > replicas + 1, "more than half");
            assert_eq!(All.needed(replicas), replicas);
            assert_eq!(Any.needed(replicas), replicas.min(1));
            assert_eq!(Off.needed(replicas), 0);
        }
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in ["off", "any", "majority", "all"] {
            assert_eq!(policy.parse::<ReplicaAck>().unwrap().to_string(), policy);
        }
        let error = "most".parse::<ReplicaAck>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    }
}
