//! Raises the counter of the fencing tokens.

use crate::error::Result;
use crate::store::sqlite::Sqlite;
use crate::store::sqlite::connection::Durable;
use crate::store::sqlite::decision::no_token;
use crate::store::sqlite::worker::Worker;
use crate::store::{BoxFuture, Name, TokenCounter};

impl TokenCounter for Sqlite {
    fn raise<'a>(&'a self, _name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        Box::pin(raise(&self.worker, newest))
    }
}

#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is not general over the lifetime of the transaction"
)]
async fn raise(worker: &Worker, newest: u64) -> Result<u64> {
    let newest = i64::try_from(newest).unwrap_or(i64::MAX);
    let raised = worker.call(move |database| {
        // Read first: a call that changes nothing needs no write lock.
        match database.read(|view| view.counter())? {
            Ok(last) if last < newest => {
                database.write(Durable::Yes, |view| view.raise_counter(newest))
            }
            enough => Ok(enough),
        }
    });
    match raised.await? {
        Ok(last) => Ok(last.unsigned_abs()),
        Err(value) => Err(no_token(&value)),
    }
}
