//! TLS: which certificates are trusted, and the error messages when verification or negotiation fails.

use std::time::{Duration, Instant};

use testkit::servers::{Certs, PostgresServer, ServerCert, Tls};
use tidelock::{Client, ClientBuilder, ErrorKind};

/// Our connections, grouped by whether they are encrypted.
const OURS: &str = "SELECT ssl, count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
    WHERE application_name = 'tidelock' GROUP BY ssl";

fn start(cert: ServerCert, client_certs: bool) -> (PostgresServer, Certs) {
    let server = PostgresServer::start_tls(Tls { cert, client_certs }).unwrap();
    let certs = server.certs().unwrap().clone();
    (server, certs)
}

fn builder() -> ClientBuilder {
    Client::builder()
        .publish_process_info(false)
        .response_timeout(Duration::from_secs(4))
}

fn url(server: &PostgresServer, options: &str) -> String {
    format!("{}?{options}", server.url())
}

async fn locks(builder: ClientBuilder, url: &str) -> Client {
    let client = builder.connect(url).await.unwrap();
    let guard = client.lock("till").acquire().await.unwrap();
    guard.release().await.unwrap();
    client
}

async fn fails(builder: ClientBuilder, url: &str, words: &str) {
    let start = Instant::now();
    let error = builder.connect(url).await.expect_err("refused");
    let text = error.to_string();
    assert!(text.contains(words), "{words}: {text}");
    // A retry would fail in the same way.
    let refusal = text.contains("invalid peer certificate") || text.contains("fatal alert");
    assert!(!refusal || !error.is_retryable(), "{error:?}");
    let expected = [
        ErrorKind::Unavailable,
        ErrorKind::InvalidOptions,
        ErrorKind::Refused,
    ];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(6), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_given_authority_is_trusted() {
    let (server, certs) = start(ServerCert::Good, false);
    let by_builder = builder().tls_ca(&certs.ca);
    let _client = locks(by_builder, &url(&server, "sslmode=verify-full")).await;
    assert_eq!(server.query(OURS).unwrap(), "t|t", "nothing in plain text");
    let ca = certs.ca.display();
    locks(
        builder(),
        &url(&server, &format!("sslmode=require&sslrootcert={ca}")),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_over_tls() {
    let (server, certs) = start(ServerCert::Good, false);
    let url = url(&server, "sslmode=verify-full");
    let a = builder().tls_ca(&certs.ca).connect(&url).await.unwrap();
    let b = builder().tls_ca(&certs.ca).connect(&url).await.unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    let lock = b.lock("till");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    super::until(
        &server,
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
        "t",
    )
    .await;
    guard.release().await.unwrap();
    let next = super::soon("the waiter's turn", waiting).await;
    next.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_shown() {
    let (server, certs) = start(ServerCert::Good, true);
    let url = url(&server, "sslmode=verify-full");
    let known = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.client, &certs.client_key);
    locks(known, &url).await;
    let (ca, cert, key) = (
        certs.ca.display(),
        certs.client.display(),
        certs.client_key.display(),
    );
    let named = format!("{url}&sslrootcert={ca}&sslcert={cert}&sslkey={key}");
    locks(builder(), &named).await;
    fails(builder().tls_ca(&certs.ca), &url, "client certificate").await;
    let stranger = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.stranger, &certs.stranger_key);
    fails(stranger, &url, "localhost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t29_a_tls_mismatch_is_reported_and_does_not_hang() {
    let (server, certs) = start(ServerCert::Good, false);
    let full = url(&server, "sslmode=verify-full");
    fails(builder().tls_ca(&certs.other_ca), &full, "tls_ca").await;
    fails(builder(), &url(&server, "sslmode=verify-ca"), "tls_ca").await;
    fails(builder(), &server.url(), "sslmode=verify-full").await;
    let trusting = || builder().tls_ca(&certs.ca);
    fails(trusting(), &server.url(), "sslmode=verify-full").await;
    fails(trusting(), &url(&server, "sslmode=prefer"), "plain text").await;
    let lost = builder().tls_ca(certs.ca.with_file_name("missing.pem"));
    fails(lost, &full, "missing.pem").await;

    let (expired, certs) = start(ServerCert::Expired, false);
    let trusting = || builder().tls_ca(&certs.ca);
    for mode in ["sslmode=verify-full", "sslmode=verify-ca"] {
        let words = "renew the server's certificate";
        fails(trusting(), &url(&expired, mode), words).await;
    }

    // No downgrade: a server that claims not to support TLS, as a man in the middle would, is refused.
    let plain = super::server();
    fails(
        trusting(),
        &url(&plain, "sslmode=require"),
        "does not support TLS",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_name_is_checked_unless_said_otherwise() {
    let (server, certs) = start(ServerCert::WrongHost, false);
    let trusting = || builder().tls_ca(&certs.ca);
    for mode in ["sslmode=require", "sslmode=verify-full"] {
        fails(trusting(), &url(&server, mode), "connect by a name").await;
    }
    locks(trusting(), &url(&server, "sslmode=verify-ca")).await;
    let other = builder().tls_ca(&certs.other_ca);
    fails(other, &url(&server, "sslmode=verify-ca"), "tls_ca").await;
}
