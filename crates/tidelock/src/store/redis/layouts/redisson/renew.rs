//! Renewal of Redisson locks.

use crate::error::Result;
use crate::store::redis::Redis;
use crate::store::redis::layouts::scripts;
use crate::store::{Renewal, Renewed};

impl Redis {
    pub(crate) async fn renew_redisson(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        self.renew_or_split(batch, |batch| {
            self.renew_batch(&scripts::RENEW, batch, Vec::new(), Some(self.how()))
        })
        .await
    }
}
