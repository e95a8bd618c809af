//! Candidates of an election, for the promises about elections.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::fixture::{Fixture, eventually, within};
use crate::election::{Election, LeadershipTerm};
use crate::error::Result;

/// Longer than any step here takes.
pub(super) fn patience(fixture: &Fixture) -> Duration {
    fixture.lease() * 20
}

pub(super) async fn election(fixture: &Fixture, name: &str, identity: &str) -> Election {
    let client = fixture.client(fixture.builder()).await;
    client.election(name).identity(identity)
}

/// Proves that the work of two terms never exists at the same time.
#[derive(Clone, Default)]
pub(super) struct Room(Arc<AtomicU32>);

pub(super) struct Inside(Room);

impl Room {
    pub(super) fn enter(&self) -> Inside {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
        Inside(self.clone())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Leads in a task. Its work never ends; each term is sent as it begins.
pub(super) fn leading(
    election: &Election,
    room: &Room,
) -> (
    JoinHandle<Result<()>>,
    mpsc::UnboundedReceiver<LeadershipTerm>,
) {
    let (begun, terms) = mpsc::unbounded_channel();
    let (election, room) = (election.clone(), room.clone());
    let task = tokio::spawn(async move {
        let work = |term: LeadershipTerm| {
            let inside = room.enter();
            let _ = begun.send(term);
            async move {
                let _inside = inside;
                pending::<std::result::Result<(), Infallible>>().await
            }
        };
        election.lead(work).await
    });
    (task, terms)
}

pub(super) async fn next_term(
    fixture: &Fixture,
    terms: &mut mpsc::UnboundedReceiver<LeadershipTerm>,
) -> LeadershipTerm {
    let next = within("a term begins", patience(fixture), terms.recv()).await;
    next.expect("the candidate goes on")
}

/// Waits until others see that this identity leads, with its term.
pub(super) async fn shown(fixture: &Fixture, election: &Election, identity: &str) {
    eventually("the leader is shown", patience(fixture), || async {
        let leader = election.leader().await.expect("readable");
        leader.is_some_and(|it| it.identity.as_deref() == Some(identity) && it.term.is_some())
    })
    .await;
}
