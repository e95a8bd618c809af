//! The steward: the background task of a client. It renews leases, reports losses, and executes background commands
//! (releases, withdrawals, and requests in flight whose caller has left).
//!
//! One loop on the client's own thread waits for the first of these, in this order, so that no flood of commands can
//! delay a deadline or a renewal:
//!
//! 1. The next instant at which something is due. It then reports the holds whose proof or cap has ended as lost, sends
//!    the due renewals in batches of at most 100, and looks after local queues without progress.
//! 2. The end of a closed client: the steward has no request in flight, and either no other operation is in flight or
//!    one response timeout has passed.
//! 3. A notification that the next due instant may have moved forward.
//! 4. The reply to a batch. `Kept` proves the lease from the send time of the batch; `Gone` and `WrongType` report the
//!    loss; an error leaves the lease as it is, and the renewal is sent again within a fifteenth of the lease.
//! 5. A command.
//!
//! Invariants:
//! 1. All requests run concurrently. A renewal that hangs delays neither a release nor a deadline; it is sent again
//!    after a sixth of the lease or the response timeout, whichever is shorter.
//! 2. A panic in one request ends only that request. If the steward itself ends, by a panic too, every hold is reported
//!    lost (`Unattended`), and so is every later grant.
//! 3. A command counts as in flight from `send` until it is done, so `close` waits for it.
//!
//! The steward ends when the client is closed or its last handle is dropped. Remaining commands then get one more
//! response timeout.

use crate::engine::runtime::sync::atomic::{AtomicBool, Ordering};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, mpsc, watch};
use tracing::Instrument;

use crate::engine::instruments::{HoldOutcome, Instruments, StoreRequest};
use crate::engine::lease::guests::Guests;
use crate::engine::lease::leader_term::Queues;
use crate::engine::lease::pending_release::PendingRelease;
use crate::engine::lease::process_info::ProcessInfo;
use crate::engine::lease::renewal_batch::Batch;
use crate::engine::lease::table::{LeaseEntry, LeaseTable};
use crate::engine::runtime::background::{Background, Stop};
use crate::engine::runtime::event::Flag;
use crate::engine::runtime::in_flight::{InFlight, InFlightCounter};
use crate::engine::runtime::timers::{Timer, Timers};
use crate::engine::store_handle::StoreHandle;
use crate::engine::store_health::failure_of_batch;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BootInstant, BoxFuture, Renewed};
use crate::types::{Drift, LostReason};

/// A background command.
pub(crate) enum StewardCommand {
    /// Release or withdraw a ticket, with retries.
    Release(PendingRelease),
    /// Finish a request in flight whose caller has left.
    Adopt(BoxFuture<'static, ()>),
}

/// The handle by which the rest of the client uses the steward.
#[derive(Debug)]
pub(crate) struct StewardHandle {
    inbox: mpsc::UnboundedSender<QueuedCommand>,
    /// Counts the operations that `close` waits for.
    counter: Arc<InFlightCounter>,
    /// The client is closed: the steward ends once nothing is in flight.
    retired: Arc<AtomicBool>,
    /// The steward drops its sender when it ends.
    running: watch::Receiver<()>,
    /// Set when a `close` begins: no acquisition and no hand-off begins after that. The holds stay until its grace
    /// period ends.
    pub(crate) closed: Arc<Flag>,
    /// The holds of other clients' sets of which the store of this client is a member.
    pub(crate) guests: Arc<Guests>,
    pub(crate) timers: Timers,
    pub(crate) drift: Drift,
    pub(crate) response_timeout: Duration,
    pub(crate) table: Arc<LeaseTable>,
    pub(crate) background: Background,
    pub(crate) instruments: Arc<Instruments>,
}

impl StewardHandle {
    /// Sends a command. Never blocks and never fails: after the steward has ended, the lock stays until its lease ends.
    pub(crate) fn send(&self, command: StewardCommand) {
        let queued = QueuedCommand {
            command,
            in_flight: self.owned_in_flight(),
        };
        if let Err(mpsc::error::SendError(queued)) = self.inbox.send(queued) {
            // The future of an adopted request is only dropped: nothing can poll it any more.
            if let StewardCommand::Release(release) = queued.command {
                release.give_up();
            }
        }
    }

    /// Ends a hold that was just removed from the lease table, because a client has closed: reports the loss, and releases
    /// the lock. The retries end after a response timeout.
    pub(crate) fn end_by_close(&self, entry: LeaseEntry) {
        entry.status.lose(LostReason::Closed);
        let outcome = HoldOutcome::Lost(LostReason::Closed);
        entry.status.record_end(&self.instruments, outcome);
        self.send(StewardCommand::Release(PendingRelease {
            granted: entry.granted().clone(),
            store: entry.store,
            repeated: false,
            until: self.timers.now() + self.response_timeout,
            reader: None,
            answer: None,
            token: None,
            is_logged: true,
            term: None,
            kept: Duration::ZERO,
            cleanup: None,
            guest: entry.guest,
        }));
    }

    /// Registers an operation as in flight until the result is dropped; `close` waits for it.
    pub(crate) fn in_flight(&self) -> InFlight<&InFlightCounter> {
        InFlight::new(&*self.counter)
    }

    /// As [`in_flight`](Self::in_flight), without a borrow.
    pub(crate) fn owned_in_flight(&self) -> InFlight<Arc<InFlightCounter>> {
        InFlight::new(Arc::clone(&self.counter))
    }

    /// Resolves when no operation is in flight.
    pub(crate) async fn settled(&self) {
        self.unless_ended(self.counter.none()).await;
    }

    /// Resolves when the steward has ended. It closes its side of the store first.
    pub(crate) async fn ended(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    /// Waits for an event that needs the steward or a timer on its thread. `None`: the steward has ended, and the event
    /// cannot happen after that.
    pub(crate) async fn unless_ended<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = event => Some(output),
            () = self.ended() => None,
        }
    }

    /// The answer to a request that `close` does not wait for. The timers have stopped when the steward has ended, so
    /// no limit would end the request.
    ///
    /// # Errors
    /// Those of the request, and `Closed`.
    pub(crate) async fn answered<T>(&self, ask: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = self.unless_ended(ask).await;
        answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Closed)))
    }

    /// The client is closed: the steward finishes its commands and ends, and so does its thread. It does not wait for
    /// the drop of the last handle. Otherwise a guard in `mem::forget`, or a `Lock` in a static, would keep a thread
    /// and its file descriptors for the life of the process.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        self.table.notify.notify_one();
    }

    /// Whether the lease table is empty and no operation is in flight.
    #[cfg(feature = "testing")]
    pub(crate) fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.counter.is_zero()
    }
}

/// A command, counted as in flight until it is done.
struct QueuedCommand {
    command: StewardCommand,
    in_flight: InFlight<Arc<InFlightCounter>>,
}

/// The steward before it runs: what it needs.
pub(crate) struct Steward {
    /// Notified when a local queue has a waiter to look after.
    pub(crate) notify: Arc<Notify>,
    /// The client's own store.
    pub(crate) home: Arc<StoreHandle>,
    /// The local queues that it looks after.
    pub(crate) queues: Vec<Arc<dyn Queues>>,
    pub(crate) process_info: Arc<ProcessInfo>,
    pub(crate) timers: Timers,
    pub(crate) drift: Drift,
    pub(crate) response_timeout: Duration,
    pub(crate) instruments: Arc<Instruments>,
}

impl Steward {
    /// Starts the steward on the background thread, which ends with it.
    pub(crate) fn start(self, background: Background, stop: Stop) -> StewardHandle {
        let (inbox, chores) = mpsc::unbounded_channel();
        let instruments = Arc::clone(&self.instruments);
        let table = Arc::new(LeaseTable::new(Arc::clone(&instruments)));
        let keeper = LoseAllOnDrop(Arc::clone(&table));
        let retired = Arc::<AtomicBool>::default();
        let told = Arc::clone(&retired);
        let (runs, running) = watch::channel(());
        let counter = Arc::<InFlightCounter>::default();
        let unfinished = Arc::clone(&counter);
        let (timers, drift, response_timeout) =
            (self.timers.clone(), self.drift, self.response_timeout);
        background.spawn(async move {
            self.run(&keeper.0, chores, &told, &unfinished).await;
            // First report the losses, then let waiters for the end run, then stop the thread.
            drop(keeper);
            drop(runs);
            drop(stop);
        });
        let closed = Arc::default();
        StewardHandle {
            guests: Guests::new(&closed),
            inbox,
            counter,
            retired,
            running,
            closed,
            timers,
            drift,
            response_timeout,
            table,
            background,
            instruments,
        }
    }

    async fn run(
        self,
        table: &LeaseTable,
        mut inbox: mpsc::UnboundedReceiver<QueuedCommand>,
        retired: &AtomicBool,
        in_flight: &InFlightCounter,
    ) {
        let mut calls: FuturesUnordered<BoxFuture<'static, Option<RenewalReplies>>> =
            FuturesUnordered::new();
        let mut look = self.timers.at(BootInstant::FAR);
        // A timer that starts when the client is closed. Requests in flight may send commands until it fires.
        let mut last_call = None;
        loop {
            if retired.load(Ordering::SeqCst) {
                let timer = || Box::pin(self.timers.after(self.response_timeout));
                last_call.get_or_insert_with(timer);
            }
            let next = table.next_check(self.timers.now());
            let next = self
                .queues
                .iter()
                .map(|queues| queues.next_check())
                .fold(next, BootInstant::min);
            if look.due() != next {
                look = self.timers.at(next);
            }
            // Biased, so that no flood of commands delays a deadline or a renewal.
            tokio::select! {
                biased;
                () = &mut look => {
                    self.renew(table, &mut calls);
                    let now = self.timers.now();
                    self.queues.iter().for_each(|queues| queues.check_stalled(now));
                    look = self.timers.at(BootInstant::FAR);
                }
                () = retirement(&mut last_call, in_flight), if calls.is_empty() => break,
                () = table.notify.notified() => {}
                () = self.notify.notified() => {}
                Some(answers) = calls.next(), if !calls.is_empty() => self.apply_replies(table, answers),
                queued = inbox.recv() => match queued {
                    Some(queued) => calls.push(self.call(queued)),
                    None => break,
                },
            }
        }
        // The client is closed or dropped. Its remaining commands get one more response timeout.
        inbox.close();
        while let Ok(queued) = inbox.try_recv() {
            calls.push(self.call(queued));
        }
        self.timers
            .limit(self.response_timeout, async {
                while calls.next().await.is_some() {}
                self.process_info.remove(self.home.back()).await;
            })
            .await;
        self.home.back().close().await;
    }

    /// Executes a command.
    fn call(
        &self,
        QueuedCommand { command, in_flight }: QueuedCommand,
    ) -> BoxFuture<'static, Option<RenewalReplies>> {
        let timers = self.timers.clone();
        let instruments = Arc::clone(&self.instruments);
        let work = async move {
            match command {
                StewardCommand::Adopt(rest) => rest.await,
                StewardCommand::Release(release) => release.run(&timers, &instruments).await,
            }
        };
        Box::pin(async move {
            contained(work).await;
            drop(in_flight);
            None
        })
    }

    /// Reports the holds that have ended, and sends the renewals that are due.
    fn renew(
        &self,
        table: &LeaseTable,
        calls: &mut FuturesUnordered<BoxFuture<'static, Option<RenewalReplies>>>,
    ) {
        let sent = self.timers.now();
        let again = |lease| ask_again_after(lease, self.response_timeout);
        for batch in table.take_due(sent, again, &self.drift) {
            let Batch {
                store,
                ids,
                renewals,
            } = batch;
            let span = tracing::trace_span!("tidelock.renew", batch.size = ids.len());
            calls.push(Box::pin(async move {
                let result = contained(store.back().renew(&renewals).instrument(span))
                    .await
                    .unwrap_or_else(|| {
                        Err(Error::new(ErrorKind::OutcomeUnknown)
                            .because("the code of the store panicked during the renewal"))
                    });
                // A batch is for one lane, so its first name stands for all.
                if let Some(first) = renewals.first() {
                    store.heard_or(&first.ticket.name, failure_of_batch(&result));
                }
                Some(RenewalReplies { sent, ids, result })
            }));
        }
    }

    /// Applies the replies to a batch.
    fn apply_replies(&self, table: &LeaseTable, answers: Option<RenewalReplies>) {
        let Some(RenewalReplies { sent, ids, result }) = answers else {
            return;
        };
        let now = self.timers.now();
        let error = result.as_ref().err();
        self.instruments
            .answered(StoreRequest::Renew, now.since(sent), error);
        match result {
            Ok(each) => {
                let mut kept = Vec::with_capacity(ids.len());
                for (id, renewed) in ids.into_iter().zip(each) {
                    match renewed {
                        Renewed::Kept => kept.push(id),
                        Renewed::Gone => table.lost(id, LostReason::Taken),
                        Renewed::WrongType => table.lost(id, LostReason::WrongType),
                        Renewed::Failed(error) => table.renewed([id], |entry| {
                            tracing::debug!(lock = %entry.granted().ticket.name, %error, "the lock could not be renewed; the client retries within the lease");
                            entry.failed(sent, now);
                        }),
                    }
                }
                self.confirm(table, kept, sent, now);
            }
            Err(error) => {
                tracing::debug!(locks = ids.len(), %error, "these locks could not be renewed; the client retries within the lease");
                table.renewed(ids, |entry| entry.failed(sent, now));
            }
        }
    }

    /// The renewals that were sent at `sent` are confirmed.
    fn confirm(&self, table: &LeaseTable, kept: Vec<u64>, sent: BootInstant, now: BootInstant) {
        if !kept.is_empty() {
            tracing::debug!(locks = kept.len(), "renewed");
        }
        table.renewed(kept, |entry| {
            let left = entry.status.valid_until().since(now);
            self.instruments.renewed(entry.granted().subject(), left);
            entry.proved(sent, &self.drift);
        });
    }
}

/// Resolves when a closed client no longer needs its steward: no operation is in flight, or `last_call` has fired.
/// Never resolves before the client is closed.
async fn retirement(last_call: &mut Option<Pin<Box<Timer>>>, in_flight: &InFlightCounter) {
    let Some(last_call) = last_call else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        () = in_flight.none() => {}
        () = last_call => {}
    }
}

/// Catches a panic of one request. Otherwise it would end the steward, and all locks of the client would be lost.
async fn contained<T>(work: impl Future<Output = T>) -> Option<T> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    if result.is_err() {
        tracing::error!("a background command panicked; its lock stays held until the lease ends");
    }
    result.ok()
}

/// The replies to one batch of renewals.
struct RenewalReplies {
    sent: BootInstant,
    ids: Vec<u64>,
    result: Result<Vec<Renewed>>,
}

/// When a renewal without a reply is sent again. With a short lease we do not wait for the whole response timeout: the lease could
/// end first.
fn ask_again_after(lease: Duration, response_timeout: Duration) -> Duration {
    (lease / 6).min(response_timeout)
}

/// Reports all holds as lost when the steward ends, by a panic too. Otherwise their holders would never hear of a loss.
pub(super) struct LoseAllOnDrop(pub(super) Arc<LeaseTable>);

impl Drop for LoseAllOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A third of the lease has passed before the first request. Two more have room in the rest.
    #[test]
    fn a_renewal_without_a_reply_is_sent_again_before_the_lease_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(ask_again_after(second * 6, second * 5), second);
        assert_eq!(ask_again_after(second * 60, second * 5), second * 5);
    }
}
