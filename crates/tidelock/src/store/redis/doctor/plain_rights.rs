//! Doctor checks for plain locks: takes a lock under a random name to find out which commands the user may run.

use std::time::Duration;

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::redis::Redis;
use crate::store::redis::doctor::allowed;
use crate::store::redis::keys;
use crate::store::redis::pubsub::keyspace_events;
use crate::store::{
    AttemptRequest, Backend, ClientId, LockKind, Name, Renewal, ReplicaAck, Ticket,
};
use crate::types::OwnerMint;

use Severity::{Advice, Danger, Good};

const LOCKS: DoctorCheck = DoctorCheck {
    subject: "rights: locks",
    good: "the user may run what plain locks need",
    severity: Danger,
    bad: "this user cannot lock",
    advice: "allow the keys of your locks and tidelock:*, and +evalsha +eval +exists +get +set +del +pttl +pexpire",
};

const TOKENS: DoctorCheck = DoctorCheck {
    subject: "rights: fencing",
    good: "tokens are there for those who ask for them",
    severity: Advice,
    bad: "locks with tokens fail; others work",
    advice: "allow ~tidelock:token:* and +incr +get; this try also needs +del",
};

const EVENTS: &str = "keyspace events";

/// The probe expires by itself if its release is lost.
const LEASE: Duration = Duration::from_secs(1);

impl Redis {
    pub(crate) async fn plain_findings(&self) -> Result<Vec<Finding>> {
        let reach = Finding::new(
            Good,
            "layout",
            "one plain key a lock",
            "shared with redis-py, redsync, node-redlock, rslock and bsm/redislock",
        );
        Ok(vec![
            reach,
            self.events().await?,
            self.lock_rights().await?,
            self.token_rights().await?,
        ])
    }

    /// Whether the servers send keyspace events. We check all of them, because a lock may lie on any.
    async fn events(&self) -> Result<Finding> {
        let mut told = Vec::new();
        for connection in self.router.everywhere() {
            told.push(keyspace_events::setting(&connection).await?);
        }
        let Some(told) = told.into_iter().collect::<Option<Vec<String>>>() else {
            return Ok(Finding::new(
                Advice,
                EVENTS,
                "cannot see: CONFIG is not allowed",
                "waiters look every 6 to 64 ms, whether the server would tell them or not",
            )
            .advise("allow +config|get"));
        };
        if let Some(little) = told.iter().find(|flags| !keyspace_events::suffice(flags)) {
            let found = match &**little {
                "" => "off".to_owned(),
                some => format!("{some}: not all that is needed"),
            };
            return Ok(Finding::new(
                Advice,
                EVENTS,
                found,
                "nobody is told of a release, so waiters look every 6 to 64 ms",
            )
            .advise("set notify-keyspace-events to Kgx; the server then has a message for each key that goes"));
        }
        let ask = Self::probe(LockKind::Mutex)?;
        let heard = self
            .shared
            .events
            .can_listen(&ask.ticket.name, self.router.limit());
        Ok(if heard.await {
            Finding::new(
                Good,
                EVENTS,
                told.join(" | "),
                "waiters are woken when a key goes, and look once a second besides",
            )
        } else {
            Finding::new(
                Advice,
                EVENTS,
                "told, and not to be heard",
                "waiters look every 6 to 64 ms, although the server would tell them",
            )
            .advise("allow &__keyspace@*__:* with +subscribe +unsubscribe")
        })
    }

    fn probe(kind: LockKind) -> Result<AttemptRequest> {
        let name = format!("{}probe:{{{}}}", keys::OURS, ClientId::random().as_str());
        let ticket = Ticket {
            kind,
            name: Name::new(name)?,
            owner: OwnerMint::new().fresh(),
        };
        Ok(AttemptRequest::once(ticket, LEASE, ReplicaAck::Off))
    }

    async fn lock_rights(&self) -> Result<Finding> {
        let ask = Self::probe(LockKind::Mutex)?;
        let tried = async {
            self.attempt(&ask).await.outcome?;
            let renewal = Renewal {
                ticket: ask.ticket.clone(),
                lease: LEASE,
                wish: ReplicaAck::Off,
            };
            self.renew(&[renewal]).await?;
            self.withdraw(&ask.ticket).await
        };
        Ok(match allowed(tried.await)? {
            Some(_) if !self.may_script() => Finding::new(
                Advice,
                "rights: locks",
                "a lock was taken, kept and freed by transactions",
                "locks work, with a trip more each, one after the other, and without asking replicas",
            )
            .advise("allow +evalsha +eval"),
            done => LOCKS.allowed(done.is_some(), "a lock was taken, kept and freed by scripts"),
        })
    }

    async fn token_rights(&self) -> Result<Finding> {
        let ask = Self::probe(LockKind::Fenced)?;
        let tried = async {
            self.attempt(&ask).await.outcome?;
            self.release(&ask.ticket).await?;
            let counter = keys::plain_token(&ask.ticket.name);
            let gone = crate::store::redis::wire::request::Request::new("DEL").arg(&counter);
            self.router
                .ask(&counter, &gone, self.router.deadline())
                .await
        };
        let is_allowed = allowed(tried.await)?.is_some();
        Ok(TOKENS.allowed(is_allowed, "a counter was moved and removed"))
    }
}
