//! Sees what happens on a server between two looks.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::ears::{Ear, MARK};
use super::{Call, Mask, Message, Remains, remains};
use crate::servers::RedisServer;

/// What happened since the last look, and what is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// What clients sent, in the server's order.
    pub calls: Vec<Call>,
    /// What they sent without waiting for an answer, sorted: its order is chance.
    pub afterwards: Vec<Call>,
    /// What was published.
    pub messages: Vec<Message>,
    /// The keys that are left.
    pub keys: Remains,
    /// Channels that somebody is subscribed to.
    pub subscribed: Vec<String>,
}

/// Listens to a server of its own.
pub struct Observer<'a> {
    server: &'a RedisServer,
    monitor: Ear,
    messages: Ear,
    mask: Mask,
    marks: u64,
    /// When the last script was seen to run, by the server's clock since 1970.
    script_at: Duration,
}

impl fmt::Debug for Observer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl<'a> Observer<'a> {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn new(server: &'a RedisServer, mask: Mask) -> Result<Self> {
        // The second would hear the first.
        let messages = Ear::messages(server)?;
        Ok(Self {
            server,
            monitor: Ear::monitor(server)?,
            messages,
            mask,
            marks: 0,
            script_at: Duration::ZERO,
        })
    }

    /// The placeholders it uses.
    pub fn mask(&mut self) -> &mut Mask {
        &mut self.mask
    }

    /// How long ago the last script ran that was looked at: what it has written may be so much older than it would be on a
    /// machine that keeps nobody waiting.
    pub fn since_script(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().saturating_sub(self.script_at)
    }

    /// Waits until each of these commands was sent (`script`, or the command's name; as often as it is listed), then
    /// tells what happened since the last look.
    ///
    /// # Errors
    /// When one of them is not sent within 20 s.
    pub fn look(&mut self, awaited: &[&str]) -> Result<Observed> {
        let mut seen = Vec::new();
        let mut missing: Vec<&str> = awaited.to_vec();
        while !missing.is_empty() {
            let call = self.next_call()?;
            if let Some(at) = missing.iter().position(|awaited| is(&call, awaited)) {
                missing.swap_remove(at);
            }
            seen.push(call);
        }
        let mark = self.mark()?;
        let end = Call::Command(vec!["PUBLISH".into(), MARK.into(), mark.clone()]);
        loop {
            match self.next_call()? {
                call if call == end => break,
                call => seen.push(call),
            }
        }
        let (mut afterwards, calls): (Vec<_>, Vec<_>) = seen.into_iter().partition(is_afterthought);
        afterwards.sort();
        Ok(Observed {
            calls,
            afterwards,
            messages: self.messages_before(&mark)?,
            keys: remains::read(self.server, &self.mask)?,
            subscribed: self.subscribed()?,
        })
    }

    fn next_call(&mut self) -> Result<Call> {
        let (at, words) = self.monitor.command()?;
        let call = self.mask.call(words);
        if matches!(call, Call::Script { .. }) {
            self.script_at = at;
        }
        Ok(call)
    }

    /// The server serves one command after the other, so what is seen before the mark happened before it.
    fn mark(&mut self) -> Result<String> {
        self.marks += 1;
        let mark = self.marks.to_string();
        let _: i64 = self.server.query(&["PUBLISH", MARK, &mark])?;
        Ok(mark)
    }

    fn messages_before(&mut self, mark: &str) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            let message = self.messages.message()?;
            if message.channel == MARK && message.payload == mark {
                return Ok(messages);
            }
            messages.push(message);
        }
    }

    fn subscribed(&self) -> Result<Vec<String>> {
        let mut channels: Vec<String> = self.server.query(&["PUBSUB", "CHANNELS"])?;
        channels.sort();
        Ok(channels)
    }
}

fn is(call: &Call, awaited: &str) -> bool {
    match call {
        Call::Script { .. } => awaited == "script",
        Call::Command(words) => words[0].eq_ignore_ascii_case(awaited),
    }
}

/// Redisson does not wait for the end of these.
fn is_afterthought(call: &Call) -> bool {
    is(call, "DEL") || is(call, "UNSUBSCRIBE")
}
