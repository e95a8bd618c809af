//! Doctor checks for Redisson locks: runs each command under probe names, which it deletes afterwards, to find out
//! what the user may do. In a cluster, only the nodes that have those names are checked.

use crate::error::{Error, Result};
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::redis::doctor::{
    allowed, fair_rights, latch_rights, read_write_rights, refused, semaphore_rights,
};
use crate::store::redis::keys;
use crate::store::redis::layouts::renew::renewed;
use crate::store::redis::layouts::scripts;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::wants_keys_declared;
use crate::store::redis::wire::reply::{MessageForm, Reply};
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::script::Script;
use crate::store::{ClientId, Name, Renewed};

use Severity::{Advice, Danger, Good};

const SCRIPTS: DoctorCheck = DoctorCheck {
    subject: "rights: scripts",
    good: "the user may run what locks need",
    severity: Danger,
    bad: "this user cannot lock",
    advice: "allow the keys of your locks and tidelock:*, and +evalsha +eval +exists +hget +hset +hexists +hdel +pttl +pexpire +set",
};

const FENCING: DoctorCheck = DoctorCheck {
    subject: "rights: fencing",
    good: "fenced locks work",
    severity: Advice,
    bad: "fenced locks fail; others work",
    advice: "allow ~redisson_lock_token:* and +incr +get; this try also needs +del",
};

const OTHER_LOCKS: DoctorCheck = DoctorCheck {
    subject: "rights: other locks",
    good: "waiters of Redisson's fair and read-write locks under a name of ours are woken",
    severity: Advice,
    bad: "locks work; waiters of Redisson's fair or read-write locks under a name of ours may sleep until a lease ends",
    advice: "allow ~redisson_lock_*:* and &redisson_*:* with +hlen +hrandfield +lindex +zscore",
};

const REPLICAS: DoctorCheck = DoctorCheck {
    subject: "rights: replicas",
    good: "a lock is given when replicas have it, where there are any",
    severity: Advice,
    bad: "replicas cannot be asked whether they have a lock: a failover may forget what was granted just before it, and who acknowledges by majority or all gets nothing",
    advice: "allow +wait",
};

const OPERATORS: DoctorCheck = DoctorCheck {
    subject: "rights: operators",
    good: "`tidelock show`, `ls` and `unlock` work",
    severity: Advice,
    bad: "locks work; who wants to look at them, or to break one, is refused this",
    advice: "leave it so, or allow what is named",
};

pub(crate) async fn findings(
    router: &Router,
    subscriber: &Subscriber,
    ways: PublishModes,
) -> Result<Vec<Finding>> {
    let name = Name::new(format!("{}probe", keys::OURS))?;
    let (channel, counter) = (keys::channel(&name), keys::token(&name));
    Ok(vec![
        scripts_work(router).await?,
        channels(router, subscriber, ways, &channel).await?,
        counting(router, subscriber, ways, &channel).await?,
        fencing(router, &counter).await?,
        others(router, ways, &name).await?,
        fair_rights::finding(router, &name).await?,
        read_write_rights::finding(router, &name).await?,
        latch_rights::finding(router, &name).await?,
        semaphore_rights::finding(router, ways, &name).await?,
        replicas(router, &counter).await?,
        operators(router, ways, &channel, &counter).await?,
    ])
}

/// A lock under a random name. It expires by itself if its release is lost.
struct Probe {
    /// The lock, and the tombstone of the owner.
    keys: [String; 2],
    /// How many of them the scripts get, as those of the locks of this user do.
    declared: usize,
}

const OWNER: &str = "probe:1";

impl Probe {
    fn new(router: &Router) -> Result<Self> {
        let name = Name::new(format!(
            "{}probe:{{{}}}",
            keys::OURS,
            ClientId::random().as_str()
        ))?;
        Ok(Self {
            keys: [name.as_str().to_owned(), keys::tombstone(&name, OWNER)],
            declared: if router.is_cluster() { 2 } else { 1 },
        })
    }

    fn key(&self) -> &str {
        &self.keys[0]
    }

    async fn eval(&self, router: &Router, script: &'static Script, args: &[&str]) -> Result<Reply> {
        let keys = [&*self.keys[0], &*self.keys[1]];
        let deadline = router.deadline();
        let asked = router.eval(script, &keys[..self.declared], args, deadline);
        asked.await
    }

    async fn acquire(&mut self, router: &Router) -> Result<()> {
        let args = ["1000", OWNER];
        match self.eval(router, &scripts::ACQUIRE, &args).await {
            Err(error) if wants_keys_declared(&error) => {
                self.declared = 2;
                self.eval(router, &scripts::ACQUIRE, &args).await
            }
            answer => answer,
        }
        .map(drop)
    }
}

async fn scripts_work(router: &Router) -> Result<Finding> {
    let mut probe = Probe::new(router)?;
    let tried = async {
        probe.acquire(router).await?;
        let (keys, args) = ([probe.key()], ["1000", OWNER]);
        let asked = router.eval(&scripts::RENEW, &keys, &args, router.deadline());
        let kept = asked.await?;
        // The script replies for each lock separately, also with an error.
        if let Some(Renewed::Failed(error)) = kept.list().and_then(<[Reply]>::first).map(renewed) {
            return Err(error);
        }
        let args = [OWNER, "publish", "1"];
        probe.eval(router, &scripts::RELEASE, &args).await
    };
    let is_allowed = allowed(tried.await)?.is_some();
    Ok(SCRIPTS.allowed(is_allowed, "a lock was taken, kept and freed"))
}

/// Publishes on the channel of an unused lock, in each form, and subscribes to it.
async fn channels(
    router: &Router,
    subscriber: &Subscriber,
    ways: PublishModes,
    channel: &str,
) -> Result<Finding> {
    let allow = match ways {
        PublishModes::Plain => {
            "allow &redisson_lock__channel:* with +publish +subscribe +unsubscribe"
        }
        PublishModes::Sharded => {
            "allow &redisson_lock__channel:* with +spublish +ssubscribe +sunsubscribe"
        }
        PublishModes::Auto | PublishModes::Both => {
            "allow &redisson_lock__channel:* with +publish +subscribe +unsubscribe +spublish +ssubscribe +sunsubscribe"
        }
    };
    let danger = |found: String, meaning: &str| {
        Ok(Finding::new(Danger, "rights: channels", found, meaning).advise(allow))
    };
    let mut refused = Vec::new();
    for form in ways.forms() {
        let message = Request::new(form.command()).arg(channel).arg("0");
        let passed = router.ask(channel, &message, router.deadline()).await;
        if allowed(passed)?.is_none() {
            refused.push(form.command());
        }
    }
    if refused.len() == ways.forms().len() {
        return danger(
            "refused".to_owned(),
            "waiters are not woken by this client's releases; Java waiters sleep until the lease ends",
        );
    }
    if !refused.is_empty() {
        return danger(
            format!("refused: {}", refused.join(", ")),
            "waiters who listen in that form only are not woken by this client's releases: they sleep until the lease ends",
        );
    }
    if subscriber.arm(channel, router.limit()).await.is_none() {
        return danger(
            "messages can be sent, and not be heard".to_owned(),
            "this client's waiters ask again and again instead of being woken",
        );
    }
    if subscriber.is_deaf(|| channel.to_owned()) {
        return danger(
            "messages can be sent in both forms, and not be heard in both".to_owned(),
            "this client's waiters are woken by some releases, and ask again and again for the others",
        );
    }
    Ok(Finding::new(
        Good,
        "rights: channels",
        "a message was sent, and could be heard",
        "waiters are woken",
    ))
}

/// Whether the server can count tidelock's waiters separately from others.
async fn counting(
    router: &Router,
    subscriber: &Subscriber,
    ways: PublishModes,
    channel: &str,
) -> Result<Finding> {
    let own = keys::own_channel(channel).unwrap_or_default();
    let form = ways.forms().last().copied().unwrap_or(MessageForm::Plain);
    let count = Request::new("PUBSUB").arg(form.counts()).arg(&own);
    let counted = allowed(router.ask(&own, &count, router.deadline()).await)?.is_some();
    if counted && subscriber.is_counted(channel, router.limit()).await {
        return Ok(Finding::new(
            Good,
            "rights: counting",
            "tidelock's waiters are told from others",
            "turns are shared with Java, and no message is sent in vain",
        ));
    }
    let right = match form {
        MessageForm::Plain => "+pubsub|numsub",
        MessageForm::Sharded => "+pubsub|numsub +pubsub|shardnumsub",
    };
    Ok(Finding::new(
        Advice,
        "rights: counting",
        "refused",
        "tidelock's waiters cannot be told from others: in a cluster more messages are sent, and Java services get fewer turns at a contended lock",
    )
    .advise(format!("allow &tidelock:waiting:* with {right}")))
}

async fn fencing(router: &Router, counter: &str) -> Result<Finding> {
    let moved = router
        .eval(&scripts::TRY_COUNTER, &[counter], &[], router.deadline())
        .await;
    Ok(match allowed(moved)? {
        Some(Reply::Int(2)) => Finding::new(
            Advice,
            "rights: fencing",
            "tokens can be taken one by one only",
            "fenced locks work, but pass from task to task of one client by way of the server",
        )
        .advise("allow +incrby"),
        moved => FENCING.allowed(moved.is_some(), "a counter was moved and removed"),
    })
}

/// The rights to wake waiters of Redisson's other lock types under the same name.
async fn others(router: &Router, ways: PublishModes, name: &Name) -> Result<Finding> {
    let (key, queue) = (name.as_str(), keys::fair_queue(name));
    let (times, told) = (keys::fair_times(name), keys::read_write_channel(name));
    let mut asked = vec![
        ("hlen", Request::new("HLEN").arg(key)),
        ("hrandfield", Request::new("HRANDFIELD").arg(key)),
        ("lindex", Request::new("LINDEX").arg(&queue).arg(0)),
        ("zscore", Request::new("ZSCORE").arg(&times).arg(OWNER)),
    ];
    // No client waits on that channel.
    let tell = |form: &MessageForm| {
        let command = form.command();
        (command, Request::new(command).arg(&told).arg("1"))
    };
    asked.extend(ways.forms().iter().map(tell));
    let refused = refused(router, key, asked).await?;
    let found = "a fair queue and what a read-write lock leaves can be looked at";
    Ok(OTHER_LOCKS.none_refused(&refused, found))
}

/// `WAIT` for 0 replicas replies at once.
async fn replicas(router: &Router, counter: &str) -> Result<Finding> {
    let nobody = Request::new("WAIT").arg(0).arg(0);
    let asked = allowed(router.ask(counter, &nobody, router.deadline()).await);
    // A replica rejects WAIT. Another check reports that the server is a replica.
    let of_a_replica = |error: &Error| error.detail().is_some_and(|why| why.contains("replica"));
    let is_allowed = match asked {
        Err(error) if !of_a_replica(&error) => return Err(error),
        Ok(answer) => answer.is_some(),
        Err(_) => true,
    };
    Ok(REPLICAS.allowed(is_allowed, "they can be asked"))
}

/// The rights that only operators need: to inspect, list and break locks.
async fn operators(
    router: &Router,
    ways: PublishModes,
    channel: &str,
    counter: &str,
) -> Result<Finding> {
    let mut probe = Probe::new(router)?;
    let ask = async |key: &str, request: Request| {
        router.ask(key, &request, router.deadline()).await.map(drop)
    };
    let mut refused = Vec::new();
    let mut note = |what, result: Result<()>| -> Result<()> {
        if allowed(result)?.is_none() {
            refused.push(what);
        }
        Ok(())
    };
    let taken = allowed(probe.acquire(router).await)?.is_some();
    let shown = router
        .eval(
            &scripts::INSPECT,
            &[probe.key()],
            &[counter, channel, ways.forms()[0].counts()],
            router.deadline(),
        )
        .await;
    note("show (+hgetall)", shown.map(drop))?;
    note(
        "tokens (+get)",
        ask(counter, Request::new("GET").arg(counter)).await,
    )?;
    for form in ways.forms() {
        let listeners = Request::new("PUBSUB").arg(form.counts()).arg(channel);
        let what = match form {
            MessageForm::Plain => "waiters (+pubsub|numsub)",
            MessageForm::Sharded => "waiters (+pubsub|shardnumsub)",
        };
        note(what, ask(channel, listeners).await)?;
    }
    note("ls (+scan)", ask("", Request::new("SCAN").arg(0)).await)?;
    let fields = Request::new("HSCAN").arg(probe.key()).arg(0);
    note("ls (+hscan)", ask(probe.key(), fields).await)?;
    if taken {
        let freed = router
            .eval(
                &scripts::FORCE_RELEASE,
                &[probe.key()],
                &[channel, "publish"],
                router.deadline(),
            )
            .await;
        note("unlock (+type +del)", freed.map(drop))?;
    }
    Ok(OPERATORS.none_refused(&refused, "a lock was looked at, listed and broken"))
}
