//! Requests that reach no server, and requests whose reply is lost.

mod answers;
pub(super) mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use futures_util::FutureExt as _;

use super::*;
use crate::Credentials;
use crate::error::ErrorKind;
use crate::snapshot::Holder;
use crate::store::fair_waiters::QueueTable as _;
use crate::store::mysql::tests::server::ScriptedServer;
use crate::store::sweeper::SweptTables as _;
use crate::store::tests::scripted::simulated;
use crate::store::{MarkChange, PollerBeat, ReplicaAck, TlsFiles};
use crate::types::OwnerMint;

/// The response timeout and the lease of the tests.
pub(super) const LIMIT: Duration = Duration::from_secs(7);

/// The settings of a client on the runtime of the test, and how many connections it has asked for.
pub(super) fn env() -> (Env, Arc<AtomicUsize>) {
    let (background, timers) = simulated();
    let opened = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&opened);
    let login = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Credentials::default()
    };
    let env = Env {
        credentials: Some(Arc::new(login)),
        ..Env::of_limits(timers, background, LIMIT)
    };
    (env, opened)
}

/// The address of a server that is out of reach.
fn address() -> Address {
    Address::parse("mysql://h/locks?socket=/tidelock/none.sock").unwrap()
}

/// A pool of one connection, to a server that is out of reach.
pub(super) fn pool(env: &Env) -> Pool {
    Pool::new(address(), env, 1)
}

/// A row of these words. `NULL` is no value.
pub(super) fn row(words: &str) -> TextRow {
    let words = words.split(' ');
    words
        .map(|word| (word != "NULL").then(|| word.into()))
        .collect()
}

/// A ticket of a new owner.
pub(super) fn ticket(kind: LockKind) -> Ticket {
    Ticket {
        kind,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    }
}

/// A renewal of a lock of this kind.
pub(super) fn renewal(kind: LockKind) -> Renewal {
    Renewal {
        ticket: ticket(kind),
        lease: LIMIT,
        wish: ReplicaAck::Off,
    }
}

/// A store whose server is out of reach, and how many connections it has asked for.
pub(super) fn mysql() -> (Arc<Mysql>, Arc<AtomicUsize>) {
    let (env, opened) = env();
    (callers_side(&address(), &env), opened)
}

/// The callers' side of a store at this address.
fn callers_side(address: &Address, env: &Env) -> Arc<Mysql> {
    let front = Pool::new(address.clone(), env, FRONT);
    sides_of(front, address, env).0
}

/// The callers' side of a store at a scripted server.
pub(super) fn mysql_at(server: &ScriptedServer) -> Arc<Mysql> {
    callers_side(&server.address(), &env().0)
}

/// A pool of one connection, to a scripted server.
pub(super) fn pool_at(server: &ScriptedServer) -> Pool {
    Pool::new(server.address(), &env().0, 1)
}

/// An attempt of a caller that waits.
pub(super) fn attempt(ticket: &Ticket) -> AttemptRequest {
    let ask = AttemptRequest::once(ticket.clone(), LIMIT, ReplicaAck::Off);
    AttemptRequest {
        patience: LIMIT,
        ..ask
    }
}

type Request<'a> = (&'static str, BoxFuture<'a, Result<()>>);

/// A request by its name, without its answer.
fn request<'a, T: 'a>(
    name: &'static str,
    answer: impl Future<Output = Result<T>> + Send + 'a,
) -> Request<'a> {
    (name, Box::pin(answer.map(|answer| answer.map(drop))))
}

/// All that is asked with a ticket, in the order of a hold.
fn requests_of<'a>(store: &'a dyn Backend, ask: &'a AttemptRequest) -> Vec<Request<'a>> {
    let attempted = store.attempt(ask).map(|reply| reply.outcome);
    vec![
        request("attempt", attempted),
        request("release", store.release(&ask.ticket)),
        request("withdraw", store.withdraw(&ask.ticket)),
    ]
}

/// All that is asked about a name.
fn requests_about<'a>(store: &'a dyn Backend, name: &'a Name) -> Vec<Request<'a>> {
    let can = store.extensions();
    let (tokens, marks) = (can.token_counter.unwrap(), can.marks.unwrap());
    let keep = Duration::from_secs(60);
    let change = MarkChange::unacknowledged("noon", None, "done", keep);
    vec![
        request("inspect", store.inspect(name)),
        request("list", store.list("*", None)),
        request("force release", store.force_release(name, None)),
        request("diagnose", store.diagnose()),
        request("raise", tokens.raise(name, 7)),
        request("time", marks.now(name)),
        request("read", marks.read(name, "noon")),
        request("replace", marks.replace(name, change)),
        request("history", marks.history(name, 3)),
    ]
}

/// Asks everything, each time after `before`. Each request fails with this kind, and asks for so many connections.
async fn fails_once(before: fn(&Pool), kind: ErrorKind, connections: usize) {
    let (mysql, opened) = mysql();
    let store: Arc<dyn Backend> = mysql.clone();
    let kinds = [LockKind::Fenced, LockKind::Fair, LockKind::Read];
    let attempts = kinds.map(|kind| attempt(&ticket(kind)));
    let client = ClientId::random();
    let info = ClientInfo::new("web-1", 7, "shop", UNIX_EPOCH);
    let batch = [renewal(LockKind::Fenced)];
    let one = &attempts[0].ticket;
    let pollers = store.extensions().pollers.unwrap();
    let mut requests = requests_about(&*store, &one.name);
    for ask in &attempts {
        requests.extend(requests_of(&*store, ask));
    }
    requests.extend([
        request("announce", store.announce(&client, Some(&info))),
        request("retract", store.announce(&client, None)),
        request("count", pollers.ahead(one, PollerBeat::Join)),
        request("renew", store.renew(&batch)),
    ]);
    for (name, answer) in requests {
        before(&mysql.pool);
        let begun = opened.load(Ordering::SeqCst);
        let error = answer.await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        let asked = opened.load(Ordering::SeqCst) - begun;
        assert_eq!(asked, connections, "{name}");
    }
}

#[tokio::test]
async fn without_a_server_nothing_is_reported_as_done() {
    fails_once(|_| {}, ErrorKind::Unavailable, 1).await;
}

/// It may have taken effect. The next request would go to a new connection.
#[tokio::test]
async fn a_request_without_a_reply_has_an_unknown_outcome_and_is_not_sent_again() {
    fails_once(Pool::break_next, ErrorKind::OutcomeUnknown, 0).await;
}

/// Whether a request on this pool is the first one since its connection was to break.
async fn is_next_broken(pool: &Pool) -> bool {
    let asked = pool.ask("SELECT 1".to_owned(), pool.deadline()).await;
    asked.unwrap_err().error().outcome_unknown()
}

/// Otherwise the attempt that was never sent would cost a withdrawal.
#[tokio::test]
async fn a_look_without_a_reply_is_an_attempt_without_effect() {
    let (mysql, opened) = mysql();
    let ask = AttemptRequest {
        refused: true,
        ..attempt(&ticket(LockKind::Mutex))
    };
    mysql.pool.break_next();
    let error = Backend::attempt(&*mysql, &ask).await.outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(opened.load(Ordering::SeqCst), 0, "nothing else was sent");
}

/// Only then its withdrawal leaves a mark in the row of the lock.
#[tokio::test]
async fn an_attempt_without_a_reply_may_arrive_after_its_withdrawal() {
    for kind in [LockKind::Fair, LockKind::Write] {
        let (mysql, _) = mysql();
        let (lost, unsent) = (ticket(kind), ticket(kind));
        mysql.pool.break_next();
        for ticket in [&lost, &unsent] {
            let ask = attempt(ticket);
            assert!(mysql.attempt_queued(&ask).await.is_err());
        }
        assert!(mysql.queued.withdraw(&lost));
        assert!(!mysql.queued.withdraw(&unsent));
        let ask = attempt(&lost);
        let again = mysql.attempt_queued(&ask).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Cancelled, "it was withdrawn");
    }
}

/// Without the row of the counter there is no mark, and a late attempt would take effect.
#[tokio::test]
async fn a_withdrawal_that_could_set_no_mark_is_not_reported_as_done() {
    let (mysql, _) = mysql();
    let unmarked = [row("1 0")];
    assert!(mysql.need_counter(&unmarked, 1).await.is_err());
    let marked = [row("0 1")];
    let found = mysql.need_counter(&marked, 1).await.unwrap();
    assert_eq!(found, &marked[0]);
    assert!(mysql.need_counter(&[], 1).await.is_err());
}

#[tokio::test]
async fn an_answer_without_a_row_is_no_refusal() {
    let (mysql, opened) = mysql();
    assert!(mysql.first_row(&[]).await.is_err());
    assert_eq!(opened.load(Ordering::SeqCst), 1, "the tables are looked at");
    let rows = [row("7"), row("8")];
    assert_eq!(mysql.first_row(&rows).await.unwrap(), &rows[0]);
}

#[test]
fn a_release_that_has_changed_no_row_has_freed_nothing() {
    assert_eq!(released(0), Released::NotHeld);
    assert_eq!(released(1), Released::Freed);
}

#[tokio::test]
async fn a_lock_that_was_seen_free_is_taken_from_nobody() {
    let (mysql, opened) = mysql();
    let name = ticket(LockKind::Mutex).name;
    let mut seen = Snapshot::free(name.as_str());
    assert!(!mysql.force_release(&name, Some(&seen)).await.unwrap());
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    seen.holders.push(Holder::new("c:1", 1));
    assert!(!has_sides(&seen));
    for mode in [Mode::Read, Mode::Write, Mode::UpgradeableRead] {
        seen.holders[0].mode = mode;
        assert!(has_sides(&seen), "{mode:?}");
        assert!(mysql.force_release(&name, Some(&seen)).await.is_err());
    }
    assert_eq!(opened.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_release_wakes_the_waiters_that_it_lets_in() {
    let (mysql, _) = mysql();
    let asks = [LockKind::Read; 3].map(|kind| attempt(&ticket(kind)));
    let wakes = asks.each_ref().map(|ask| mysql.waiters.arm(ask).unwrap());
    let [first, second, _] = asks.each_ref().map(|ask| ask.ticket.owner.text());
    let next = Some(format!("{first} {second}").into_bytes());
    let answer = vec![Some(b"1".to_vec()), next];
    assert_eq!(mysql.ended(&[answer]).unwrap(), 1);
    let woken = wakes.map(|mut wake| wake.woken().now_or_never().is_some());
    assert_eq!(woken, [true, true, false]);
    assert_eq!(mysql.ended(&[row("0 ")]).unwrap(), 0, "nobody is next");
    assert!(mysql.ended(&[]).unwrap_err().outcome_unknown());
}

#[tokio::test]
async fn a_closed_store_asks_nobody() {
    let (mysql, opened) = mysql();
    let ticket = ticket(LockKind::Mutex);
    mysql.close().await;
    let error = mysql.release(&ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let looked = mysql
        .looks
        .ask("SELECT 1".to_owned(), mysql.looks.deadline());
    let error = looked.await.unwrap_err().error();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_store_has_the_abilities_that_it_tells() {
    let (mysql, _) = mysql();
    let (tells, has) = (mysql.capabilities(), mysql.extensions());
    assert_eq!(tells, CAPABILITIES);
    assert_eq!(tells.raises_tokens, has.token_counter.is_some());
    assert_eq!(tells.marks, has.marks.is_some());
    assert_eq!(tells.counts, has.counts.is_some());
    assert_eq!(tells.sequencers, has.sequencers.is_some());
    assert!(has.pollers.is_some(), "it wakes nobody");
    let fence = has.sql_fence.unwrap();
    assert!(fence.contains("`locks`.tidelock_locks"), "{fence}");
}

/// Everything would go in plain text.
#[tokio::test]
async fn certificates_without_tls_are_refused_before_a_request() {
    let (env, opened) = env();
    let ca = Some("/ca.pem".into());
    let env = Env {
        tls: TlsFiles {
            ca,
            ..TlsFiles::default()
        },
        ..env
    };
    let error = target("mysql://h/locks", &env).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    let error = connect("mysql://h/locks", &env).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    let tls = target("mysql://h/locks?ssl-mode=REQUIRED", &env).unwrap();
    assert_eq!(tls.files, env.tls);
    assert_eq!(opened.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_store_out_of_reach_is_not_opened() {
    let (env, opened) = env();
    let url = "mysql://h/locks?socket=/tidelock/none.sock";
    let error = connect(url, &env).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_poller_that_leaves_tells_the_server() {
    let (mysql, _) = mysql();
    mysql.pool.break_next();
    mysql
        .extensions()
        .pollers
        .unwrap()
        .leave(&ticket(LockKind::Mutex));
    assert!(!is_next_broken(&mysql.pool).await);
}

#[tokio::test]
async fn a_sweep_without_a_reply_tells_of_no_full_batch_and_ends() {
    let (mysql, _) = mysql();
    let tables = MysqlTables(mysql.pool.clone());
    mysql.pool.break_next();
    assert!(tables.sweep_batch().await.unwrap_err().outcome_unknown());
    for _ in queue_sql::sweeps() {
        mysql.pool.break_next();
    }
    tables.finish().await;
    assert!(!is_next_broken(&mysql.pool).await, "each table was swept");
}

/// A look that seems to find nobody would take their places from the waiters.
#[tokio::test]
async fn a_look_at_a_queue_without_a_reply_shows_no_empty_queue() {
    let (mysql, _) = mysql();
    let table = MysqlQueue {
        pool: mysql.pool.clone(),
    };
    let name = ticket(LockKind::Fair).name;
    for beat in [true, false] {
        mysql.pool.break_next();
        let looked = table.look(&name, "c", beat).await;
        assert!(looked.unwrap_err().outcome_unknown());
    }
}
