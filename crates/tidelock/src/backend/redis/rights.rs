//! What the user may do, found out by doing it under names of our own, which are gone afterwards.

use super::conn::Request;
use super::doctor::allowed;
use super::link::Link;
use super::subscriber::Subscriber;
use super::{keys, scripts};
use crate::backend::{ClientId, Name};
use crate::error::Result;
use crate::snapshot::{Finding, Severity};

use Severity::{Advice, Danger, Good};

pub(super) async fn findings(link: &Link, subscriber: &Subscriber) -> Result<Vec<Finding>> {
    let name = Name::new(format!("{}probe", keys::OURS))?;
    let (channel, counter) = (keys::channel(&name), keys::token(&name));
    Ok(vec![
        scripts_work(link).await?,
        channels(link, subscriber, &channel).await?,
        fencing(link, &counter).await?,
        operators(link, &channel, &counter).await?,
    ])
}

/// A lock nobody else has; it goes by itself should the end of it be lost.
struct Probe {
    key: String,
    tombstone: String,
}

const OWNER: &str = "probe:1";

impl Probe {
    fn new() -> Self {
        let key = format!("{}probe:{}", keys::OURS, ClientId::random().as_str());
        let tombstone = format!("{key}:withdrawn");
        Self { key, tombstone }
    }

    async fn acquire(&self, link: &Link) -> Result<()> {
        let keys = [&*self.key, &*self.tombstone];
        link.eval(&scripts::ACQUIRE, &keys, &["1000", OWNER], link.deadline())
            .await
            .map(drop)
    }
}

async fn scripts_work(link: &Link) -> Result<Finding> {
    let probe = Probe::new();
    let tried = async {
        let deadline = link.deadline();
        probe.acquire(link).await?;
        link.eval(&scripts::RENEW, &[&probe.key], &["1000", OWNER], deadline)
            .await?;
        link.eval(
            &scripts::RELEASE,
            &[&probe.key, &probe.tombstone],
            &[OWNER, &probe.key, "1"],
            deadline,
        )
        .await
    };
    Ok(match allowed(tried.await)? {
        Some(_) => Finding::new(
            Good,
            "rights: scripts",
            "a lock was taken, kept and freed",
            "the user may run what locks need",
        ),
        None => Finding::new(Danger, "rights: scripts", "refused", "this user cannot lock").advise(
            "allow the keys of your locks and tidelock:*, and +evalsha +eval +exists +hget +hset +hexists +hdel +pttl +pexpire +set",
        ),
    })
}

/// A message on the channel of a lock nobody has, and a subscription to it.
async fn channels(link: &Link, subscriber: &Subscriber, channel: &str) -> Result<Finding> {
    const ALLOW: &str = "allow &redisson_lock__channel:* with +publish +subscribe +unsubscribe";
    let message = Request::new("PUBLISH").arg(channel).arg("0");
    let sent = link.ask(&message, link.deadline()).await;
    if allowed(sent)?.is_none() {
        return Ok(Finding::new(
            Danger,
            "rights: channels",
            "refused",
            "waiters are not woken by this client's releases; Java waiters sleep until the lease ends",
        )
        .advise(ALLOW));
    }
    if subscriber.arm(channel, link.limit()).await.is_none() {
        return Ok(Finding::new(
            Danger,
            "rights: channels",
            "messages can be sent, and not be heard",
            "this client's waiters ask again and again instead of being woken",
        )
        .advise(ALLOW));
    }
    Ok(Finding::new(
        Good,
        "rights: channels",
        "a message was sent, and could be heard",
        "waiters are woken",
    ))
}

async fn fencing(link: &Link, counter: &str) -> Result<Finding> {
    let moved = link
        .eval(&scripts::TRY_COUNTER, &[counter], &[], link.deadline())
        .await;
    Ok(match allowed(moved)? {
        Some(_) => Finding::new(
            Good,
            "rights: fencing",
            "a counter was moved and removed",
            "fenced locks work",
        ),
        None => Finding::new(
            Advice,
            "rights: fencing",
            "refused",
            "fenced locks fail; others work",
        )
        .advise("allow ~redisson_lock_token:* and +incr +get; this try also needs +del"),
    })
}

/// What nobody needs who only locks.
async fn operators(link: &Link, channel: &str, counter: &str) -> Result<Finding> {
    let probe = Probe::new();
    let ask = |request: Request| async move { link.ask(&request, link.deadline()).await.map(drop) };
    let mut refused = Vec::new();
    let mut note = |what, result: Result<()>| -> Result<()> {
        if allowed(result)?.is_none() {
            refused.push(what);
        }
        Ok(())
    };
    let taken = allowed(probe.acquire(link).await)?.is_some();
    let shown = link
        .eval(
            &scripts::INSPECT,
            &[&probe.key],
            &[counter, channel],
            link.deadline(),
        )
        .await;
    note("show (+hgetall)", shown.map(drop))?;
    note("tokens (+get)", ask(Request::new("GET").arg(counter)).await)?;
    let listeners = Request::new("PUBSUB").arg("NUMSUB").arg(channel);
    note("waiters (+pubsub|numsub)", ask(listeners).await)?;
    note("ls (+scan)", ask(Request::new("SCAN").arg(0)).await)?;
    let fields = Request::new("HSCAN").arg(&probe.key).arg(0);
    note("ls (+hscan)", ask(fields).await)?;
    if taken {
        let freed = link
            .eval(
                &scripts::FORCE_RELEASE,
                &[&probe.key],
                &[channel],
                link.deadline(),
            )
            .await;
        note("unlock (+type +del)", freed.map(drop))?;
    }
    Ok(if refused.is_empty() {
        Finding::new(
            Good,
            "rights: operators",
            "a lock was looked at, listed and broken",
            "`tidelock show`, `ls` and `unlock` work",
        )
    } else {
        Finding::new(
            Advice,
            "rights: operators",
            format!("refused: {}", refused.join(", ")),
            "locks work; who wants to look at them, or to break one, is refused this",
        )
        .advise("leave it so, or allow what is named")
    })
}
