//! The tables: which user creates them, which privileges are needed, and when old rows are removed.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tidelock::once::Slot;
use tidelock::{ErrorKind, FencingToken, LostReason};

use super::session::Session;
use super::{a_statement_waits, client, rights, soon};

#[tokio::test(flavor = "multi_thread")]
async fn many_first_clients_create_the_tables_together() -> Result<()> {
    let server = MariaDb::start()?;
    let clients: Vec<_> = (0..12)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { client(&url).await })
        })
        .collect();
    let mut tokens = Vec::new();
    for client in clients {
        let guard = client.await??.lock("stock").fenced().acquire().await?;
        tokens.push(guard.token());
        guard.release().await?;
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_newer_version_are_refused_and_stay_as_they_are() -> Result<()> {
    let server = MariaDb::start()?;
    let earlier = client(&server.url()).await?;
    earlier.lock("stock").acquire().await?.release().await?;
    let contents = "SELECT * FROM locks.tidelock_counter; SELECT COUNT(*) FROM locks.tidelock_clients; \
        SHOW TABLES FROM locks";
    earlier.close(Duration::ZERO).await;
    server.query("UPDATE locks.tidelock_counter SET format = 99")?;
    let before = server.query(contents)?;
    let error = client(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("newer tidelock (format 99, this one knows 1)"),
        "{text}"
    );
    assert!(text.contains("update this program"), "{text}");
    assert_eq!(server.query(contents)?, before);
    // That version can be taken back.
    server.query("UPDATE locks.tidelock_counter SET format = 1")?;
    let again = client(&server.url()).await?;
    again.lock("stock").acquire().await?.release().await?;
    Ok(())
}

/// A URL with a wrong database is an error. It must not create an empty store, whose locks would exclude nobody.
#[tokio::test(flavor = "multi_thread")]
async fn looking_makes_no_table() -> Result<()> {
    let server = MariaDb::start()?;
    let look = || {
        tidelock::Client::builder()
            .publish_process_info(false)
            .create(false)
    };
    let error = look().connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("tables"), "{error}");
    let locks = client(&server.url()).await?;
    let guard = locks.lock("a").acquire().await?;
    let viewer = look().connect(&server.url()).await?;
    assert!(viewer.lock("a").inspect().await?.is_locked());
    guard.release().await?;
    locks.close(Duration::ZERO).await;
    server
        .query("DROP TABLE locks.tidelock_locks, locks.tidelock_clients, locks.tidelock_counter")?;
    let error = viewer.lock("a").inspect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    Ok(())
}

/// A user without the `CREATE` privilege gets an error with the SQL to run. Once the tables exist, four privileges are
/// enough.
#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_are_enough() -> Result<()> {
    let server = MariaDb::start()?;
    server.user("reader", "SELECT ON locks.*")?;
    let url = server.url_at(server.addr(), "reader");
    let error = client(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let text = error.to_string();
    let sql = text
        .split_once("with that right: ")
        .context("the SQL to run")?
        .1;
    server.query(sql)?;
    server.user("least", &rights(None)?)?;
    let least = client(&server.url_at(server.addr(), "least")).await?;
    let url_of_least = server.url_at(server.addr(), "least");
    let detailed = tidelock::Client::builder().connect(&url_of_least).await?;
    let guard = least.lock("stock").fenced().acquire().await?;
    assert_eq!(least.list("*").limit(100).await?, ["stock"]);
    assert!(least.lock("stock").inspect().await?.is_locked());
    guard.extend(Duration::from_secs(9)).await?;
    guard.release().await?;
    drop(least.lock("stock").acquire().await?);
    soon("the lock is free", least.lock("stock").acquire())
        .await?
        .release()
        .await?;
    assert!(!least.diagnose().await?.is_empty());
    detailed.close(Duration::from_secs(1)).await;
    // The marks have a table of their own, which a user who may create tables makes with the first of them.
    let job = least.once("report").slot(Slot::id("Monday"));
    let refused = job.run(|_| async { Ok::<_, Infallible>(()) }).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("tidelock_marks"), "{error}");
    let owner = client(&server.url()).await?;
    real_servers::runs_once(&owner, "first").await?;
    server.grant("least", &rights(Some("elections"))?)?;
    real_servers::runs_once(&least, "report").await?;
    real_servers::leads(&least, "billing").await?;
    // Without the privilege to update rows nothing is granted, and the error names the missing privilege.
    let error = client(&url)
        .await?
        .lock("stock")
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("INSERT"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused_and_no_password_is_told() -> Result<()> {
    let server = MariaDb::start()?;
    let good = server.url();
    for url in [
        good.replace(":pass@", ":hunter2@"),
        good.replace("/locks", "/nowhere"),
    ] {
        let error = client(&url).await.unwrap_err();
        let kind = error.kind();
        assert!(
            matches!(kind, ErrorKind::Refused | ErrorKind::InvalidOptions),
            "{error}"
        );
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    let secured = tidelock::Client::builder().tls_ca("/nowhere/ca.pem");
    let error = secured.connect(&good).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::InvalidOptions,
        "no plain text: {error}"
    );
    server.kill()?;
    let error = client(&good).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    Ok(())
}

/// Somebody drops the tables: the holder learns of the loss, other clients continue, and the tokens do not restart.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_a_loss_and_no_end() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.lock("stock").fenced().acquire().await?;
    server.query("DROP TABLE tidelock_locks, tidelock_counter, tidelock_clients")?;
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
    let next = soon("the next holder", b.lock("stock").fenced().acquire()).await?;
    assert!(next.token() > guard.token());
    // Only the counter table is missing.
    next.release().await?;
    server.query("DELETE FROM tidelock_locks; DELETE FROM tidelock_counter")?;
    let last = soon("the last holder", b.lock("stock").fenced().acquire()).await?;
    assert!(last.token() > guard.token());
    Ok(())
}

/// Somebody drops one table and leaves the others. The counter that stays must not begin again where it stood.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_table_that_is_dropped_is_created_again_and_tokens_grow_on() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut newest = None;
    let grows = |newest: &mut Option<FencingToken>, token: FencingToken| {
        assert!(*newest < Some(token), "{token:?} after {newest:?}");
        *newest = Some(token);
    };
    for table in ["tidelock_locks", "tidelock_counter"] {
        for _ in 0..3 {
            let guard = a.lock("stock").fenced().acquire().await?;
            grows(&mut newest, guard.token());
            guard.release().await?;
        }
        let guard = a.lock("stock").fenced().acquire().await?;
        grows(&mut newest, guard.token());
        server.query(&format!("DROP TABLE {table}"))?;
        if table == "tidelock_locks" {
            assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
        } else {
            guard.release().await?;
        }
        let next = soon("the next holder", b.lock("stock").fenced().acquire()).await?;
        grows(&mut newest, next.token());
        next.release().await?;
        // A process that starts now finds the counter, whatever else is missing.
        server.query(&format!("DROP TABLE {table}"))?;
        let newcomer = client(&server.url()).await?;
        let guard = newcomer.lock("stock").fenced().acquire().await?;
        grows(&mut newest, guard.token());
        guard.release().await?;
    }
    server.query("DROP TABLE tidelock_clients")?;
    let guard = a.lock("stock").acquire().await?;
    assert!(b.lock("stock").inspect().await?.is_locked());
    guard.release().await?;
    Ok(())
}

/// As [`a_single_table_that_is_dropped_is_created_again_and_tokens_grow_on`], for the locks whose waiters have a queue.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_in_a_queue_go_on_after_the_table_of_the_locks_was_dropped() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let held = a.fair_lock("stock").acquire().await?;
    let writes = a.read_write_lock("ledger").write().acquire().await?;
    let waiting = tokio::spawn(b.fair_lock("stock").acquire());
    let reading = tokio::spawn(b.read_write_lock("ledger").read().acquire());
    let waiters = "SELECT (SELECT COUNT(*) FROM tidelock_waiters) + \
        (SELECT COUNT(*) FROM tidelock_sides WHERE held_as IS NULL)";
    let both = async {
        while server.query(waiters)? != "2" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    soon("both wait", both).await?;
    server.query("DROP TABLE tidelock_locks")?;
    assert_eq!(soon("a loss", held.lost()).await, LostReason::Taken);
    assert_eq!(soon("a loss", writes.lost()).await, LostReason::Taken);
    soon("its turn", waiting).await??.release().await?;
    soon("its turn", reading).await??.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_create_a_missing_table_is_told_which() -> Result<()> {
    let server = MariaDb::start()?;
    let owner = client(&server.url()).await?;
    server.user("least", &rights(None)?)?;
    let least = client(&server.url_at(server.addr(), "least")).await?;
    least.lock("stock").acquire().await?.release().await?;
    for table in ["tidelock_locks", "tidelock_clients"] {
        server.query(&format!("DROP TABLE {table}"))?;
        let error = match table {
            "tidelock_locks" => least.lock("stock").acquire().await.unwrap_err(),
            _ => least.lock("stock").inspect().await.unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let text = error.to_string();
        let said = format!("the table {table} does not exist");
        assert!(text.contains(&said), "{text}");
        let sql = text.split_once("with that right: ");
        server.query(sql.context("the SQL to run")?.1)?;
        least.lock("stock").acquire().await?.release().await?;
        assert!(!least.lock("stock").inspect().await?.is_locked());
    }
    owner.lock("stock").acquire().await?.release().await?;
    Ok(())
}

/// Rows of names that were not used for a long time are removed, and their tokens are never issued again.
#[tokio::test(flavor = "multi_thread")]
async fn old_rows_go_and_tokens_grow_on() -> Result<()> {
    let server = MariaDb::start()?;
    let a = client(&server.url()).await?;
    let mut newest = 0;
    for _ in 0..3 {
        let guard = a.lock("old").fenced().acquire().await?;
        newest = guard.token().get();
        guard.release().await?;
    }
    let young = a.lock("young").acquire().await?;
    server.query(
        "UPDATE tidelock_locks SET expires = expires - 7200000000, token = token + 1000000000000 WHERE name = 'old'",
    )?;
    let newest = newest + 1_000_000_000_000;
    // A client with `details` on removes old rows.
    let details = tidelock::Client::builder().connect(&server.url()).await?;
    let cleared = async {
        while server.query("SELECT COUNT(*) FROM tidelock_locks WHERE name = 'old'")? != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    soon("the row goes", cleared).await?;
    assert!(young.is_held());
    let guard = details.lock("old").fenced().acquire().await?;
    assert!(guard.token().get() > newest);
    Ok(())
}

/// More than one transaction deletes. A service that locks each order once leaves as many within minutes.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_many_old_names_are_all_deleted() -> Result<()> {
    let server = MariaDb::start()?;
    client(&server.url()).await?.close(Duration::ZERO).await;
    server.query(
        "INSERT INTO tidelock_locks (id, name, owner, expires, token, withdrawn, before_that, turned) \
         SELECT UNHEX(SHA2(seq, 256)), seq, '', (UNIX_TIMESTAMP() - 7200) * 1000000 + seq, 7, '', '', 0 FROM seq_1_to_5000",
    )?;
    let a = tidelock::Client::builder().connect(&server.url()).await?;
    let young = a.lock("young").acquire().await?;
    let cleared = async {
        while server.query("SELECT COUNT(*) FROM tidelock_locks")? != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    soon("the rows go", cleared).await?;
    assert!(young.is_held());
    Ok(())
}

/// A row that becomes old while the removal of old rows waits for another one is removed only if its token was counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_becomes_old_meanwhile_does_not_take_its_tokens_with_it() -> Result<()> {
    let server = MariaDb::start()?;
    let a = client(&server.url()).await?;
    for name in ["oldest", "ledger"] {
        a.lock(name).acquire().await?.release().await?;
    }
    let old_in = Duration::from_secs(2);
    let begun = Instant::now();
    server.query(&format!(
        "UPDATE tidelock_locks SET expires = 0 WHERE name = 'oldest'; \
         UPDATE tidelock_locks SET expires = expires - 3600000000 + {}, token = token + 1000000000000 WHERE name = 'ledger'",
        old_in.as_micros()
    ))?;
    let newest = server.query("SELECT token FROM tidelock_locks WHERE name = 'ledger'")?;
    let newest: u64 = newest.parse()?;
    let mut session = Session::open(&server)?;
    let row = "SELECT name FROM tidelock_locks WHERE id = UNHEX(SHA2('oldest', 256)) FOR UPDATE";
    let locked = session.ask(&format!("START TRANSACTION; {row}")).await?;
    assert_eq!(locked, "oldest");
    // Its details make this client remove old rows. It waits five seconds for a row.
    let details = tidelock::Client::builder().lease(Duration::from_secs(60));
    let details = details.response_timeout(Duration::from_secs(15));
    let _details = details.connect(&server.url()).await?;
    a_statement_waits(&server).await?;
    tokio::time::sleep((old_in + old_in / 8).saturating_sub(begun.elapsed())).await;
    session.ask("COMMIT; SELECT 1").await?;
    let oldest = "SELECT COUNT(*) FROM tidelock_locks WHERE name = 'oldest'";
    let gone = async {
        while server.query(oldest)? != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    soon("the removal", gone).await?;
    let guard = a.lock("ledger").fenced().acquire().await?;
    let token = guard.token().get();
    assert!(token > newest, "{token} after {newest}");
    Ok(())
}

/// There the details of a client are kept without its user.
#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_an_earlier_tidelock_have_no_users() -> Result<()> {
    let server = MariaDb::start()?;
    client(&server.url()).await?.close(Duration::ZERO).await;
    server.query("ALTER TABLE tidelock_clients DROP COLUMN os_user")?;
    let builder = tidelock::Client::builder().os_user("deploy");
    let a = builder.connect(&server.url()).await?;
    soon("the details", async {
        while server
            .query("SELECT count(*) FROM tidelock_clients")?
            .trim()
            != "1"
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    })
    .await?;
    let _guard = a.lock("till").acquire().await?;
    let seen = a.lock("till").inspect().await?;
    let client = seen.holders[0].client.as_ref().context("no details")?;
    assert_eq!((client.pid, &client.user), (std::process::id(), &None));
    Ok(())
}
