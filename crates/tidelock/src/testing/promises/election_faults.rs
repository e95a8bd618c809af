//! What users of other elections have reported, as promises of this one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::ErrorKind;
use crate::options::CancelToken;
use crate::testing::candidates::{Room, election, leading, next_term, patience, shown};
use crate::testing::fixture::{Fixture, eventually, unique, within};

/// client-go #1187: a candidate that never led is stopped: its work was never called, and it was never a leader.
pub async fn a_candidate_that_never_led_is_not_told_that_it_stopped(fixture: &Fixture) {
    let name = unique("billing");
    let leader = election(fixture, &name, "web-1").await;
    let leadership = leader.campaign().await.expect("free");
    let stop = CancelToken::new();
    let candidate = election(fixture, &name, "web-2").await.cancel(&stop);
    let (task, mut terms) = leading(&candidate, &Room::default());
    eventually("it campaigns", patience(fixture), || async {
        let listed = leader.candidates().await.expect("readable");
        listed.iter().any(|it| it.identity == "web-2")
    })
    .await;
    assert!(!candidate.is_leader());
    stop.cancel();
    let ended = within("the end", patience(fixture), task).await;
    ended.expect("no panic").expect("a stop is no error");
    assert!(terms.recv().await.is_none(), "it never led");
    assert!(leadership.is_held() && leader.is_leader());
}

/// client-go, `RunOrDie` returns after a lost lease and nobody campaigns: a leader whose leadership is lost drops its work, and campaigns again by itself.
pub async fn a_leader_that_was_lost_campaigns_again(fixture: &Fixture) {
    let name = unique("billing");
    let operator = fixture.client(fixture.builder()).await;
    let candidate = election(fixture, &name, "web-1").await;
    let (task, mut terms) = leading(&candidate, &Room::default());
    let first = next_term(fixture, &mut terms).await;
    let mut last = first.number();
    assert!(candidate.is_leader() && first.is_held());
    for _ in 0..2 {
        assert!(operator.lock(&name).force_release().await.expect("held"));
        let next = next_term(fixture, &mut terms).await;
        assert!(next.number() > last);
        last = next.number();
    }
    assert!(!first.is_held() && candidate.is_leader());
    within(
        "the loss of the first term",
        patience(fixture),
        first.lost(),
    )
    .await;
    task.abort();
}

/// etcd #21128: a campaign that fails leaves no candidate behind: nobody waits for it, and it is not listed.
pub async fn a_failed_campaign_leaves_no_candidate(fixture: &Fixture) {
    let name = unique("billing");
    let leader = election(fixture, &name, "web-1").await;
    let leadership = leader.campaign().await.expect("free");
    let (dying, plug) = fixture.mortal(fixture.builder()).await;
    let stop = CancelToken::new();
    let candidate = dying
        .client()
        .election(&name)
        .identity("web-2")
        .cancel(&stop);
    let campaigning = candidate.clone();
    let campaign = tokio::spawn(async move { campaigning.campaign().await });
    let is_listed = async || {
        let listed = leader.candidates().await.expect("readable");
        listed.iter().any(|it| it.identity == "web-2")
    };
    eventually("it campaigns", patience(fixture), &is_listed).await;
    plug.pull();
    let failed = within("its end", patience(fixture), campaign).await;
    let error = failed.expect("no panic").expect_err("no store");
    assert!(error.is_retryable(), "{error}");
    plug.put_back();
    eventually("it is not listed", patience(fixture), async || {
        !is_listed().await
    })
    .await;
    leadership.resign().await.expect("held");
    let next = within("the next is elected", patience(fixture), leader.campaign()).await;
    next.expect("free").resign().await.expect("held");
    assert!(!candidate.is_leader());
    stop.cancel();
}

/// The store does not answer a candidate. A process that must end does not wait for a whole lease.
pub async fn a_campaign_without_an_answer_ends_when_it_is_cancelled(fixture: &Fixture) {
    let (name, stop) = (unique("billing"), CancelToken::new());
    let other = election(fixture, &name, "web-1").await;
    let long = fixture.builder().lease(fixture.lease() * 4);
    let (cut_off, plug) = fixture.mortal(long).await;
    let candidate = cut_off.client().election(&name).identity("web-2");
    let candidate = candidate.cancel(&stop);
    // Its requests take effect, but it hears no answer.
    plug.lose_replies(u64::MAX);
    let campaign = tokio::spawn(async move { candidate.campaign().await });
    eventually("it campaigns", patience(fixture), || async {
        let listed = other.candidates().await.expect("readable");
        listed.iter().any(|it| it.identity == "web-2")
    })
    .await;
    stop.cancel();
    let ended = within("its end", fixture.lease() * 3 / 2, campaign).await;
    let error = ended.expect("no panic").expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    plug.lose_replies(0);
}

/// The replies to the acquire of a campaign are lost: it is asked for again, and one leadership comes of it, which ends with
/// one resignation.
pub async fn an_election_without_a_reply_is_won_once(fixture: &Fixture) {
    let other = fixture.client(fixture.builder()).await;
    let (one, plug) = fixture.mortal(fixture.builder()).await;
    for lost in 1..4 {
        let name = unique("billing");
        let before = other.election(&name).identity("web-1");
        let candidate = one.client().election(&name).identity("web-2");
        let leadership = before.campaign().await.expect("free");
        let earlier = leadership.term();
        let campaigning = candidate.clone();
        let campaign = tokio::spawn(async move { campaigning.campaign().await });
        eventually("it campaigns", patience(fixture), || async {
            let listed = before.candidates().await.expect("readable");
            listed.iter().any(|it| it.identity == "web-2")
        })
        .await;
        // Its mark is written, so what is lost is the reply to its next attempts.
        plug.lose_replies(lost);
        leadership.resign().await.expect("held");
        let won = within("its term", patience(fixture), campaign).await;
        plug.lose_replies(0);
        let won = won.expect("no panic").expect("asked again");
        assert!(won.term() > earlier && candidate.is_leader());
        let seen = other.lock(&name).inspect().await.expect("readable");
        let holds: Vec<_> = seen.holders.iter().map(|holder| holder.holds).collect();
        assert_eq!(holds, [1]);
        won.resign().await.expect("held");
        assert!(before.leader().await.expect("readable").is_none());
    }
}

/// etcd #22123: a resignation whose reply is lost is repeated: the old leader does not lead, and another one does long before the
/// lease would have ended.
pub async fn a_resignation_without_a_reply_is_not_forgotten(fixture: &Fixture) {
    let name = unique("billing");
    let (one, plug) = fixture
        .mortal(fixture.builder().lease(fixture.lease() * 20))
        .await;
    let old = one.client().election(&name).identity("web-1");
    let other = election(fixture, &name, "web-2").await;
    let leadership = old.campaign().await.expect("free");
    shown(fixture, &other, "web-1").await; // no write of the line is under way, so the reply is that of the release
    plug.lose_replies(2);
    let resigned = within("the resignation", patience(fixture), leadership.resign()).await;
    resigned.expect("the store has it");
    assert!(!old.is_leader());
    let next = within("a successor", patience(fixture), other.campaign()).await;
    let next = next.expect("free");
    assert!(other.is_leader() && !old.is_leader());
    next.resign().await.expect("held");
}

/// etcd, a session that ends while its candidate waits: such a candidate is no zombie: it does not keep the others from leading, it does not
/// think that it leads, and it is listed for a few leases only.
pub async fn a_candidate_that_died_is_no_zombie(fixture: &Fixture) {
    let name = unique("billing");
    let leader = election(fixture, &name, "web-1").await;
    let leadership = leader.campaign().await.expect("free");
    let (dying, plug) = fixture.mortal(fixture.builder()).await;
    let dead = dying.client().election(&name).identity("web-2");
    let (task, _terms) = leading(&dead, &Room::default());
    let is_listed = async || {
        let listed = leader.candidates().await.expect("readable");
        listed.iter().any(|it| it.identity == "web-2")
    };
    eventually("it campaigns", patience(fixture), &is_listed).await;
    plug.pull();
    leadership.resign().await.expect("held");
    let next = within(
        "the living one is elected",
        patience(fixture),
        leader.campaign(),
    )
    .await;
    let next = next.expect("the dead one is passed over");
    assert!(!dead.is_leader());
    eventually("it is not listed", patience(fixture), async || {
        !is_listed().await
    })
    .await;
    assert!(next.is_held());
    task.abort();
}

/// An observer is told of each leader, and of *nobody*: after a resignation, and after the death of the leader.
pub async fn observers_are_told_that_nobody_leads(fixture: &Fixture) {
    let name = unique("billing");
    let observer = election(fixture, &name, "observer").await;
    let mut changes = observer.observe();
    let mut until = async |wanted: Option<&str>| {
        let change = async {
            loop {
                let leader = changes.next().await.expect("it goes on").expect("readable");
                let identity = leader.as_ref().and_then(|it| it.identity.as_deref());
                if identity == wanted && leader.is_none_or(|it| it.term.is_some()) {
                    return;
                }
            }
        };
        within("the change", patience(fixture), change).await;
    };
    until(None).await;
    let alive = election(fixture, &name, "web-1").await;
    let leadership = alive.campaign().await.expect("free");
    until(Some("web-1")).await;
    leadership.resign().await.expect("held");
    until(None).await;
    let (dying, plug) = fixture.mortal(fixture.builder()).await;
    let dead = dying.client().election(&name).identity("web-2");
    let leadership = dead.campaign().await.expect("free");
    until(Some("web-2")).await;
    plug.pull();
    until(None).await;
    assert!(!dead.is_leader(), "no phantom: it has learned of it first");
    within("the loss", patience(fixture), leadership.lost()).await;
}

/// An observer that waits for the next change hears that its client closes.
pub async fn an_observer_ends_when_its_client_closes(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    let mut changes = client.election(&unique("billing")).observe();
    let first = changes.next().await.expect("it goes on");
    assert_eq!(first.expect("readable"), None);
    let (waits, is_waiting) = oneshot::channel();
    // In a task of its own: otherwise the time limit below would poll it too.
    let end = tokio::spawn(async move {
        let mut next = pin!(changes.next());
        let is_pending = |cx: &mut Context<'_>| Poll::Ready(next.as_mut().poll(cx).is_pending());
        let _ = waits.send(poll_fn(is_pending).await);
        next.await
    });
    assert!(is_waiting.await.expect("polled"), "nobody leads yet");
    client.close(Duration::ZERO).await;
    let ended = within("the end", fixture.soon(), end).await;
    assert!(ended.expect("no panic").is_none());
}
