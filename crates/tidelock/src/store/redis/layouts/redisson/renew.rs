//! Renewal of Redisson locks.

use futures_util::future::join;

use crate::error::Result;
use crate::store::redis::Redis;
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::{Renewal, Renewed};

impl Redis {
    /// Locks and sides of read-write locks have a script each.
    pub(crate) async fn renew_redisson(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let is_side = |renewal: &&Renewal| renewal.ticket.kind.is_read_write();
        match batch.iter().filter(is_side).count() {
            0 => return self.renew_locks(batch).await,
            sides if sides == batch.len() => return self.renew_sides(batch).await,
            _ => {}
        }
        let (sides, locks): (Vec<&Renewal>, Vec<&Renewal>) = batch.iter().partition(is_side);
        let [sides, locks] = [sides, locks].map(|part| part.into_iter().cloned().collect());
        let (sides, locks): (Vec<Renewal>, Vec<Renewal>) = (sides, locks);
        // An error of one part concerns the connection or the slot, and so the other part too.
        let both = join(self.renew_sides(&sides), self.renew_locks(&locks)).await;
        let (mut of_sides, mut of_locks) = (both.0?.into_iter(), both.1?.into_iter());
        let answer = |renewal: &Renewal| {
            let of_kind = if is_side(&renewal) {
                &mut of_sides
            } else {
                &mut of_locks
            };
            of_kind.next().unwrap_or(Renewed::Gone)
        };
        Ok(batch.iter().map(answer).collect())
    }

    async fn renew_locks(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        self.renew_or_split(batch, |batch| {
            self.renew_batch(&scripts::RENEW, batch, Vec::new(), Some(self.how()))
        })
        .await
    }

    async fn renew_sides(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        self.renew_or_split(batch, |batch| {
            let holds = batch.iter().map(|one| keys::read_hold(&one.ticket));
            let holds = holds.map(std::borrow::Cow::into_owned).collect();
            self.renew_batch(&scripts::RENEW_SIDE, batch, holds, Some(self.how()))
        })
        .await
    }
}
