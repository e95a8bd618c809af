//! Promises about who follows a leader, for a store that keeps marks.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::client::Client;
use crate::election::{Election, Leadership, LeadershipTerm};
use crate::engine::runtime::sync::Mutex;
use crate::error::ErrorKind;
use crate::options::CancelToken;
use crate::testing::candidates::{Room, leading, next_term, patience};
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};

/// A client whose lease is so long that nobody stands aside in vain on a busy machine.
async fn patient(fixture: &Fixture) -> Client {
    let lease = fixture.lease() * 20;
    fixture.client(fixture.builder().lease(lease)).await
}

async fn patient_candidate(fixture: &Fixture, name: &str, identity: &str) -> Election {
    patient(fixture).await.election(name).identity(identity)
}

/// Waits until so many candidates wait to lead.
async fn listed(fixture: &Fixture, election: &Election, wanted: usize) {
    eventually("they campaign", patience(fixture), || async {
        election.candidates().await.expect("readable").len() == wanted
    })
    .await;
}

/// Nobody has led in the meantime.
fn nobody_led(others: &mut [UnboundedReceiver<LeadershipTerm>]) {
    for terms in others {
        assert!(terms.try_recv().is_err(), "another one led");
    }
}

/// Of four that wait the named one follows, and no other one's work begins before.
pub async fn a_leadership_is_transferred_to_the_named_candidate(fixture: &Fixture) {
    the_named_one_follows(fixture, |election| election).await;
}

/// In an election in order too, although the named one is not the next.
pub async fn a_leadership_in_order_is_transferred_to_the_named_candidate(fixture: &Fixture) {
    the_named_one_follows(fixture, Election::in_order).await;
}

async fn the_named_one_follows(fixture: &Fixture, kind: fn(Election) -> Election) {
    let (name, room) = (unique("billing"), Room::default());
    let election = kind(patient_candidate(fixture, &name, "0").await);
    let leadership = election.campaign().await.expect("free");
    let earlier = leadership.term();
    let (mut tasks, mut terms) = (Vec::new(), Vec::new());
    for n in 1..=4 {
        let candidate = kind(patient_candidate(fixture, &name, &n.to_string()).await);
        let (task, its_terms) = leading(&candidate, &room);
        tasks.push(task);
        terms.push(its_terms);
        listed(fixture, &election, n).await;
    }
    let mut named = terms.remove(2);
    leadership.transfer_to("3").await.expect("it waits");
    assert!(!election.is_leader());
    assert!(next_term(fixture, &mut named).await.number() > earlier);
    nobody_led(&mut terms);
    for task in tasks {
        task.abort();
    }
}

/// The work of `lead` names who leads next and returns: so three candidates lead in the order of the names.
pub async fn a_work_names_who_leads_next(fixture: &Fixture) {
    let (name, stop) = (unique("billing"), CancelToken::new());
    let first = patient_candidate(fixture, &name, "first").await;
    let leadership = first.campaign().await.expect("free");
    let order = Arc::<Mutex<Vec<usize>>>::default();
    let mut tasks = Vec::new();
    for n in 0..3_usize {
        let election = patient_candidate(fixture, &name, &n.to_string()).await;
        let election = election.cancel(&stop);
        let (order, stop) = (Arc::clone(&order), stop.clone());
        tasks.push(tokio::spawn(async move {
            let work = |term: LeadershipTerm| {
                order.lock().push(n);
                let is_last = order.lock().len() == 3;
                let stop = stop.clone();
                async move {
                    if is_last {
                        stop.cancel();
                        return Ok(());
                    }
                    // It waits since before the first term. One that has led may have just left: its mark goes later.
                    term.name_successor(&((n + 1) % 3).to_string()).await
                }
            };
            election.lead(work).await
        }));
    }
    listed(fixture, &first, 3).await;
    leadership.transfer_to("2").await.expect("it waits");
    for task in tasks {
        let ended = within("the end", patience(fixture), task).await;
        ended.expect("no panic").expect("the store answers");
    }
    // Another one may have been granted the lock while it was told to stop.
    assert_eq!(order.lock()[..3], [2, 0, 1]);
}

/// A transfer to an identity that does not wait fails, and the leader leads on.
pub async fn a_transfer_to_nobody_leads_on(fixture: &Fixture) {
    let name = unique("billing");
    let client = fixture.client(fixture.builder()).await;
    let election = client.election(&name).identity("web-1");
    let mut leadership = election.campaign().await.expect("free");
    for identity in ["web-2", "web-1", ""] {
        let failed = leadership.transfer_to(identity).await.expect_err("nobody");
        assert_eq!(failed.error.kind(), ErrorKind::InvalidOptions);
        leadership = *failed.leadership.expect("it leads on");
        assert!(leadership.is_held() && election.is_leader());
    }
    let operator = client.lock(&name);
    assert!(operator.force_release().await.expect("held"));
    within("the loss", patience(fixture), leadership.lost()).await;
    let failed = leadership.transfer_to("web-2").await.expect_err("lost");
    assert_eq!(failed.error.kind(), ErrorKind::Lost);
    assert!(failed.to_string().contains("the lock was lost"), "{failed}");
}

/// A candidate that has left waits no longer, so nobody can transfer a leadership to it.
pub async fn a_candidate_that_has_left_is_not_named(fixture: &Fixture) {
    let name = unique("billing");
    let election = fixture.client(fixture.builder()).await.election(&name);
    let leadership = election.campaign().await.expect("free");
    let leaving = fixture.client(fixture.builder()).await;
    let candidate = leaving.election(&name).identity("web-2");
    let (task, _terms) = leading(&candidate, &Room::default());
    listed(fixture, &election, 1).await;
    task.abort();
    assert!(task.await.is_err(), "it campaigned");
    let has_left = || async { leaving.is_idle() };
    eventually("its last write is done", patience(fixture), has_left).await;
    let failed = leadership.transfer_to("web-2").await.expect_err("it left");
    assert_eq!(failed.error.kind(), ErrorKind::InvalidOptions, "{failed}");
    assert!(failed.leadership.is_some(), "it leads on");
}

/// A candidate with the highest priority follows a leader. It deposes nobody.
pub async fn a_candidate_with_a_higher_priority_leads_first(fixture: &Fixture) {
    let (name, room) = (unique("billing"), Room::default());
    let election = patient_candidate(fixture, &name, "0").await.priority(-1);
    let leadership = election.campaign().await.expect("free");
    let (mut tasks, mut terms) = (Vec::new(), Vec::new());
    for (before, priority) in [0, 1, 7, 1].into_iter().enumerate() {
        let identity = format!("{before} with {priority}");
        let candidate = patient_candidate(fixture, &name, &identity).await;
        let (task, its_terms) = leading(&candidate.priority(priority), &room);
        tasks.push(task);
        terms.push(its_terms);
        listed(fixture, &election, before + 1).await;
    }
    assert!(leadership.is_held(), "it was deposed");
    let mut highest = terms.remove(2);
    leadership.resign().await.expect("held");
    next_term(fixture, &mut highest).await;
    nobody_led(&mut terms);
    // The leader ends: one of the two with the next priority follows.
    tasks.remove(2).abort();
    let [lowest, one, other] = &mut terms[..] else {
        unreachable!("there are three");
    };
    let (one, other) = (pin!(one.recv()), pin!(other.recv()));
    within("a term begins", patience(fixture), select(one, other)).await;
    nobody_led(std::slice::from_mut(lowest));
    for task in tasks {
        task.abort();
    }
}

/// Another one leads although the one that should, by its name or by its priority, is cut off.
async fn somebody_leads(fixture: &Fixture, transfers: bool) {
    let name = unique("billing");
    let living = fixture.client(fixture.builder()).await.election(&name);
    let leadership = living.campaign().await.expect("free");
    // A mark is kept for three leases of its candidate. With a longer lease it is still there on a machine that is busy.
    let builder = fixture.builder().lease(fixture.lease() * 4);
    let (dying, plug) = fixture.mortal(builder).await;
    let dead = dying.client().election(&name).identity("dead");
    let (dead, room) = (dead.priority(5), Room::default());
    let (task, _terms) = leading(&dead, &room);
    listed(fixture, &living, 1).await;
    plug.pull(); // A request of its own may be on its way, and be granted: then it leads until its lease ends.
    if transfers {
        leadership.transfer_to("dead").await.expect("still listed");
    } else {
        leadership.resign().await.expect("held");
    }
    let next = within("another leads", patience(fixture), living.campaign()).await;
    assert!(next.expect("free").is_held());
    task.abort();
}

/// The named candidate has died since its mark was written: another one leads soon.
pub async fn a_named_candidate_that_has_died_keeps_nobody_from_leading(fixture: &Fixture) {
    somebody_leads(fixture, true).await;
}

/// The candidate with the highest priority has died: another one leads soon.
pub async fn a_high_priority_that_has_died_keeps_nobody_from_leading(fixture: &Fixture) {
    somebody_leads(fixture, false).await;
}

async fn transfer(leadership: Leadership) -> bool {
    leadership.transfer_to("web-2").await.is_ok()
}

/// A transfer dropped at any await resigns: another one leads, and nothing is left behind.
pub async fn a_transfer_dropped_anywhere_resigns(fixture: &Fixture) {
    let one = fixture.client(fixture.builder()).await;
    let other = fixture.client(fixture.builder()).await;
    for polls in 0..200 {
        let name = unique("billing");
        let first = one.election(&name).identity("web-1");
        let second = other.election(&name).identity("web-2");
        let leadership = first.campaign().await.expect("free");
        let campaign = tokio::spawn(async move { second.campaign().await });
        listed(fixture, &first, 1).await;
        let whole = match poll_times(transfer(leadership), polls, patience(fixture)).await {
            Polled::Done(transferred) => {
                assert!(transferred, "it waits");
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        assert!(!first.is_leader());
        let elected = within("the other leads", patience(fixture), campaign).await;
        let elected = elected.expect("no panic").expect("free");
        elected.resign().await.expect("held");
        eventually("nothing is left", patience(fixture), || async {
            let leader = first.leader().await.expect("readable");
            leader.is_none() && first.candidates().await.expect("readable").is_empty()
        })
        .await;
        if whole {
            return;
        }
    }
    panic!("it never ended");
}
