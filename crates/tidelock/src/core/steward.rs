//! The background task that does what a `Drop` or a timer must: renewals, deadlines, releases, withdrawals, adoptions.
//!
//! It polls its calls side by side: a renewal that hangs holds up neither a release nor a deadline.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::backend::{BoxFuture, Moment, Renewed, Ticket};
use crate::core::batch::Batch;
use crate::core::in_flight::{Counter, InFlight};
use crate::core::lead::Tenure;
use crate::core::line::Lines;
use crate::core::process_info::ProcessInfo;
use crate::core::release::{self, Release};
use crate::core::rt::{Background, Stop};
use crate::core::site::Site;
use crate::core::table::Table;
use crate::core::timers::{Timer, Timers};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LostReason;
use crate::options::Drift;

/// Something to be done in the background.
pub(crate) enum Chore {
    /// Release a ticket, and go on trying until `until`.
    Release {
        site: Arc<Site>,
        ticket: Ticket,
        unclear: bool,
        repeated: bool,
        until: Moment,
        answer: Option<oneshot::Sender<Result<()>>>,
        /// Those who wait in this process are called when it is done.
        tenure: Option<Tenure>,
        /// For how long the lock was held, as far as we know.
        kept: Duration,
    },
    /// Finish what a caller left in flight.
    Adopt(BoxFuture<'static, ()>),
}

/// How the rest of the client talks to its steward.
#[derive(Debug)]
pub(crate) struct StewardHandle {
    inbox: mpsc::UnboundedSender<Errand>,
    counter: Arc<Counter>,
    retired: Arc<AtomicBool>,
    /// Its sender is dropped when the steward has ended.
    running: watch::Receiver<()>,
    pub(crate) table: Arc<Table>,
    pub(crate) background: Background,
}

impl StewardHandle {
    /// Never waits, never fails: what cannot be sent any more is left to the lease.
    pub(crate) fn send(&self, chore: Chore) {
        let errand = Errand {
            chore,
            in_flight: self.owned_mark(),
        };
        if let Err(mpsc::error::SendError(errand)) = self.inbox.send(errand) {
            errand.chore.give_up();
        }
    }

    /// Counts something as to be done until the mark is dropped: closing waits for it.
    pub(crate) fn mark(&self) -> InFlight<&Counter> {
        InFlight::new(&*self.counter)
    }

    /// The same for what outlives the caller.
    pub(crate) fn owned_mark(&self) -> InFlight<Arc<Counter>> {
        InFlight::new(Arc::clone(&self.counter))
    }

    /// Resolves when nothing that was sent is left to be done.
    pub(crate) async fn settled(&self) {
        self.unless_ended(self.counter.none()).await;
    }

    /// Resolves when the steward has ended, and closed its face of the store.
    pub(crate) async fn ended(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    /// Waits for something that only the steward, or a timer on its thread, can bring about. Once the steward has ended,
    /// that never happens, so the wait ends too.
    pub(crate) async fn unless_ended(&self, event: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = event => {}
            () = self.ended() => {}
        }
    }

    /// The client is closed: the steward finishes what was sent and ends, and its thread with it. It does not wait until the
    /// last handle is dropped; otherwise a guard in `mem::forget`, or a `Lock` in a static, would keep a thread and its
    /// descriptors as long as the process lives.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        self.table.bell.notify_one();
    }

    /// Nothing is held and nothing is left to be done.
    #[cfg(feature = "testing")]
    pub(crate) fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.counter.is_zero()
    }
}

struct Errand {
    chore: Chore,
    in_flight: InFlight<Arc<Counter>>,
}

impl Chore {
    fn give_up(self) {
        if let Self::Release { ticket, .. } = self {
            tracing::warn!(lock = %ticket.name, owner = %ticket.owner, "the client's steward has gone; this lock stays until its lease ends");
        }
    }
}

/// What the steward needs.
pub(crate) struct Steward {
    /// Rung when somebody was called who may not come.
    pub(crate) bell: Arc<Notify>,
    pub(crate) home: Arc<Site>,
    pub(crate) process_info: Arc<ProcessInfo>,
    pub(crate) timers: Timers,
    pub(crate) drift: Drift,
    pub(crate) response_timeout: Duration,
}

impl Steward {
    /// Starts it on the background thread, which lives as long as the steward does.
    pub(crate) fn start(self, background: Background, stop: Stop) -> StewardHandle {
        let (inbox, chores) = mpsc::unbounded_channel();
        let table = Arc::new(Table::default());
        let keeper = Keeper(Arc::clone(&table));
        let retired = Arc::<AtomicBool>::default();
        let told = Arc::clone(&retired);
        let (runs, running) = watch::channel(());
        let counter = Arc::<Counter>::default();
        let unfinished = Arc::clone(&counter);
        background.spawn(async move {
            self.run(&keeper.0, chores, &told, &unfinished).await;
            drop(keeper);
            drop(runs);
            drop(stop);
        });
        StewardHandle {
            inbox,
            counter,
            retired,
            running,
            table,
            background,
        }
    }

    async fn run(
        self,
        table: &Table,
        mut inbox: mpsc::UnboundedReceiver<Errand>,
        retired: &AtomicBool,
        in_flight: &Counter,
    ) {
        let mut calls: FuturesUnordered<BoxFuture<'static, Option<Answers>>> =
            FuturesUnordered::new();
        let mut look = self.timers.at(Moment::FAR);
        // Set when the client is closed: until then a request that is still under way may send something.
        let mut last_call = None;
        loop {
            if retired.load(Ordering::SeqCst) {
                let timer = || Box::pin(self.timers.after(self.response_timeout));
                last_call.get_or_insert_with(timer);
            }
            let next = table.next_look(self.timers.now());
            let next = self.lines().map(Lines::next_look).fold(next, Moment::min);
            if look.due() != next {
                look = self.timers.at(next);
            }
            // In this order: no flood of errands puts off a deadline or a renewal.
            tokio::select! {
                biased;
                () = &mut look => {
                    self.renew(table, &mut calls);
                    let now = self.timers.now();
                    self.lines().for_each(|lines| lines.look_after_the_waiting(now));
                    look = self.timers.at(Moment::FAR);
                }
                () = retirement(&mut last_call, in_flight), if calls.is_empty() => break,
                () = table.bell.notified() => {}
                () = self.bell.notified() => {}
                Some(answers) = calls.next(), if !calls.is_empty() => self.take(table, answers),
                errand = inbox.recv() => match errand {
                    Some(errand) => calls.push(self.call(errand)),
                    None => break,
                },
            }
        }
        // The client has gone. What it left to be done gets one more response time.
        inbox.close();
        while let Ok(errand) = inbox.try_recv() {
            calls.push(self.call(errand));
        }
        self.timers
            .limit(self.response_timeout, async {
                while calls.next().await.is_some() {}
                self.process_info.remove(self.home.back()).await;
            })
            .await;
        self.home.back().close().await;
    }

    fn lines(&self) -> impl Iterator<Item = &Lines> {
        let sites = [Some(&self.home), self.home.plain()];
        sites
            .into_iter()
            .flatten()
            .filter_map(|site| Some(&**site.lines()?))
    }

    fn call(&self, Errand { chore, in_flight }: Errand) -> BoxFuture<'static, Option<Answers>> {
        let timers = self.timers.clone();
        let work = async move {
            match chore {
                Chore::Adopt(rest) => rest.await,
                Chore::Release {
                    site,
                    ticket,
                    unclear,
                    repeated,
                    until,
                    answer,
                    tenure,
                    kept,
                } => {
                    let result = Release {
                        site,
                        ticket,
                        unclear,
                        repeated,
                        until,
                        tenure,
                        kept,
                    }
                    .persist(&timers)
                    .await;
                    // Given back by a caller that has stopped waiting.
                    let unheard = match answer {
                        Some(answer) => answer.send(result).err(),
                        None => Some(result),
                    };
                    unheard.into_iter().for_each(release::log);
                }
            }
        };
        Box::pin(async move {
            contained(work).await;
            drop(in_flight);
            None
        })
    }

    fn renew(
        &self,
        table: &Table,
        calls: &mut FuturesUnordered<BoxFuture<'static, Option<Answers>>>,
    ) {
        let sent = self.timers.now();
        for batch in table.take_due(sent, |lease| self.ask_again_after(lease)) {
            let Batch {
                site,
                ids,
                renewals,
            } = batch;
            calls.push(Box::pin(async move {
                let result = contained(site.back().renew(&renewals))
                    .await
                    .unwrap_or_else(|| {
                        Err(Error::new(ErrorKind::OutcomeUnknown)
                            .because("the store's code panicked while it renewed"))
                    });
                Some(Answers { sent, ids, result })
            }));
        }
    }

    /// A renewal without an answer is sent again while it can still help, not only after the whole response timeout.
    fn ask_again_after(&self, lease: Duration) -> Duration {
        (lease / 6).min(self.response_timeout)
    }

    fn take(&self, table: &Table, answers: Option<Answers>) {
        let Some(Answers { sent, ids, result }) = answers else {
            return;
        };
        let now = self.timers.now();
        match result {
            Ok(each) => {
                let mut kept = Vec::with_capacity(ids.len());
                for (id, renewed) in ids.into_iter().zip(each) {
                    match renewed {
                        Renewed::Kept => kept.push(id),
                        Renewed::Gone => gone(table, id, LostReason::Taken),
                        Renewed::WrongType => gone(table, id, LostReason::WrongType),
                        Renewed::Failed(error) => table.renewed([id], |keep| {
                            tracing::warn!(lock = %keep.ticket.name, %error, "this lock could not be renewed; trying again within the lease");
                            keep.failed(sent, now);
                        }),
                    }
                }
                table.renewed(kept, |keep| keep.proved(sent, &self.drift));
            }
            Err(error) => {
                tracing::warn!(locks = ids.len(), %error, "renewal failed; trying again within the lease");
                table.renewed(ids, |keep| keep.failed(sent, now));
            }
        }
    }
}

/// Resolves when a closed client needs its steward no more: nothing is left to be done, or what is left has had its time.
async fn retirement(last_call: &mut Option<Pin<Box<Timer>>>, in_flight: &Counter) {
    let Some(last_call) = last_call else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        () = in_flight.none() => {}
        () = last_call => {}
    }
}

fn gone(table: &Table, id: u64, reason: LostReason) {
    if let Some(ticket) = table.lost(id, reason) {
        tracing::warn!(lock = %ticket.name, owner = %ticket.owner, %reason, "the store says that this lock is not held any more");
    }
}

/// A panic in one call must not end the steward: all other locks of the client would be lost with it.
async fn contained<T>(work: impl Future<Output = T>) -> Option<T> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    if result.is_err() {
        tracing::error!("a panic in the background; what it was about is left to its lease");
    }
    result.ok()
}

/// The answers to one batch of renewals.
struct Answers {
    sent: Moment,
    ids: Vec<u64>,
    result: Result<Vec<Renewed>>,
}

/// Nobody keeps the holds any more, also when the steward has panicked: they are lost, and their holders hear of it.
struct Keeper(Arc<Table>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
