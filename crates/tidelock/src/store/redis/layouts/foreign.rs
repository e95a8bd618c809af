//! Says what stands at a key that is no lock. The scripts of the locks only learn that it has another type.

use crate::error::{Error, ErrorKind};
use crate::store::Name;
use crate::store::redis::Redis;
use crate::store::redis::layouts::answer::not_lock;
use crate::store::redis::wire::request::Request;

/// Longer than any number that Redis counts with.
const NUMBER_CHARS: usize = 20;

impl Redis {
    /// The same error, with what the key is. If the server does not tell, the error stays as it was.
    pub(crate) async fn name_foreign(&self, name: &Name, error: Error) -> Error {
        let is_of_server = error.kind() == ErrorKind::WrongType
            && error
                .detail()
                .is_some_and(|it| it.contains("(server: WRONGTYPE"));
        if !is_of_server {
            return error;
        }
        match self.key_is(name).await {
            Some(what) => not_lock(&what).caused_by(error),
            None => error,
        }
    }

    async fn key_is(&self, name: &Name) -> Option<String> {
        let (key, deadline) = (name.as_str(), self.router.deadline());
        let ask = Request::new("TYPE").arg(key);
        let reply = self.router.ask(key, &ask, deadline).await.ok()?;
        let kind = reply.text()?;
        if kind != "string" {
            return Some(format!("a {kind}"));
        }
        let ask = Request::new("GETRANGE").arg(key).arg(0).arg(NUMBER_CHARS);
        let reply = self.router.ask(key, &ask, deadline).await.ok()?;
        let is_number = reply.text().is_some_and(|it| it.parse::<i64>().is_ok());
        Some(if is_number {
            "a semaphore or a latch, a number".to_owned()
        } else {
            "a string".to_owned()
        })
    }
}
