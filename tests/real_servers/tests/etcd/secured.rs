//! TLS and users: trusted certificates, logins, and the errors for each mismatch.

use std::time::{Duration, Instant};

use testkit::servers::{Certs, EtcdServer, ServerCert, Tls};
use tidelock::{Client, ClientBuilder, ErrorKind};

use crate::world::{ms, soon, until_keys, waits};

fn start(cert: ServerCert, client_certs: bool) -> (EtcdServer, Certs) {
    let builder = EtcdServer::builder().tls(Tls { cert, client_certs });
    let server = builder.start().unwrap();
    let certs = server.certs().unwrap().clone();
    (server, certs)
}

/// A waiter that no watch wakes has the lock only when the lease ends.
const LEASE: Duration = Duration::from_secs(12);

fn builder() -> ClientBuilder {
    Client::builder()
        .lease(LEASE)
        .response_timeout(ms(6000))
        .publish_process_info(false)
}

async fn locks(client: &Client) {
    let guard = client.lock("till").acquire().await.unwrap();
    guard.release().await.unwrap();
}

async fn every_kind(client: &Client) {
    let guard = client.lock("till").fenced().acquire().await.unwrap();
    assert_eq!(client.list("*").limit(10).await.unwrap(), ["till"]);
    guard.release().await.unwrap();
    let fair = client.fair_lock("lane").acquire().await;
    fair.unwrap().release().await.unwrap();
    let prices = client.read_write_lock("prices");
    let writer = prices.write().acquire().await.unwrap();
    let reader = prices.downgrade(writer).await.unwrap();
    reader.release().await.unwrap();
    let semaphore = client.semaphore("lanes");
    semaphore.set_permits_if_new(2).await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    real_servers::runs_once(client, "report").await.unwrap();
    real_servers::leads(client, "billing").await.unwrap();
    assert!(!client.lock("free").force_release().await.unwrap());
}

async fn fails(builder: ClientBuilder, url: &str, words: &str) {
    let start = Instant::now();
    let error = builder.connect(url).await.expect_err("refused");
    let text = error.to_string();
    assert!(text.contains(words), "{words}: {text}");
    // A permanent TLS error: a retry would fail in the same way.
    let refusal = text.contains("invalid peer certificate") || text.contains("fatal alert");
    assert!(!refusal || !error.is_retryable(), "{error:?}");
    assert!(!format!("{text} {error:?}").contains("secret"), "{text}");
    let expected = [
        ErrorKind::Unavailable,
        ErrorKind::InvalidOptions,
        ErrorKind::Refused,
    ];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert!(start.elapsed() < ms(4000), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_given_authority_is_trusted() {
    let (server, certs) = start(ServerCert::Good, false);
    let url = server.url();
    let by = || builder().tls_ca(&certs.ca).connect(&url);
    let (a, b) = (by().await.unwrap(), by().await.unwrap());
    let guard = a.lock("till").acquire().await.unwrap();
    let next = waits(&b, "till");
    until_keys(&server, 2).await;
    guard.release().await.unwrap();
    let (guard, _) = soon("the waiter's turn", next).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_shown() {
    let (server, certs) = start(ServerCert::Good, true);
    let known = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.client, &certs.client_key);
    locks(&known.connect(&server.url()).await.unwrap()).await;
    let unknown = builder().tls_ca(&certs.ca);
    fails(unknown, &server.url(), "tls_identity").await;
    let stranger = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.stranger, &certs.stranger_key);
    fails(stranger, &server.url(), "connection broke").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t29_a_tls_mismatch_is_reported_and_does_not_hang() {
    let (server, certs) = start(ServerCert::Good, false);
    let url = server.url();
    fails(builder().tls_ca(&certs.other_ca), &url, "tls_ca").await;
    let plain = url.replace("etcds://", "etcd://");
    fails(builder().tls_ca(&certs.ca), &plain, "etcds://").await;
    let lost = builder().tls_ca(certs.ca.with_file_name("missing.pem"));
    fails(lost, &url, "missing.pem").await;

    let (wrong, certs) = start(ServerCert::WrongHost, false);
    let trusting = || builder().tls_ca(&certs.ca);
    fails(trusting(), &wrong.url(), "connect by a name").await;
    let (expired, certs) = start(ServerCert::Expired, false);
    let words = "renew the server's certificate";
    fails(builder().tls_ca(&certs.ca), &expired.url(), words).await;

    let plain = EtcdServer::start().unwrap();
    let url = format!("etcds://localhost:{}", plain.addr().port());
    fails(builder().tls_ca(&certs.ca), &url, "plain text").await;
}

const ROOT: [&str; 2] = ["--user", "root:secret"];

/// A server with two users and passwords: `root`, and the one of the page for locks under `shop/`.
fn with_users() -> EtcdServer {
    let server = EtcdServer::start().unwrap();
    let page = testkit::pages::block("stores/etcd.md", "read and write the prefix").unwrap();
    let page = page
        .iter()
        .map(|line| line.strip_prefix("$ etcdctl ").unwrap());
    for words in page.chain(["user add root:secret", "auth enable"]) {
        let words: Vec<&str> = words.split(' ').collect();
        server.admin(&words).unwrap();
    }
    server
}

fn as_root(server: &EtcdServer, words: &str) {
    let words = ROOT.into_iter().chain(words.split(' '));
    server.admin(&words.collect::<Vec<_>>()).unwrap();
}

fn url(server: &EtcdServer, login: &str, prefix: &str) -> String {
    format!("etcd://{login}{}/{prefix}", server.addr())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_rights_of_the_page_is_let_in() {
    let server = with_users();
    let right = url(&server, "tidelock:secret@", "shop");
    let client = builder().connect(&right).await.unwrap();
    locks(&client).await;
    every_kind(&client).await;
    let given = builder().credentials(tidelock::Credentials::new("tidelock", "secret"));
    let client = given.connect(&url(&server, "", "shop")).await.unwrap();
    locks(&client).await;

    let wrong = url(&server, "tidelock:secrets@", "shop");
    fails(builder(), &wrong, "authentication failed").await;
    let nobody = url(&server, "", "shop");
    fails(builder(), &nobody, "wants a user").await;
    let elsewhere = url(&server, "tidelock:secret@", "bank");
    match builder().connect(&elsewhere).await {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{error}"),
        Ok(client) => {
            let error = client.lock("till").acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        }
    }
}

/// Also if the URL has a password: the one that is given wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_without_a_user_is_for_the_user_of_the_url() {
    let server = with_users();
    let with = |password: &str| builder().credentials(tidelock::Credentials::password(password));
    for login in ["tidelock@", "tidelock:secrets@"] {
        let client = with("secret").connect(&url(&server, login, "shop")).await;
        locks(&client.unwrap()).await;
    }
    let right = url(&server, "tidelock:secret@", "shop");
    fails(with("secrets"), &right, "authentication failed").await;
}

/// Switching authentication off and on invalidates all tokens, as their expiry after five minutes does. The connections
/// stay open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_has_run_out_is_followed_by_a_login() {
    let server = with_users();
    let url = url(&server, "tidelock:secret@", "shop");
    let a = builder().connect(&url).await.unwrap();
    let b = builder().connect(&url).await.unwrap();
    // Several rounds, each with a waiter, because its watches need a token too.
    for round in 0..3 {
        let guard = soon("the lock", a.lock("till").acquire()).await.unwrap();
        let next = waits(&b, "till");
        tokio::time::sleep(ms(300)).await;
        let released = Instant::now();
        soon("the release", guard.release()).await.unwrap();
        let (guard, at) = soon("the waiter's turn", next).await.unwrap();
        let took = at.duration_since(released);
        assert!(took < LEASE / 2, "round {round}: woken after {took:?}");
        soon("the release", guard.release()).await.unwrap();
        as_root(&server, "auth disable");
        server.admin(&["auth", "enable"]).unwrap();
    }
    let guard = a.lock("till").acquire().await.unwrap();
    as_root(&server, "auth disable");
    server.admin(&["auth", "enable"]).unwrap();
    guard.extend(ms(8000)).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_is_logged_in_to_again() {
    let server = with_users();
    let url = url(&server, "tidelock:secret@", "shop");
    // The lease is longer than a server start takes on a busy machine.
    let builder = builder().lease(ms(20_000));
    let client = builder.connect(&url).await.unwrap();
    let guard = client.lock("till").acquire().await.unwrap();
    server.restart().unwrap();
    guard.extend(ms(30_000)).await.unwrap();
    guard.release().await.unwrap();
    locks(&client).await;
}
