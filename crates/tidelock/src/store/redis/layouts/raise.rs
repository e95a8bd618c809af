//! Raises the counter of the fencing tokens.

use crate::error::{Error, ErrorKind, Result};
use crate::store::Name;
use crate::store::redis::layouts::plain::{PlainLockWords, RAISE_TOKEN};
use crate::store::redis::layouts::{Layout, answer, scripts};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, keys};

/// Bounds the counter that Java shares: Redisson reads it as a number of Lua, which is exact up to here. Beyond, two
/// Java holders could see the same token.
const MAX_SHARED: u64 = 1 << 53;

impl Redis {
    /// See [`TokenCounter::raise`](crate::store::TokenCounter::raise).
    pub(crate) async fn raise_counter(&self, name: &Name, newest: u64) -> Result<u64> {
        if self.layout == Layout::Redisson && newest >= MAX_SHARED {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "the next token would be {}; Redisson counts exactly only up to {MAX_SHARED} (2^53), and nothing was changed. Use smaller tokens, or plain locks (client.plain_lock, ?locks=plain), which no Redisson shares",
                newest.saturating_add(1)
            )));
        }
        self.router.check(name)?;
        let (newest, deadline) = (&*newest.to_string(), self.router.deadline());
        let counter = &*match self.layout {
            Layout::Redisson => keys::token(name),
            Layout::Plain => keys::plain_token(name),
        };
        let script = ScriptJob {
            script: &scripts::RAISE_TOKEN,
            keys: &[counter],
            args: &[newest],
            deadline,
        };
        let words = PlainLockWords {
            name: counter, // the key that chooses the server
            counter: Some(counter),
            newest,
            ..PlainLockWords::default()
        };
        let reply = match self.layout {
            Layout::Redisson => self.router.run(&script).await?,
            Layout::Plain => self.run_either(script, &RAISE_TOKEN, words).await?,
        };
        let number = match reply.list().unwrap_or_default() {
            [Reply::Int(4), rest @ ..] => {
                let foreign = rest.first().and_then(Reply::text).unwrap_or_default();
                return Err(answer::no_token(counter, foreign));
            }
            [Reply::Int(1), Reply::Nil] => Some(0),
            [Reply::Int(1), number] => number.int().and_then(|number| u64::try_from(number).ok()),
            _ => None,
        };
        number.ok_or_else(|| unexpected(&reply))
    }
}
