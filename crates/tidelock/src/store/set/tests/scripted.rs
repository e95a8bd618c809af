//! A set whose members answer as a test says, on a paused clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::store::set::in_doubt::InDoubtLog;
use crate::store::set::member::Member;
use crate::store::set::quorum::Quorum;
use crate::store::set::shared::{Rule, Shared};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, Background, BoxFuture, Capabilities, Clock,
    Env, Grant, Incarnation, LockKind, Name, Released, Renewal, Renewed, ReplicaAck, ServerRuns,
    Store, Ticket, Timers, Wait, WakeChannels, memory, ready,
};
use crate::testing::{Twist, Twisted};
use crate::types::OwnerMint;

/// The response timeout of a set, the longest lease, and the lease of each attempt.
pub(crate) const LIMIT: Duration = Duration::from_secs(8);

/// A member. Its answers are given one after the other; after the last of a kind it grants, keeps and frees everything, and
/// does not tell its run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<ScriptedAnswers>>);

#[derive(Debug, Default)]
struct ScriptedAnswers {
    queues: bool,
    /// How long each attempt takes.
    takes: Duration,
    attempts: VecDeque<AttemptReply>,
    renewals: VecDeque<Renewed>,
    ends: VecDeque<Result<Released>>,
    runs: VecDeque<Result<Option<Incarnation>>>,
    asked: Vec<AttemptRequest>,
    inspected: usize,
    /// `true`: withdrawals.
    ended: Vec<bool>,
    run_asked: usize,
}

impl Scripted {
    /// Its waiters have places in a queue.
    pub(crate) fn queueing(self) -> Self {
        self.0.lock().queues = true;
        self
    }

    pub(crate) fn taking(self, time: Duration) -> Self {
        self.0.lock().takes = time;
        self
    }

    pub(crate) fn answers(self, outcome: Result<Attempt>) -> Self {
        self.0.lock().attempts.push_back(outcome.into());
        self
    }

    pub(crate) fn grants(self) -> Self {
        self.answers(Ok(Attempt::Acquired(Grant::default())))
    }

    pub(crate) fn refuses(self, wait: Wait) -> Self {
        self.answers(Ok(Attempt::Held(wait)))
    }

    pub(crate) fn fails(self, kind: ErrorKind) -> Self {
        self.answers(Err(Error::new(kind)))
    }

    /// Grants, and an earlier request may still take effect.
    pub(crate) fn grants_in_doubt(self) -> Self {
        self.0.lock().attempts.push_back(AttemptReply {
            outcome: Ok(Attempt::Acquired(Grant::default())),
            in_doubt: true,
        });
        self
    }

    pub(crate) fn renews(self, answer: Renewed) -> Self {
        self.0.lock().renewals.push_back(answer);
        self
    }

    pub(crate) fn ends(self, answer: Result<Released>) -> Self {
        self.0.lock().ends.push_back(answer);
        self
    }

    pub(crate) fn tells_run(self, answer: Result<Option<Incarnation>>) -> Self {
        self.0.lock().runs.push_back(answer);
        self
    }

    /// The attempts so far.
    pub(crate) fn asked(&self) -> Vec<AttemptRequest> {
        self.0.lock().asked.clone()
    }

    pub(crate) fn inspected(&self) -> usize {
        self.0.lock().inspected
    }

    /// The releases so far. `true`: a withdrawal.
    pub(crate) fn ended(&self) -> Vec<bool> {
        self.0.lock().ended.clone()
    }

    /// How often it was asked for its run.
    pub(crate) fn run_asked(&self) -> usize {
        self.0.lock().run_asked
    }

    fn end(&self, withdraw: bool) -> Result<Released> {
        let mut script = self.0.lock();
        script.ended.push(withdraw);
        script.ends.pop_front().unwrap_or(Ok(Released::Freed))
    }
}

impl ServerRuns for Scripted {
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        let mut script = self.0.lock();
        script.run_asked += 1;
        ready(script.runs.pop_front().unwrap_or(Ok(None)))
    }
}

impl Twist for Scripted {
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        Capabilities {
            queues: self.0.lock().queues,
            wakes: true,
            ..inner.capabilities()
        }
    }

    fn server_runs<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn ServerRuns> {
        Some(self)
    }

    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let mut script = self.0.lock();
        script.asked.push(ask.clone());
        let granted = || Ok(Attempt::Acquired(Grant::default())).into();
        let (reply, takes) = (script.attempts.pop_front(), script.takes);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            reply.unwrap_or_else(granted)
        })
    }

    fn renew<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let mut script = self.0.lock();
        let each = batch
            .iter()
            .map(|_| script.renewals.pop_front().unwrap_or(Renewed::Kept));
        ready(Ok(each.collect()))
    }

    fn release<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        ready(self.end(false))
    }

    fn withdraw<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        ready(self.end(true))
    }

    fn inspect<'a>(
        &'a self,
        inner: &'a dyn Backend,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Snapshot>> {
        self.0.lock().inspected += 1;
        inner.inspect(name)
    }
}

/// What the members of a set have in common.
pub(crate) fn env() -> Env {
    let (background, _stop) = Background::start(Clock::Simulated).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Simulated), background, LIMIT);
    env.background.spawn(env.timers.clone().drive());
    env
}

/// An empty store that only this member has.
pub(crate) fn empty(env: &Env) -> Store {
    memory::open("", memory::CAPABILITIES, None, env).unwrap()
}

/// The store of a member.
pub(crate) fn scripted_store(env: &Env, script: &Scripted) -> Store {
    Twisted::wrap(empty(env), script.clone())
}

/// A set that needs all members. Each has a lock of its own.
pub(crate) fn all_of(members: &[&Scripted]) -> Arc<Shared> {
    let (env, locks) = (env(), ["a", "b", "c", "d", "e"]);
    let members = members.iter().zip(locks).map(|(script, lock)| {
        let store = scripted_store(&env, script);
        Member::new(store, Name::new(lock).ok(), lock.to_owned(), None)
    });
    set_of(Rule::All, &env, members)
}

/// A set that needs more than half of the members.
pub(crate) fn majority_of(quorum: Quorum, members: &[&Scripted]) -> Arc<Shared> {
    let env = env();
    let members = members.iter().enumerate().map(|(part, script)| {
        let store = scripted_store(&env, script);
        Member::new(store, None, format!("server {part}"), None)
    });
    set_of(Rule::Majority(quorum), &env, members)
}

/// Servers need not have been up for any time, and have a second for an answer.
pub(crate) fn quorum() -> Quorum {
    Quorum::new(Duration::from_secs(1), false, LIMIT)
}

pub(crate) fn set_of(rule: Rule, env: &Env, members: impl Iterator<Item = Member>) -> Arc<Shared> {
    Arc::new(Shared {
        rule,
        members: members.map(Arc::new).collect(),
        timers: env.timers.clone(),
        background: env.background.clone(),
        response_timeout: LIMIT,
        in_doubt_log: InDoubtLog::default(),
        pauses: WakeChannels::new(env.timers.clone(), |_| {}),
    })
}

pub(crate) fn ticket() -> Ticket {
    Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    }
}

/// An attempt of a caller that waits for a minute.
pub(crate) fn patient(ticket: &Ticket) -> AttemptRequest {
    AttemptRequest {
        patience: Duration::from_secs(60),
        ..AttemptRequest::once(ticket.clone(), LIMIT, ReplicaAck::Off)
    }
}

/// The wait of an attempt that was refused.
pub(crate) fn refusal(attempt: Result<Attempt>) -> Wait {
    match attempt {
        Ok(Attempt::Held(wait)) => wait,
        other => panic!("{other:?}"),
    }
}
