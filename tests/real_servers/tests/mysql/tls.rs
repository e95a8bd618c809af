//! TLS: which certificates are trusted, and the error messages when verification or negotiation fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::{Certs, MariaDb, ServerCert, Tls};
use tidelock::{Client, ClientBuilder, ErrorKind};

fn start(cert: ServerCert, client_certs: bool) -> Result<(MariaDb, Certs)> {
    let server = MariaDb::start_tls(Tls { cert, client_certs })?;
    let certs = server.certs().context("certificates")?.clone();
    Ok((server, certs))
}

fn builder() -> ClientBuilder {
    Client::builder()
        .publish_process_info(false)
        .response_timeout(Duration::from_secs(4))
}

fn url(server: &MariaDb, options: &str) -> String {
    format!("{}?{options}", server.url())
}

async fn locks(builder: ClientBuilder, url: &str) -> Result<Client> {
    let client = builder.connect(url).await?;
    client.lock("till").acquire().await?.release().await?;
    Ok(client)
}

async fn fails(builder: ClientBuilder, url: &str, words: &str) -> Result<()> {
    let start = Instant::now();
    let error = builder.connect(url).await.err().context("it was let in")?;
    let text = error.to_string();
    assert!(text.contains(words), "{words}: {text}");
    // A retry would fail in the same way.
    let refusal = text.contains("invalid peer certificate") || text.contains("fatal alert");
    assert!(!refusal || !error.is_retryable(), "{error:?}");
    assert!(!format!("{text} {error:?}").contains("tide:pass"), "{text}");
    let expected = [
        ErrorKind::Unavailable,
        ErrorKind::InvalidOptions,
        ErrorKind::Unsupported,
        ErrorKind::Refused,
    ];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(6), "{text}");
    Ok(())
}

/// The server refuses plain text connections, so a client that gets in is encrypted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_given_authority_is_trusted() -> Result<()> {
    let (server, certs) = start(ServerCert::Good, false)?;
    let by_builder = builder().tls_ca(&certs.ca);
    locks(by_builder, &url(&server, "ssl-mode=VERIFY_IDENTITY")).await?;
    let ca = format!("ssl-mode=REQUIRED&ssl-ca={}", certs.ca.display());
    locks(builder(), &url(&server, &ca)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_shown() -> Result<()> {
    let (server, certs) = start(ServerCert::Good, true)?;
    let full = url(&server, "ssl-mode=VERIFY_IDENTITY");
    let known = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.client, &certs.client_key);
    locks(known, &full).await?;
    let (ca, cert, key) = (&certs.ca, &certs.client, &certs.client_key);
    let (ca, cert, key) = (ca.display(), cert.display(), key.display());
    let named = format!("{full}&ssl-ca={ca}&ssl-cert={cert}&ssl-key={key}");
    locks(builder(), &named).await?;
    fails(builder().tls_ca(&certs.ca), &full, "authentication").await?;
    let half = builder().tls_ca(&certs.ca);
    let cert = format!("{full}&ssl-cert={}", certs.client.display());
    fails(half, &cert, "needed together").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t29_a_tls_mismatch_is_reported_and_does_not_hang() -> Result<()> {
    let (server, certs) = start(ServerCert::Good, false)?;
    let full = url(&server, "ssl-mode=VERIFY_IDENTITY");
    let trusting = || builder().tls_ca(&certs.ca);
    fails(builder().tls_ca(&certs.other_ca), &full, "tls_ca").await?;
    fails(builder(), &full, "tls_ca").await?;
    // MariaDB reports this failure as a wrong password, MySQL reports the real cause.
    fails(builder(), &server.url(), "ssl-mode=VERIFY_IDENTITY").await?;
    fails(trusting(), &server.url(), "ssl-mode=VERIFY_IDENTITY").await?;
    fails(
        trusting(),
        &url(&server, "ssl-mode=PREFERRED"),
        "plain text",
    )
    .await?;
    let lost = builder().tls_ca(certs.ca.with_file_name("missing.pem"));
    fails(lost, &full, "missing.pem").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_must_be_good_and_for_this_host() -> Result<()> {
    let (wrong, certs) = start(ServerCert::WrongHost, false)?;
    let trusting = || builder().tls_ca(&certs.ca);
    for mode in ["REQUIRED", "VERIFY_IDENTITY"] {
        let url = url(&wrong, &format!("ssl-mode={mode}"));
        fails(trusting(), &url, "connect by a name").await?;
    }
    fails(
        trusting(),
        &url(&wrong, "ssl-mode=VERIFY_CA"),
        "VERIFY_IDENTITY",
    )
    .await?;
    let (expired, certs) = start(ServerCert::Expired, false)?;
    let url = url(&expired, "ssl-mode=REQUIRED");
    let words = "renew the server's certificate";
    fails(builder().tls_ca(&certs.ca), &url, words).await?;
    Ok(())
}

/// No downgrade: a server that claims not to support TLS, as a man in the middle would, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_tls_is_wanted() -> Result<()> {
    let server = MariaDb::start()?;
    let asked = url(&server, "ssl-mode=REQUIRED");
    fails(builder(), &asked, "has no TLS").await
}
