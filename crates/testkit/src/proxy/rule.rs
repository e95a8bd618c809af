use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;

use super::signal::Signal;
use super::state::Shared;

/// Which message a rule is about.
#[derive(Debug, Clone)]
pub struct When {
    pub(super) push: bool,
    name: Option<String>,
    part: Vec<u8>,
    pub(super) skip: u64,
}

impl When {
    /// A request that contains these bytes.
    pub fn request(part: impl AsRef<[u8]>) -> Self {
        Self {
            push: false,
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
            push: true,
            ..Self::request(part)
        }
    }

    /// Lets the first `n` of them pass, counted from the making of the rule.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    pub(super) fn fits(&self, push: bool, name: &str, message: &[u8]) -> bool {
        self.push == push
            && self.name.as_deref().is_none_or(|wanted| wanted == name)
            && (self.part.is_empty()
                || message
                    .windows(self.part.len())
                    .any(|window| window == self.part))
    }
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It waits until [`Rule::release`], and all behind it on its way waits with it.
    Hold,
    /// It is lost; the connection stays.
    Drop,
    /// It is lost, and the connection is cut.
    Cut,
    /// The request reaches the server; its reply waits until [`Rule::release`], and all behind it waits with it.
    HoldReply,
    /// The request reaches the server and is answered; the reply is lost, the connection stays.
    DropReply,
    /// The request reaches the server and is answered; the reply is lost, and the connection is cut.
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

/// A handle to a rule. Dropping it changes nothing: the rule stands.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) rule: Arc<RuleState>,
    pub(super) shared: Arc<Shared>,
}

impl Rule {
    /// Ready once the rule has acted: for a rule about a reply, once the server has answered.
    pub async fn fired(&self) {
        self.fired_times(1).await;
    }

    /// Ready once the rule has acted `n` times.
    pub async fn fired_times(&self, n: u64) {
        self.rule.fired.until(|count| count >= n).await;
    }

    /// Blocks until the rule has acted.
    ///
    /// # Errors
    /// When it does not within `timeout`.
    pub fn wait_fired(&self, timeout: Duration) -> Result<()> {
        self.rule.fired.wait_while(timeout, |count| count < 1)
    }

    /// How often it has acted.
    pub fn count(&self) -> u64 {
        self.rule.fired.get()
    }

    /// Lets go on what it holds, now and in future.
    pub fn release(&self) {
        self.rule.open.send_replace(true);
    }

    /// Ends the rule. What it holds stays held until [`release`](Self::release).
    pub fn remove(&self) {
        self.shared
            .lock()
            .rules
            .retain(|(rule, _)| !Arc::ptr_eq(rule, &self.rule));
    }
}
