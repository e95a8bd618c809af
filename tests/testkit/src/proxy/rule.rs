use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;

use super::signal::Signal;
use super::state::Shared;

/// What a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Request,
    Push,
    /// What a client sends on a connection that we cannot parse.
    Bytes,
}

/// Selects the messages of a rule.
#[derive(Debug, Clone)]
pub struct When {
    of: Of,
    name: Option<String>,
    part: Vec<u8>,
    pub(super) skip: u64,
}

impl When {
    /// A request that contains these bytes.
    pub fn request(part: impl AsRef<[u8]>) -> Self {
        Self {
            of: Of::Request,
            name: None,
            part: part.as_ref().to_vec(),
            skip: 0,
        }
    }

    /// A command of this name (in any case) that contains these bytes.
    pub fn command(name: &str, part: impl AsRef<[u8]>) -> Self {
        Self {
            name: Some(name.to_uppercase()),
            ..Self::request(part)
        }
    }

    /// Any request.
    pub fn any_request() -> Self {
        Self::request("")
    }

    /// A message pushed by the server (not the confirmation of a subscription) that contains these bytes.
    pub fn push(part: impl AsRef<[u8]>) -> Self {
        Self {
            of: Of::Push,
            ..Self::request(part)
        }
    }

    /// Bytes from a client that contain these, on a connection that the proxy cannot parse. They must arrive in one piece, as
    /// those of a small request do. `Then` is `Hold` or `Cut`: without some of its bytes such a connection makes no sense.
    pub fn bytes(part: impl AsRef<[u8]>) -> Self {
        Self {
            of: Of::Bytes,
            ..Self::request(part)
        }
    }

    /// Skips the first `n` matching messages after the rule is added.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    pub(super) fn fits(&self, of: Of, name: &str, message: &[u8]) -> bool {
        self.of == of
            && self.name.as_deref().is_none_or(|wanted| wanted == name)
            && (self.part.is_empty()
                || message
                    .windows(self.part.len())
                    .any(|window| window == self.part))
    }
}

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The message waits until [`Rule::release`], and everything behind it in that direction waits too.
    Hold,
    /// The proxy drops the message; the connection stays.
    Drop,
    /// The proxy drops the message and cuts the connection.
    Cut,
    /// The request reaches the server. Its reply waits until [`Rule::release`], and everything behind the reply waits
    /// too.
    HoldReply,
    /// The request reaches the server. The proxy drops the reply; the connection stays.
    DropReply,
    /// The request reaches the server. The proxy drops the reply and cuts the connection.
    CutReply,
}

impl Then {
    pub(super) fn is_about_reply(self) -> bool {
        matches!(self, Self::HoldReply | Self::DropReply | Self::CutReply)
    }
}

#[derive(Debug)]
pub(super) struct RuleState {
    pub(super) when: When,
    pub(super) then: Then,
    pub(super) once: bool,
    pub(super) fired: Signal,
    pub(super) open: watch::Sender<bool>,
}

/// A handle to a rule. Drop changes nothing: the rule stays.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) rule: Arc<RuleState>,
    pub(super) shared: Arc<Shared>,
}

impl Rule {
    /// Completes once the rule has acted. A rule about a reply acts when the server has replied.
    pub async fn fired(&self) {
        self.fired_times(1).await;
    }

    /// Completes once the rule has acted `n` times.
    pub async fn fired_times(&self, n: u64) {
        self.rule.fired.until(|count| count >= n).await;
    }

    /// Blocks until the rule has acted.
    ///
    /// # Errors
    /// Fails when that takes longer than `timeout`.
    pub fn wait_fired(&self, timeout: Duration) -> Result<()> {
        self.rule.fired.wait_while(timeout, |count| count < 1)
    }

    /// How often it has acted.
    pub fn count(&self) -> u64 {
        self.rule.fired.get()
    }

    /// Lets the held messages pass, and does not hold later ones.
    pub fn release(&self) {
        self.rule.open.send_replace(true);
    }

    /// Removes the rule. Its held messages stay held until [`release`](Self::release).
    pub fn remove(&self) {
        self.shared
            .lock()
            .rules
            .retain(|(rule, _)| !Arc::ptr_eq(rule, &self.rule));
    }
}
