//! The server's queue of notifications when it has no room.

use testkit::servers::PostgresServer;
use tidelock::{Client, Finding, Severity};

use super::{lease, server, soon, until};

/// The functions of a server whose queue is as full as a table says. A full queue has eight gigabytes. A real one refuses
/// the transaction at its commit, and this one at the call.
const QUEUE: &str = "CREATE TABLE queue (used float8); INSERT INTO queue VALUES (0); \
    CREATE FUNCTION public.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT used FROM public.queue'; \
    CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
      IF (SELECT used FROM public.queue) >= 1 THEN \
        RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END IF; \
      PERFORM pg_catalog.pg_notify($1, $2); END $$; \
    ALTER DATABASE postgres SET search_path = public, pg_catalog";

fn fill(server: &PostgresServer, used: u8) {
    server
        .query(&format!("UPDATE queue SET used = {used}"))
        .unwrap();
}

/// The lease is so long that no waiter asks again by itself within this test.
async fn patient(server: &PostgresServer) -> Client {
    let builder = Client::builder().lease(lease() * 100);
    let builder = builder
        .response_timeout(lease())
        .publish_process_info(false);
    builder.connect(&server.url()).await.unwrap()
}

/// Whether a client hears of releases.
async fn wakes(client: &Client) -> Finding {
    let mut findings = client.diagnose().await.unwrap();
    findings.retain(|one| one.subject == "wakes");
    findings.remove(0)
}

/// A session that listens has left a transaction open, perhaps in another database, and the queue is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_of_notifications_undoes_no_release() {
    let server = server();
    server.query(QUEUE).unwrap();
    let (a, b) = (patient(&server).await, patient(&server).await);
    assert_eq!(wakes(&b).await.severity, Severity::Good);
    let locks = |client: &Client| {
        [
            client.lock("plain"),
            client.fair_lock("fair"),
            client.read_write_lock("sides").write(),
        ]
    };
    let semaphore = a.semaphore("permits");
    semaphore.set_permits(1).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for lock in locks(&a) {
        held.push(lock.acquire().await.unwrap());
    }
    for lock in locks(&b) {
        waiting.push(tokio::spawn(lock.acquire()));
    }
    let waits = tokio::spawn(b.semaphore("permits").acquire());
    let queued = "SELECT (SELECT count(*) FROM tidelock_locks_waiters) \
        + (SELECT count(*) FROM tidelock_locks_sides WHERE held_as IS NULL) \
        + (SELECT count(*) FROM tidelock_locks_permits WHERE NOT held)";
    until(&server, queued, "3").await;
    fill(&server, 1);
    let said = server.query("SELECT pg_notify('any', 'thing')");
    assert!(said.is_err(), "or this test shows nothing");
    for guard in held {
        guard.release().await.unwrap();
    }
    permit.release().await.unwrap();
    for next in waiting {
        let next = soon("its turn", next).await.unwrap().unwrap();
        next.release().await.unwrap();
    }
    let next = soon("its turn", waits).await.unwrap().unwrap();
    next.release().await.unwrap();
    let finding = wakes(&b).await;
    assert_eq!(finding.severity, Severity::Advice, "{finding:?}");
    assert!(finding.found.contains("almost full"), "{finding:?}");
    fill(&server, 0);
    soon("room in the queue", async {
        while wakes(&b).await.severity != Severity::Good {
            tokio::time::sleep(lease() / 100).await;
        }
    })
    .await;
}

/// The queue has no room when a client begins to listen. Its connection stays: each new one could have to read the whole queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_listens_stays_until_the_queue_has_room() {
    let server = server();
    server.query(QUEUE).unwrap();
    let (a, b) = (patient(&server).await, patient(&server).await);
    // It does not wait, so it does not listen.
    let guard = a.lock("plain").try_acquire().await.unwrap();
    let guard = guard.expect("it is free");
    fill(&server, 1);
    let waiting = tokio::spawn(b.lock("plain").acquire());
    let shown = |what: &str, which: &str| {
        format!("SELECT {what} FROM pg_stat_activity WHERE query LIKE 'LISTEN%'{which}")
    };
    until(&server, &shown("count(*)", ""), "1").await;
    let first = server.query(&shown("pid", "")).unwrap();
    let asked = server.query(&shown("query_start", "")).unwrap();
    // The same connection has asked again whether there is room.
    let again = shown("pid", &format!(" AND query_start > '{asked}'"));
    until(&server, &again, &first).await;
    assert!(!waiting.is_finished());
    fill(&server, 0);
    soon("room in the queue", async {
        while wakes(&b).await.severity != Severity::Good {
            tokio::time::sleep(lease() / 100).await;
        }
    })
    .await;
    assert_eq!(server.query(&shown("pid", "")).unwrap(), first);
    guard.release().await.unwrap();
    let next = soon("its turn", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}
