//! Observes the commands, messages and keys of a server from one look to the next.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::ears::{Ear, MARK};
use super::{Call, Mask, Message, Remains, remains};
use crate::servers::RedisServer;

/// The events since the last look, and the remaining keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The commands from clients, in the server's order.
    pub calls: Vec<Call>,
    /// The commands that the client sent without waiting for the reply. We sort them because their order is random.
    pub afterwards: Vec<Call>,
    /// The published messages.
    pub messages: Vec<Message>,
    /// The remaining keys.
    pub keys: Remains,
    /// Channels with a subscriber.
    pub subscribed: Vec<String>,
}

/// Observes a server that no other test uses.
pub struct Observer<'a> {
    server: &'a RedisServer,
    monitor: Ear,
    messages: Ear,
    mask: Mask,
    marks: u64,
    /// The time of the last script, by the server's clock since 1970.
    script_at: Duration,
}

impl fmt::Debug for Observer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl<'a> Observer<'a> {
    /// Starts to listen.
    ///
    /// # Errors
    /// Fails when the server does not answer.
    pub fn new(server: &'a RedisServer, mask: Mask) -> Result<Self> {
        // We subscribe before we start MONITOR; otherwise MONITOR would show our own PSUBSCRIBE.
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

    /// The placeholders for its output.
    pub fn mask(&mut self) -> &mut Mask {
        &mut self.mask
    }

    /// A word as its output shows it.
    pub fn shown(&self, word: String) -> String {
        self.mask.word(word)
    }

    /// The time since the last script that we saw. On a busy machine, the data of that script may be older by this much
    /// than on an idle machine.
    pub fn since_script(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().saturating_sub(self.script_at)
    }

    /// Waits until the server has received each of these commands (`script`, or the command's name; listed once per
    /// occurrence), then returns all events since the last look.
    ///
    /// # Errors
    /// Fails when one of them does not come within 20 s.
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

    /// The server runs one command after the other, so everything before the mark happened before it.
    fn mark(&mut self) -> Result<String> {
        self.marks += 1;
        let mark = self.marks.to_string();
        let _: i64 = self.server.query(&["PUBLISH", MARK, &mark])?;
        Ok(mark)
    }

    fn messages_before(&mut self, mark: &str) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            let mut message = self.messages.message()?;
            if message.channel == MARK && message.payload == mark {
                return Ok(messages);
            }
            message.channel = self.mask.word(message.channel);
            messages.push(message);
        }
    }

    fn subscribed(&self) -> Result<Vec<String>> {
        let channels: Vec<String> = self.server.query(&["PUBSUB", "CHANNELS"])?;
        let masked = channels.into_iter().map(|channel| self.mask.word(channel));
        let mut channels: Vec<String> = masked.collect();
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

/// Redisson does not wait for the replies to these.
fn is_afterthought(call: &Call) -> bool {
    is(call, "DEL") || is(call, "UNSUBSCRIBE")
}
