//! Where requests go, and which are sent again. Most jobs run nowhere: the test says what each node answers.

use std::collections::VecDeque;

use super::*;
use crate::engine::runtime::sync::Mutex;
use crate::store::redis::topology::endpoint::EndpointLogin;
use crate::store::redis::topology::tests::connection_to;
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::live_connection::peer::{in_time, request_of};
use crate::store::redis::wire::tests::replies::text;
use crate::store::redis::wire::tests::{ScriptedServer, loopback, simulated};

const LIMIT: Duration = Duration::from_secs(8);

/// The key of the jobs.
const KEY: &str = "k";

/// A job. It notes the nodes on which it runs, and whether ASKING comes first.
struct ScriptedJob {
    answers: Mutex<VecDeque<Result<u8>>>,
    ran: Mutex<Vec<(String, bool)>>,
    /// How often it was told that it runs once more.
    repeated: Mutex<u32>,
    /// How long each answer takes.
    takes: Duration,
    deadline: BootInstant,
}

impl ScriptedJob {
    /// After these answers it succeeds.
    fn new(router: &Router, answers: impl IntoIterator<Item = Result<u8>>) -> Self {
        Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ran: Mutex::default(),
            repeated: Mutex::default(),
            takes: Duration::ZERO,
            deadline: router.deadline(),
        }
    }

    /// The ports of the nodes on which it has run.
    fn ports(&self) -> Vec<String> {
        let ran = self.ran.lock();
        ran.iter().map(|(port, _)| port.clone()).collect()
    }
}

impl ServerJob for ScriptedJob {
    type Output = u8;

    fn key(&self) -> &'static str {
        KEY
    }

    fn deadline(&self) -> BootInstant {
        self.deadline
    }

    fn again(&self) {
        *self.repeated.lock() += 1;
    }

    async fn run(&self, connection: &Connection, asking: bool) -> Result<u8> {
        // `redis://127.0.0.1:PORT/0`
        let address = format!("{connection:?}");
        let port = address.rsplit(':').next().unwrap_or_default();
        let port = port.trim_end_matches("/0").to_owned();
        self.ran.lock().push((port, asking));
        if !self.takes.is_zero() {
            connection.timers().after(self.takes).await;
        }
        let answer = self.answers.lock().pop_front();
        answer.unwrap_or(Ok(1))
    }
}

/// A cluster with all slots at the first of two nodes, which do not exist, and its router.
fn cluster() -> (Arc<Cluster>, Router) {
    let (background, timers) = simulated();
    let (seeds, entry) = (vec![loopback(1)], EndpointLogin::default());
    let cluster = Cluster::new(seeds, entry, background, timers, LIMIT, LIMIT);
    cluster.give_all_slots(&loopback(1));
    let cluster = Arc::new(cluster);
    let router = Router::Cluster(Arc::clone(&cluster), ConnectionFace::Front);
    (cluster, router)
}

/// The answer of a server with this error.
fn said(error: &str) -> Result<u8> {
    Err(ServerError::parse(error).error())
}

fn sent_on(kind: &str, port: u16) -> Result<u8> {
    said(&format!("{kind} {} 127.0.0.1:{port}", slots::of(KEY)))
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_has_moved_is_found_at_its_new_node_from_then_on() {
    let (cluster, router) = cluster();
    let job = ScriptedJob::new(&router, [sent_on("MOVED", 2)]);
    assert_eq!(router.run(&job).await.unwrap(), 1);
    assert_eq!(job.ports(), ["1", "2"]);
    assert!(job.ran.lock().iter().all(|(_, asking)| !asking));
    assert_eq!(*job.repeated.lock(), 1);
    assert_eq!(router.run(&job).await.unwrap(), 1);
    assert_eq!(job.ports(), ["1", "2", "2"]);
    assert_eq!(*job.repeated.lock(), 1, "its first node was the right one");
    let other = slots::of(KEY) + 1;
    assert_eq!(cluster.owner(other).unwrap().address, loopback(1));
    assert_eq!(router.everywhere().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_migrates_is_asked_for_at_the_other_node_only_once() {
    let (cluster, router) = cluster();
    let job = ScriptedJob::new(&router, [sent_on("ASK", 2)]);
    let name = Name::new(KEY).unwrap();
    assert_eq!(router.lane(&name), cluster.owner(0).unwrap().lane);
    assert_eq!(router.run(&job).await.unwrap(), 1);
    assert_eq!(router.run(&job).await.unwrap(), 1);
    let ran = job.ran.lock().clone();
    let expected = [("1", false), ("2", true), ("1", false)];
    assert_eq!(
        ran,
        expected.map(|(port, asking)| (port.to_owned(), asking))
    );
    assert_eq!(router.lane(&name), u64::from(slots::of(KEY)));
}

/// Only a request that certainly has not run may run again, and only if that may help.
#[tokio::test(start_paused = true)]
async fn a_request_is_repeated_if_it_has_not_run_and_may_succeed_soon() {
    for (error, is_repeated) in [
        (
            said("TRYAGAIN Multiple keys request during rehashing"),
            true,
        ),
        (said("CLUSTERDOWN The cluster is down"), true),
        (said("LOADING loading"), true),
        (said("READONLY a replica"), true),
        (said("OOM used memory > 'maxmemory'"), true),
        (Err(unsent("connection refused")), true),
        // A transaction that has changed nothing.
        (said("ERR strange").map_err(Error::without_effect), false),
        (said("ERR strange"), false),
        (said("NOPERM no permissions"), false),
        (said("WRONGTYPE no lock"), false),
    ] {
        let (cluster, router) = cluster();
        let told = error.as_ref().unwrap_err();
        let (kind, text) = (told.kind(), told.to_string());
        let job = ScriptedJob::new(&router, [error]);
        let answer = router.run(&job).await.map_err(|error| error.kind());
        let expected = if is_repeated { Ok(1) } else { Err(kind) };
        assert_eq!(answer, expected, "{text}");
        assert_eq!(job.ports().len(), 1 + usize::from(is_repeated), "{text}");
        // A node that does not answer, or not as it should, may have been replaced.
        let doubts = is_repeated || kind == ErrorKind::OutcomeUnknown;
        assert_eq!(cluster.is_in_doubt(), doubts, "{text}");
    }
}

/// Four redirections are followed at once, and the others after a pause.
#[tokio::test(start_paused = true)]
async fn nodes_that_disagree_are_asked_for_half_a_second() {
    let (cluster, router) = cluster();
    let answers = (0..100).map(|nth| sent_on("MOVED", 2 - nth % 2));
    let job = ScriptedJob::new(&router, answers);
    let begun = cluster.timers.now();
    let error = router.run(&job).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("its nodes disagree"), "{error}");
    let took = cluster.timers.now().since(begun);
    assert!((RETRY_LIMIT..RETRY_LIMIT * 2).contains(&took), "{took:?}");
    // 10, 20, 40 and 80 ms, and then 100 ms each.
    assert_eq!(job.ports().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_succeeds_ends_with_its_own_error() {
    let (_, router) = cluster();
    for first in ["MOVED", "ASK"] {
        let loading = (0..100).map(|_| said("LOADING loading"));
        let answers = [sent_on(first, 2)].into_iter().chain(loading);
        let job = ScriptedJob::new(&router, answers);
        let error = router.run(&job).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("LOADING"), "{error}");
    }
}

/// Its caller has no more time than that.
#[tokio::test(start_paused = true)]
async fn a_slot_without_a_node_is_waited_for_until_the_deadline() {
    let (background, timers) = simulated();
    let (seeds, entry) = (vec![loopback(1)], EndpointLogin::default());
    let cluster = Cluster::new(seeds, entry, background, timers, LIMIT, LIMIT);
    let cluster = Arc::new(cluster);
    let router = Router::Cluster(Arc::clone(&cluster), ConnectionFace::Back);
    let begun = cluster.timers.now();
    let mut job = ScriptedJob::new(&router, []);
    job.deadline = begun + RETRY_LIMIT / 2;
    let error = router.run(&job).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = format!("no node has slot {}", slots::of(KEY));
    assert!(error.to_string().contains(&told), "{error}");
    let took = cluster.timers.now().since(begun);
    assert!((RETRY_LIMIT / 2..RETRY_LIMIT).contains(&took), "{took:?}");
    // As soon as there is one, the request goes on.
    job.deadline = cluster.timers.now() + LIMIT;
    let appears = async { cluster.give_all_slots(&loopback(1)) };
    let (answer, ()) = tokio::join!(router.run(&job), appears);
    assert_eq!(answer.unwrap(), 1);
}

/// Another node may have replaced one that is slow. The map is refreshed while its answer is awaited.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_slow_puts_the_map_in_doubt() {
    for (takes, doubts) in [(LIMIT / 16, false), (LIMIT / 4, true)] {
        let (cluster, router) = cluster();
        let mut job = ScriptedJob::new(&router, []);
        job.takes = takes;
        assert_eq!(router.run(&job).await.unwrap(), 1, "it is waited for");
        assert_eq!(cluster.is_in_doubt(), doubts, "{takes:?}");
    }
}

/// A question that concerns no slot is asked of one node, whatever it answers.
#[tokio::test(start_paused = true)]
async fn a_job_for_one_node_runs_there_once() {
    for (error, kind, doubts) in [
        ("ERR strange", ErrorKind::OutcomeUnknown, true),
        ("LOADING loading", ErrorKind::Unavailable, false),
    ] {
        let (cluster, router) = cluster();
        let job = ScriptedJob::new(&router, [said(error)]);
        let node = cluster.node_at(&loopback(2));
        let answer = router.run_on(&node, &job).await;
        assert_eq!(answer.unwrap_err().kind(), kind);
        assert_eq!(job.ports(), ["2"]);
        assert_eq!(cluster.is_in_doubt(), doubts, "{error}");
    }
    let (cluster, _) = cluster();
    let one = Router::One(connection_to(loopback(3)));
    let job = ScriptedJob::new(&one, []);
    let node = cluster.node_at(&loopback(2));
    assert_eq!(one.run_on(&node, &job).await.unwrap(), 1);
    assert_eq!(job.ports(), ["3"], "it has only one server");
}

#[tokio::test]
async fn only_a_cluster_refuses_names_whose_keys_would_part() {
    let (_, many) = cluster();
    let one = Router::One(connection_to(loopback(1)));
    let named = |text: &str| Name::new(text).unwrap();
    for (name, is_whole) in [
        ("a", true),
        ("{a}:b", true),
        ("a{b", false),
        ("a{}b", false),
    ] {
        assert!(one.check(&named(name)).is_ok(), "{name}");
        let kind = many.check(&named(name)).map_err(|error| error.kind());
        let refused = Err(ErrorKind::InvalidName);
        assert_eq!(kind, if is_whole { Ok(()) } else { refused }, "{name}");
    }
    assert!(many.is_cluster() && !one.is_cluster());
    assert_eq!(many.limit(), LIMIT);
    assert_ne!(one.limit(), LIMIT);
    assert_eq!(one.lane(&named("a")), 0, "all fail together");
}

/// Another connection may lead to a server that has replaced this one.
#[tokio::test]
async fn the_run_of_a_server_is_asked_for_once_on_its_only_connection() {
    let server = ScriptedServer::start().await;
    let run = text("run_id:abc\r\nuptime_in_seconds:12\r\n");
    server.answers("INFO server", &[&run]);
    let connection = connection_to(server.address());
    let timers = connection.timers().clone();
    let router = Router::One(connection.clone());
    let asked = async || in_time(router.incarnation(&timers)).await.unwrap();
    for times in [1, 1] {
        assert_eq!(&*asked().await.unwrap().id, "abc");
        assert_eq!(server.heard("INFO server").len(), times);
    }
    let kept = connection.attachments().get::<String>();
    for times in [2, 3] {
        assert_eq!(&*asked().await.unwrap().id, "abc");
        assert_eq!(server.heard("INFO server").len(), times);
    }
    assert!(kept.is_empty());
    let (_, many) = cluster();
    assert!(many.incarnation(&timers).await.unwrap().is_none());
}

#[tokio::test]
async fn a_server_that_may_not_tell_its_run_tells_none() {
    for (reply, expected) in [
        ("-NOPERM no permissions\r\n", Ok(true)),
        ("-LOADING loading\r\n", Err(ErrorKind::Unavailable)),
    ] {
        let server = ScriptedServer::start().await;
        server.answers("INFO server", &[reply]);
        let connection = connection_to(server.address());
        let timers = connection.timers().clone();
        let router = Router::One(connection);
        let run = in_time(router.incarnation(&timers)).await;
        let run = run.map(|run| run.is_none()).map_err(|error| error.kind());
        assert_eq!(run, expected, "{reply}");
    }
}

#[tokio::test]
async fn a_closed_router_has_closed_its_connections() {
    let server = ScriptedServer::start().await;
    let router = Router::One(connection_to(server.address()));
    for request in ["GET before", "GET after"] {
        let request = request_of(request);
        let asked = router.ask(KEY, &request, router.deadline());
        in_time(asked).await.unwrap();
        router.close();
    }
    let used = server.connections("GET");
    assert_ne!(used[0], used[1]);
}
