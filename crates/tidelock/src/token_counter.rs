//! The counter behind the fencing tokens of a lock: reads it, and raises it.

use crate::error::{Error, ErrorKind, Result};
use crate::lock::FencedLock;
use crate::store::{LockKind, TokenCounter};
use crate::types::FencingToken;

impl FencedLock {
    /// Raises the counter of the fencing tokens: each later grant of this lock has a token of at least `at_least`.
    /// Returns the smallest token that the next grant can have. For a lock whose resource has seen larger tokens than the
    /// store now gives: after a move to another store, or after the store has lost its data.
    ///
    /// It never lowers the counter, may be repeated, and leaves a hold and its token as they are. The store decides at
    /// one instant; a grant counts as later if the store decides it after that. On `sqlite:`, PostgreSQL and MySQL all
    /// locks of the file or table share the counter, so the tokens of the others grow too.
    ///
    /// *Hand-off*: a process that holds the lock at that instant may have reserved tokens for its own waiters. The
    /// waiters of this client get none of them any more. The waiters of another client may, for as long as its hold may
    /// be [handed off](crate::HandOff::within): by default 10 ms after its grant. To exclude that too, call this while
    /// you hold the lock.
    ///
    /// *Failover*: on Redis the call does not wait for replicas. A replica that is promoted before it has received the
    /// raised counter counts from the old number. Repeat the call after a failover. Or acquire the lock once after the
    /// call with [`ReplicaAck::All`](crate::ReplicaAck::All): its grant brings the counter to the replicas.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), before any traffic, if the store has no counter that can be raised: on
    /// etcd and ZooKeeper a token is the store's own revision, and memcached, session locks and sets have none.
    /// [`InvalidOptions`](ErrorKind::InvalidOptions), before any traffic, for a number that the counter cannot reach: at
    /// most 2^63-1, and 2^53 for a lock that is shared with Redisson. [`WrongType`](ErrorKind::WrongType) if the counter
    /// is at its end or is no number. [`Unavailable`](ErrorKind::Unavailable), [`Refused`](ErrorKind::Refused),
    /// [`InvalidName`](ErrorKind::InvalidName), and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the reply was lost:
    /// repeat the call.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the counter may or may not have been raised. Repeat the call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::FencingToken;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let ledger = client.lock("ledger").fenced();
    /// let newest_in_the_table = 5008;
    /// let next = ledger.raise_token(FencingToken::new(newest_in_the_table + 1)).await?;
    /// assert_eq!(next.get(), 5009);
    /// # Ok(()) }
    /// ```
    pub async fn raise_token(&self, at_least: FencingToken) -> Result<FencingToken> {
        let name = self.checked_name()?;
        let raised = async {
            if at_least.get() > FencingToken::MAX.get() {
                return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                    "{at_least} is no fencing token; the largest is {}",
                    FencingToken::MAX
                )));
            }
            let counter = self.token_counter()?;
            let raised = counter.raise(&name, at_least.get().saturating_sub(1));
            let newest = self.context.core.steward.answered(raised).await?;
            let next = FencingToken::new(newest).next();
            // Set after the reply and before we return: a hand-off that is decided from now on is a later grant.
            if let Some(queues) = &self.context.queues {
                queues.raised(&name, at_least);
            }
            Ok(next)
        };
        raised.await.map_err(|error| error.on_lock(&name))
    }

    /// The newest fencing token: no grant of this lock so far has a larger one, and every later grant has. `None`: there
    /// was no grant with a token. On `sqlite:`, PostgreSQL and MySQL it may be the token of another lock, because the
    /// locks share a counter, and on `memory:` if this lock was not used for long; on Redis it may be a reserved token that nobody got. On a store whose counter cannot be
    /// read (etcd, ZooKeeper) it is the token of the hold that has the lock now.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect), and [`WrongType`](ErrorKind::WrongType) if the counter is at its end or is no
    /// number.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let ledger = client.lock("ledger").fenced();
    /// assert_eq!(ledger.newest_token().await?, None);
    /// let guard = ledger.acquire().await?;
    /// assert!(ledger.newest_token().await?.is_some());
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub async fn newest_token(&self) -> Result<Option<FencingToken>> {
        if self
            .context
            .store
            .front()
            .extensions()
            .token_counter
            .is_none()
        {
            return Ok(self.inspect().await?.token);
        }
        let name = self.checked_name()?;
        let newest = async {
            let read = self.token_counter()?.raise(&name, 0);
            self.context.core.steward.answered(read).await
        };
        let newest = newest.await;
        let newest = newest.map_err(|error| error.without_effect().on_lock(&name))?;
        Ok((newest > 0).then(|| FencingToken::new(newest)))
    }

    fn token_counter(&self) -> Result<&dyn TokenCounter> {
        self.context.core.refuse_if_closed()?;
        self.context.store.need(LockKind::Fenced)?;
        let counter = self.context.store.front().extensions().token_counter;
        counter.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported).because(
                "this store takes its fencing tokens from its own revisions, which cannot be raised. Instead, let the resource forget the tokens it has seen, while nobody holds the lock; or keep the lock in a store with a counter",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[tokio::test]
    async fn a_counter_is_raised_up_to_the_largest_token_that_all_can_store() {
        let client = Client::connect("memory:").await.unwrap();
        let ledger = client.lock("ledger").fenced();
        let raised = async |number| ledger.raise_token(FencingToken::new(number)).await;
        assert_eq!(raised(0).await.unwrap().get(), 1);
        assert_eq!(ledger.newest_token().await.unwrap(), None);
        let most = FencingToken::MAX.get();
        assert_eq!(raised(most).await.unwrap(), FencingToken::MAX);
        let newest = FencingToken::new(most - 1);
        assert_eq!(ledger.newest_token().await.unwrap(), Some(newest));
        let error = raised(most + 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert_eq!(error.lock_name(), Some("ledger"));
    }
}
