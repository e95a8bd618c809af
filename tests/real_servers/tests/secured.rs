//! Locks on fully secured servers: TLS with certificates on both sides, and a user with the least rights.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::{Certs, Flavour, RedisServer, Sentinels, ServerCert, Tls};
use tidelock::store::{Env, TlsFiles};
use tidelock::testing::{Fixture, open};
use tidelock::{Client, Credentials};

const TLS: Tls = Tls {
    cert: ServerCert::Good,
    client_certs: true,
};

/// A user with the commands that `docs/guarantees.md` lists as sufficient. The promises use names of all kinds.
fn user(password: &str) -> Result<String> {
    let page = std::fs::read_to_string(testkit::workspace().join("docs/guarantees.md"))?;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("ACL SETUSER locks "))
        .context("the page has the line")?;
    let commands: Vec<&str> = line
        .split(' ')
        .filter(|word| word.starts_with('+'))
        .collect();
    ensure!(!commands.is_empty(), "the line names commands: {line}");
    let commands = commands.join(" ");
    Ok(format!(
        "user default off\nuser locks on >{password} ~* &* {commands}"
    ))
}

fn files(certs: &Certs) -> TlsFiles {
    TlsFiles {
        ca: Some(certs.ca.clone()),
        cert: Some(certs.client.clone()),
        key: Some(certs.client_key.clone()),
    }
}

/// All promises share one server. It is dropped with the last of them.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn shared() -> Arc<RedisServer> {
    static SHARED: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().expect("no start has panicked");
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let user = user("secret").expect("the rights are written down");
    let server = RedisServer::builder()
        // The other servers of the tests are built without TLS.
        .flavour(Flavour::Redis7)
        .tls(TLS)
        .acl(&user)
        .start();
    let started = Arc::new(server.expect("a server starts"));
    *shared = Arc::downgrade(&started);
    started
}

mod promises {
    use super::{Env, Fixture, files, open, shared};

    #[allow(clippy::expect_used, reason = "a TLS server has certificates")]
    fn fixture() -> Fixture {
        let server = shared();
        let url = server.url().replace("rediss://", "rediss://locks:secret@");
        let files = files(server.certs().expect("certificates"));
        Fixture::opened_by(move |env| {
            let (url, files) = (url.clone(), files.clone());
            Box::pin(async move {
                let env = Env {
                    tls: files,
                    ..env.clone()
                };
                open(&url, &env).await
            })
        })
        .keeping(server)
    }

    mod plain {
        tidelock::conformance!(super::fixture());
    }

    mod chaos {
        tidelock::conformance!(faces: super::fixture().through_chaos());
    }

    mod threads {
        tidelock::conformance!(blocking: super::fixture().blocking());
    }
}

/// Sentinels and servers with TLS, each with separate users. The client follows a failover, and picks up a new
/// password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_and_a_new_password_are_followed_over_tls() -> Result<()> {
    let server = RedisServer::builder()
        .flavour(Flavour::Redis7)
        .tls(TLS)
        .acl("user default off\nuser locks on >old ~* &* +@all");
    let sentinels = Sentinels::builder()
        .server(server)
        .sentinel_user("watcher", "watched")
        .start()?;
    let certs = sentinels.certs().context("certificates")?.clone();
    let password = Arc::new(Mutex::new("old"));
    let source = Arc::clone(&password);
    let client = Client::builder()
        .lease(Duration::from_secs(6))
        .response_timeout(Duration::from_secs(2))
        .tls_ca(&certs.ca)
        .tls_identity(&certs.client, &certs.client_key)
        .credentials_from(move || {
            let password = source.lock().map_or("", |password| *password);
            Credentials::new("locks", password)
        })
        .connect(&sentinels.url())
        .await?;
    let guard = client.lock("stock").acquire().await?;
    for node in sentinels.nodes() {
        node.admin(&["ACL", "SETUSER", "locks", "resetpass", ">new"])?;
    }
    *password.lock().map_err(|_| anyhow::anyhow!("poisoned"))? = "new";
    sentinels.failover()?;
    // The old primary may serve requests for a moment. A lock that it grants then is lost, and its holder learns of the
    // loss.
    let _ = client.lock("other").acquire().await?.release().await;
    ensure!(guard.is_held(), "it had been copied, and was renewed");
    guard.release().await?;
    Ok(())
}
