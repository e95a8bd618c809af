use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, watch};

use super::resp::{self, Kind};
use super::rule::{Of, Rule, RuleState, Then, When};
use super::signal::Signal;
use super::{Logged, Mode, Way};

const LOG: usize = 10_000;
const ARGUMENT: usize = 256;

/// The decision for one message.
#[derive(Debug)]
pub(super) enum Fate {
    Pass,
    Hold(Arc<RuleState>),
    Drop,
    Cut,
}

/// A request that was forwarded and has no reply yet, with the rule about its reply.
#[derive(Debug)]
struct Pending {
    confirmation: bool,
    rule: Option<Arc<RuleState>>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) modes: [watch::Sender<Mode>; 2],
    pub(super) cut: Arc<Notify>,
    pending: VecDeque<Pending>,
}

/// A new connection and its controls.
pub(super) struct Accepted {
    pub(super) id: u64,
    pub(super) upstream: SocketAddr,
    pub(super) modes: [watch::Receiver<Mode>; 2],
    pub(super) cut: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) upstream: SocketAddr,
    pub(super) refuse: bool,
    pub(super) accepted: u64,
    modes: [Mode; 2],
    pub(super) links: HashMap<u64, Link>,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) log: VecDeque<Logged>,
    /// Each rule with the number of messages that it has matched.
    pub(super) rules: Vec<(Arc<RuleState>, u64)>,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Whether to parse messages at all.
    pub(super) looks: bool,
    pub(super) changed: Signal,
}

impl Shared {
    pub(super) fn new(upstream: SocketAddr, looks: bool) -> Self {
        let state = State {
            upstream,
            refuse: false,
            accepted: 0,
            modes: [Mode::Pass; 2],
            links: HashMap::new(),
            counts: BTreeMap::new(),
            log: VecDeque::new(),
            rules: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            looks,
            changed: Signal::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_mode(&self, way: Way, mode: Mode) {
        // One lock covers the default and the open connections. Otherwise a connection accepted in between would keep
        // the old mode.
        let mut state = self.lock();
        state.modes[way as usize] = mode;
        for link in state.links.values() {
            link.modes[way as usize].send_replace(mode);
        }
    }

    pub(super) fn cut(&self, which: impl Fn(u64) -> bool) -> usize {
        let mut state = self.lock();
        let before = state.links.len();
        state.links.retain(|&id, link| {
            let goes = which(id);
            if goes {
                link.cut.notify_one();
            }
            !goes
        });
        let gone = before - state.links.len();
        drop(state);
        self.changed.bump();
        gone
    }

    pub(super) fn add_rule(self: &Arc<Self>, when: When, then: Then, once: bool) -> Rule {
        let rule = Arc::new(RuleState {
            when,
            then,
            once,
            fired: Signal::new(),
            open: watch::Sender::new(false),
        });
        self.lock().rules.push((Arc::clone(&rule), 0));
        Rule {
            rule,
            shared: Arc::clone(self),
        }
    }

    /// Registers a new connection. `None` while the proxy refuses all.
    pub(super) fn accept(&self) -> Option<Accepted> {
        let mut state = self.lock();
        state.accepted += 1;
        let accepted = (!state.refuse).then(|| {
            let modes = state.modes.map(watch::Sender::new);
            let steering = [modes[0].subscribe(), modes[1].subscribe()];
            let cut = Arc::new(Notify::new());
            let (id, upstream) = (state.accepted, state.upstream);
            state.links.insert(
                id,
                Link {
                    modes,
                    cut: Arc::clone(&cut),
                    pending: VecDeque::new(),
                },
            );
            Accepted {
                id,
                upstream,
                modes: steering,
                cut,
            }
        });
        drop(state);
        self.changed.bump();
        accepted
    }

    pub(super) fn forget(&self, id: u64) {
        self.lock().links.remove(&id);
        self.changed.bump();
    }

    pub(super) fn request(&self, id: u64, message: &[u8]) -> Fate {
        let mut state = self.lock();
        let name = state.note(id, message);
        let rule = state.pick(Of::Request, &name, message);
        let reply_rule = rule
            .as_ref()
            .filter(|rule| rule.then.is_about_reply())
            .cloned();
        let fate = match &rule {
            Some(rule) if reply_rule.is_none() => rule.fate(),
            _ => Fate::Pass,
        };
        // A dropped request gets no reply, so we do not expect one. Otherwise we would match the next reply to it.
        if matches!(fate, Fate::Pass | Fate::Hold(_))
            && let Some(link) = state.links.get_mut(&id)
        {
            let confirmation = name.ends_with("SUBSCRIBE");
            link.pending.push_back(Pending {
                confirmation,
                rule: reply_rule,
            });
        }
        drop(state);
        self.changed.bump();
        fate
    }

    pub(super) fn reply(&self, id: u64, message: &[u8]) -> Fate {
        let mut state = self.lock();
        let rule = match resp::kind(message) {
            Kind::Push => state.pick(Of::Push, "", message),
            kind => state
                .links
                .get_mut(&id)
                .and_then(|link| link.answered(&kind, message)),
        };
        rule.map_or(Fate::Pass, |rule| rule.fate())
    }

    /// Bytes from a client on a connection that we cannot parse.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Fate {
        let rule = self.lock().pick(Of::Bytes, "", bytes);
        rule.map_or(Fate::Pass, |rule| rule.fate())
    }
}

impl RuleState {
    fn fate(self: &Arc<Self>) -> Fate {
        self.fired.bump();
        match self.then {
            Then::Hold | Then::HoldReply => Fate::Hold(Arc::clone(self)),
            Then::Drop | Then::DropReply => Fate::Drop,
            Then::Cut | Then::CutReply => Fate::Cut,
        }
    }
}

impl Link {
    /// Finds the request that this message answers, and returns the rule about it. The server answers a subscription
    /// with one confirmation per channel, of which the first settles the request, or with an error.
    fn answered(&mut self, kind: &Kind, message: &[u8]) -> Option<Arc<RuleState>> {
        if *kind == Kind::Confirmation {
            return self.pop_confirmation()?.rule;
        }
        if !message.starts_with(b"-") {
            while self.pop_confirmation().is_some() {}
        }
        self.pending.pop_front()?.rule
    }

    fn pop_confirmation(&mut self) -> Option<Pending> {
        let first = self
            .pending
            .front()
            .is_some_and(|pending| pending.confirmation);
        if first {
            self.pending.pop_front()
        } else {
            None
        }
    }
}

impl State {
    fn note(&mut self, connection: u64, message: &[u8]) -> String {
        let words = resp::strings(message);
        let name = words.first().map_or(String::new(), |name| {
            String::from_utf8_lossy(name).to_uppercase()
        });
        *self.counts.entry(name.clone()).or_default() += 1;
        let args = words
            .iter()
            .skip(1)
            .map(|word| word[..word.len().min(ARGUMENT)].to_vec())
            .collect();
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(Logged {
            connection,
            name: name.clone(),
            args,
            at: Instant::now(),
        });
        name
    }

    /// The first rule that matches this message and has skipped enough messages.
    fn pick(&mut self, of: Of, name: &str, message: &[u8]) -> Option<Arc<RuleState>> {
        let at = self.rules.iter_mut().position(|(rule, passed)| {
            let fits = rule.when.fits(of, name, message);
            *passed += u64::from(fits);
            fits && *passed > rule.when.skip
        })?;
        let rule = Arc::clone(&self.rules[at].0);
        if rule.once {
            self.rules.remove(at);
        }
        Some(rule)
    }
}
