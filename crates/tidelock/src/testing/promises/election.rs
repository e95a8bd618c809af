//! Promises about elections, for a store that keeps marks.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::Client;
use crate::election::{Election, LeadershipTerm};
use crate::engine::runtime::sync::Mutex;
use crate::error::ErrorKind;
use crate::once::{Once, Slot};
use crate::options::CancelToken;
use crate::testing::candidates::{Room, election, leading, next_term, patience};
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};

/// Of many candidates on three clients one leads at a time, and each term is larger than all before.
pub async fn one_candidate_leads_at_a_time(fixture: &Fixture) {
    let name = unique("billing");
    let (room, stop) = (Room::default(), CancelToken::new());
    let terms = Arc::<Mutex<Vec<u64>>>::default();
    let mut tasks = Vec::new();
    for n in 0..3 {
        let election = election(fixture, &name, &n.to_string()).await.cancel(&stop);
        let (room, stop, terms) = (room.clone(), stop.clone(), Arc::clone(&terms));
        tasks.push(tokio::spawn(async move {
            let work = |term: LeadershipTerm| {
                let inside = room.enter();
                let mut terms = terms.lock();
                terms.push(term.number());
                if terms.len() >= 9 {
                    stop.cancel();
                }
                async move {
                    let _inside = inside;
                    tokio::task::yield_now().await;
                    Ok::<_, Infallible>(())
                }
            };
            election.lead(work).await
        }));
    }
    for task in tasks {
        let ended = within("the end", patience(fixture), task).await;
        ended.expect("no panic").expect("the store answers");
    }
    let terms = terms.lock();
    assert!(
        terms.len() >= 9 && terms.is_sorted_by(|a, b| a < b),
        "{terms:?}"
    );
}

/// A service that takes the lock of the election's name keeps all candidates from leading, and is seen as the holder.
pub async fn a_lock_of_the_same_name_excludes_the_leader(fixture: &Fixture) {
    let name = unique("billing");
    let other = fixture.client(fixture.builder()).await;
    let election = election(fixture, &name, "web-1").await;
    let held = other.lock(&name).acquire().await.expect("free");
    let seen = election.leader().await.expect("readable").expect("held");
    assert_eq!((seen.identity, seen.term), (None, None));
    let (task, mut terms) = leading(&election, &Room::default());
    let early = tokio::time::timeout(fixture.lease() / 3, terms.recv()).await;
    assert!(early.is_err(), "it leads under a lock of another");
    held.release().await.expect("held");
    next_term(fixture, &mut terms).await;
    assert!(
        other
            .lock(&name)
            .try_acquire()
            .await
            .expect("readable")
            .is_none()
    );
    task.abort();
}

/// A work that fails ends its term, and the candidate campaigns again.
pub async fn a_work_that_fails_is_followed_by_another_term(fixture: &Fixture) {
    let stop = CancelToken::new();
    let candidate = election(fixture, &unique("billing"), "web-1")
        .await
        .cancel(&stop);
    let calls = AtomicU32::new(0);
    let led = candidate.lead(|_| async {
        if calls.fetch_add(1, Ordering::SeqCst) == 2 {
            stop.cancel();
        }
        Err::<(), _>("no route to host")
    });
    let ended = within("the end", patience(fixture), led).await;
    ended.expect("an error of the work is none of the election");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// When the client closes, the work is dropped first, then the candidate resigns, and a successor leads long before the
/// lease would have ended.
pub async fn a_closing_leader_ends_its_work_before_it_resigns(fixture: &Fixture) {
    let (name, room) = (unique("billing"), Room::default());
    let lease = fixture.lease() * 20;
    let closing = fixture.client(fixture.builder().lease(lease)).await;
    let first = closing.election(&name).identity("web-1");
    let (task, mut terms) = leading(&first, &room);
    let term = next_term(fixture, &mut terms).await;
    let (successor, mut its_terms) = {
        let second = election(fixture, &name, "web-2").await;
        leading(&second, &room)
    };
    assert_eq!(
        closing.close(patience(fixture)).await,
        0,
        "the guard is gone"
    );
    let ended = within("the end", patience(fixture), task).await;
    ended.expect("no panic").expect("a close is no error");
    assert!(!first.is_leader());
    // The room would be occupied if the work of the first were still there.
    let next = next_term(fixture, &mut its_terms).await;
    assert!(next.number() > term.number());
    successor.abort();
}

/// A sick candidate does not lead: it resigns, does not campaign, and leads again when it is healthy.
pub async fn a_sick_candidate_does_not_lead(fixture: &Fixture) {
    let (name, room) = (unique("billing"), Room::default());
    let healthy = Arc::new(AtomicBool::new(true));
    let gate = Arc::clone(&healthy);
    let candidate = election(fixture, &name, "web-1").await;
    let candidate = candidate.lead_while(move || gate.load(Ordering::SeqCst));
    let (task, mut terms) = leading(&candidate, &room);
    next_term(fixture, &mut terms).await;
    healthy.store(false, Ordering::SeqCst);
    let other = election(fixture, &name, "web-2").await;
    let leadership = within("another leads", patience(fixture), other.campaign()).await;
    leadership.expect("free").resign().await.expect("held");
    let early = tokio::time::timeout(fixture.lease(), terms.recv()).await;
    assert!(early.is_err(), "it leads while it is sick");
    healthy.store(true, Ordering::SeqCst);
    next_term(fixture, &mut terms).await;
    task.abort();
}

/// Tasks that the work has spawned are told before another candidate leads, however the term ends.
pub async fn the_tasks_of_a_term_are_told_when_it_ends(fixture: &Fixture) {
    for end in ["sick", "cancelled", "returned", "dropped"] {
        let name = unique("billing");
        let (healthy, stop) = (Arc::new(AtomicBool::new(true)), CancelToken::new());
        let (gate, enough) = (Arc::clone(&healthy), CancelToken::new());
        let candidate = election(fixture, &name, "web-1").await.cancel(&stop);
        let candidate = candidate.lead_while(move || gate.load(Ordering::SeqCst));
        let (begun, mut terms) = mpsc::unbounded_channel();
        let returns = enough.clone();
        let leads = tokio::spawn(async move {
            let work = |term: LeadershipTerm| {
                let told = term.clone();
                let task = tokio::spawn(async move { told.ended().await });
                let _ = begun.send((term, task));
                let returns = returns.clone();
                async move {
                    returns.cancelled().await;
                    Ok::<_, Infallible>(())
                }
            };
            candidate.lead(work).await
        });
        let first = within("a term begins", patience(fixture), terms.recv()).await;
        let (term, task) = first.expect("it leads");
        assert!(term.ended().now_or_never().is_none(), "too early: {end}");
        match end {
            "sick" => healthy.store(false, Ordering::SeqCst),
            "cancelled" => stop.cancel(),
            "returned" => enough.cancel(),
            _ => leads.abort(),
        }
        let other = election(fixture, &name, "web-2").await;
        let next = within("another leads", patience(fixture), other.campaign()).await;
        assert!(term.ended().now_or_never().is_some(), "too late: {end}");
        let told = within("its task ends", patience(fixture), task).await;
        told.expect("no panic");
        leads.abort();
        drop(next.expect("the store answers"));
    }
}

/// With a lock-delay, nobody leads for so long after a leader whose connection fails. A store without delays refuses the
/// campaign without traffic.
pub async fn nobody_leads_during_the_delay_after_a_loss(fixture: &Fixture) {
    let (name, delay) = (unique("billing"), fixture.lease() * 2);
    let (dying, plug) = fixture.mortal(fixture.builder()).await;
    let candidate = dying.client().election(&name).lock_delay(delay);
    if !fixture.capabilities().await.delays {
        let asked = plug.requests();
        let refused = campaign_error(dying.client(), &candidate).await;
        assert_eq!(refused, ErrorKind::Unsupported);
        assert_eq!(plug.requests(), asked, "before any traffic");
        return;
    }
    let other = election(fixture, &name, "web-2").await;
    let leadership = candidate.campaign().await.expect("free");
    plug.pull();
    let now = Instant::now();
    let ends = now + leadership.guard().valid_for();
    within("the loss", patience(fixture), leadership.lost()).await;
    let next = within("the next one", patience(fixture), other.campaign()).await;
    let next = next.expect("the store answers");
    assert!(
        ends.elapsed() >= delay,
        "{:?}, not {delay:?}",
        ends.elapsed()
    );
    next.resign().await.expect("held");
}

/// A campaign dropped at any await leaves no leadership and no candidate behind.
pub async fn a_campaign_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    for polls in 0..200 {
        let election = client.election(&unique("billing"));
        let campaign = poll_times(election.campaign(), polls, patience(fixture)).await;
        let whole = match campaign {
            Polled::Done(won) => {
                drop(won.expect("free"));
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        eventually("nothing is left", patience(fixture), || async {
            let leader = election.leader().await.expect("readable");
            leader.is_none() && election.candidates().await.expect("readable").is_empty()
        })
        .await;
        assert!(!election.is_leader());
        if whole {
            return;
        }
    }
    panic!("it never ended");
}

/// In an election in order the candidates lead in the order in which they began to campaign.
pub async fn candidates_in_order_lead_in_order(fixture: &Fixture) {
    let name = unique("billing");
    let watcher = fixture.client(fixture.builder()).await;
    let first = election(fixture, &name, "0").await.in_order();
    let leadership = first.campaign().await.expect("free");
    let order = Arc::<Mutex<Vec<String>>>::default();
    let mut tasks = Vec::new();
    for n in 1..=3 {
        let identity = n.to_string();
        let candidate = election(fixture, &name, &identity).await.in_order();
        let order = Arc::clone(&order);
        tasks.push(tokio::spawn(async move {
            let leadership = candidate.campaign().await.expect("the store answers");
            order.lock().push(identity);
            leadership.resign().await.expect("held");
        }));
        // A candidate is listed before it joins the queue.
        let lock = watcher.fair_lock(&name);
        eventually("it waits in the queue", patience(fixture), || async {
            lock.inspect().await.expect("readable").waiters == Some(n)
        })
        .await;
    }
    let listed = first.candidates().await.expect("readable");
    let listed: Vec<_> = listed.iter().map(|it| &*it.identity).collect();
    assert_eq!(listed, ["1", "2", "3"]);
    leadership.resign().await.expect("held");
    for task in tasks {
        within("its turn", patience(fixture), task)
            .await
            .expect("no panic");
    }
    assert_eq!(*order.lock(), ["1", "2", "3"]);
}

/// A job and an election of one name take turns at its lock, and neither hides the marks of the other.
pub async fn a_job_of_the_same_name_keeps_its_marks_apart(fixture: &Fixture) {
    let name = unique("billing");
    let (one, two) = (
        election(fixture, &name, "web-1").await,
        election(fixture, &name, "web-2").await,
    );
    let client = fixture.client(fixture.builder()).await;
    let job = |slot: &str| client.once(&name).slot(Slot::id(slot));
    for slot in ["a", "b"] {
        let job = job(slot);
        let ran = job.run(|_| async { Ok::<_, Infallible>(()) });
        assert_eq!(ran.await.expect("free"), Once::Ran(()));
    }
    let leadership = one.campaign().await.expect("free");
    let (task, _terms) = leading(&two, &Room::default());
    eventually("it campaigns", patience(fixture), || async {
        !one.candidates().await.expect("readable").is_empty()
    })
    .await;
    let late = job("c");
    let ran = late.run(|_| async { Ok::<_, Infallible>(()) });
    let held = ran.await.expect("readable");
    assert!(matches!(held, Once::Running(Some(_))), "{held:?}");
    let marks = client.once(&name).history(2).await.expect("readable");
    let slots: Vec<_> = marks.iter().map(|mark| &*mark.slot).collect();
    assert_eq!(slots, ["b", "a"]);
    task.abort();
    leadership.resign().await.expect("held");
}

async fn campaign_error(client: &Client, election: &Election) -> ErrorKind {
    let error = election.campaign().await.map(drop).expect_err("refused");
    assert!(!client.status().is_closing);
    error.kind()
}

/// Senseless settings are refused before any traffic.
pub async fn senseless_elections_are_refused_before_traffic(fixture: &Fixture) {
    let (party, plug) = fixture.mortal(fixture.builder()).await;
    let client = party.client();
    let asked = plug.requests();
    for identity in [String::new(), "a\nb".to_owned(), "x".repeat(201)] {
        let election = client.election("billing").identity(identity);
        assert_eq!(
            campaign_error(client, &election).await,
            ErrorKind::InvalidOptions
        );
        let led = election.lead(|_| async { Ok::<_, Infallible>(()) }).await;
        assert_eq!(led.expect_err("refused").kind(), ErrorKind::InvalidOptions);
    }
    let nameless = client.election("");
    assert_eq!(
        campaign_error(client, &nameless).await,
        ErrorKind::InvalidName
    );
    assert_eq!(plug.requests(), asked, "before any traffic");
}

/// A store without marks, or without tokens, refuses the election before any traffic.
pub async fn a_store_without_marks_refuses_an_election(fixture: &Fixture) {
    let (party, plug) = fixture.mortal(fixture.builder()).await;
    let election = party.client().election("billing");
    let asked = plug.requests();
    let refused = ErrorKind::Unsupported;
    assert_eq!(campaign_error(party.client(), &election).await, refused);
    assert_eq!(
        election.leader().await.expect_err("refused").kind(),
        refused
    );
    assert_eq!(
        election.candidates().await.expect_err("refused").kind(),
        refused
    );
    assert_eq!(plug.requests(), asked, "before any traffic");
}
