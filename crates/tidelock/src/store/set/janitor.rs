//! The janitor: repeats releases and withdrawals at members that do not answer.
//!
//! Each member has one queue and one task. Otherwise a server that was down for an hour would get all releases of
//! that hour at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, Result};
use crate::store::set::member::Member;
use crate::store::set::{Rule, Shared};
use crate::store::{BootInstant, Ticket, Timers};
use crate::types::Escaped;

/// Bounds the queue of one member. Beyond it the oldest entry is dropped, and its lock ends with its lease.
const MAX_QUEUED: usize = 10_000;

/// The background commands of one member.
#[derive(Default)]
pub(crate) struct Janitor(Mutex<JanitorQueue>);

#[derive(Default)]
struct JanitorQueue {
    waiting: VecDeque<CleanupJob>,
    busy: bool,
}

struct CleanupJob {
    ticket: Ticket,
    withdraw: bool,
    until: BootInstant,
}

impl Janitor {
    /// Queues a release or withdrawal for a member. It is retried until the lease has ended anyway.
    pub(crate) fn hand(set: &Shared, part: usize, ticket: Ticket, withdraw: bool) {
        let member = &set.members[part];
        let kept = match &set.rule {
            Rule::All => Duration::ZERO,
            Rule::Majority(quorum) => quorum.longest_lease(),
        };
        // Twice the lease: a request may still lie in the buffers of a server that is frozen now.
        let until = set.timers.now() + (kept * 2).max(Duration::from_secs(60));
        let mut queue = member.janitor.lock();
        if queue.waiting.len() == MAX_QUEUED {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(CleanupJob {
            ticket,
            withdraw,
            until,
        });
        if !std::mem::replace(&mut queue.busy, true) {
            let (member, timers) = (Arc::clone(member), set.timers.clone());
            set.background
                .spawn(async move { work(&member, &timers).await });
        }
    }

    fn next(&self) -> Option<CleanupJob> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        queue.busy = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, JanitorQueue> {
        self.0.lock()
    }
}

async fn work(member: &Member, timers: &Timers) {
    let mut failures = 0;
    while let Some(errand) = member.janitor.next() {
        loop {
            match tell(member, &errand).await {
                Ok(()) => {
                    failures = 0;
                    break;
                }
                Err(error) if error.is_retryable() && timers.now() < errand.until => {
                    timers.after(RECONNECT.pause(failures)).await;
                    failures += 1;
                }
                Err(error) => {
                    given_up(member, &errand.ticket, &error);
                    break;
                }
            }
        }
    }
}

async fn tell(member: &Member, errand: &CleanupJob) -> Result<()> {
    let store = &member.store.back;
    let answer = if errand.withdraw {
        store.withdraw(&errand.ticket).await
    } else {
        store.release(&errand.ticket).await
    };
    answer.map(drop)
}

fn given_up(member: &Member, ticket: &Ticket, error: &Error) {
    tracing::debug!(lock = %ticket.name, member = %Escaped(&member.label), %error, "the lock of this member could not be released before its lease ended");
}
