//! TLS: which certificates are trusted, and the error messages when verification or negotiation fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::{Certs, Flavour, RedisServer, ServerCert, Tls};
use tidelock::{Client, ClientBuilder, ErrorKind};

fn start(cert: ServerCert, client_certs: bool) -> Result<(RedisServer, Certs)> {
    // The other servers of the tests are built without TLS.
    let builder = RedisServer::builder()
        .flavour(Flavour::Redis7)
        .tls(Tls { cert, client_certs });
    let server = builder.start()?;
    let certs = server
        .certs()
        .context("a TLS server has certificates")?
        .clone();
    Ok((server, certs))
}

fn builder() -> ClientBuilder {
    Client::builder()
        .publish_process_info(false)
        .response_timeout(Duration::from_secs(2))
}

async fn fails(builder: ClientBuilder, url: &str, words: &str) -> Result<()> {
    let start = Instant::now();
    let error = builder.connect(url).await.err().context("it was let in")?;
    let text = error.to_string();
    assert!(text.contains(words), "{words}: {text}");
    // A retry would fail in the same way.
    let refusal = text.contains("invalid peer certificate") || text.contains("fatal alert");
    assert!(!refusal || !error.is_retryable(), "{error:?}");
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::InvalidOptions | ErrorKind::Refused
        ),
        "{text}"
    );
    assert!(start.elapsed() < Duration::from_secs(3), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_server_of_the_given_authority_is_trusted() -> Result<()> {
    let (server, certs) = start(ServerCert::Good, false)?;
    let client = builder().tls_ca(&certs.ca).connect(&server.url()).await?;
    let guard = client.lock("a").acquire().await?;
    assert_eq!(server.keys()?, ["a"]);
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_client_certificate_is_shown() -> Result<()> {
    let (server, certs) = start(ServerCert::Good, true)?;
    let client = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.client, &certs.client_key)
        .connect(&server.url())
        .await?;
    client.lock("a").acquire().await?.release().await?;
    fails(builder().tls_ca(&certs.ca), &server.url(), "tls_identity").await?;
    let stranger = builder()
        .tls_ca(&certs.ca)
        .tls_identity(&certs.stranger, &certs.stranger_key);
    fails(stranger, &server.url(), "localhost").await?;
    Ok(())
}

#[tokio::test]
async fn t29_a_tls_mismatch_is_reported_and_does_not_hang() -> Result<()> {
    let (server, certs) = start(ServerCert::Good, false)?;
    fails(builder().tls_ca(&certs.other_ca), &server.url(), "tls_ca").await?;
    let plain = server.url().replace("rediss://", "redis://");
    fails(builder(), &plain, "rediss://").await?;
    fails(builder().tls_ca(&certs.ca), &plain, "rediss://").await?;
    fails(
        builder().tls_ca(server.dir().join("missing.pem")),
        &server.url(),
        "missing.pem",
    )
    .await?;

    let (wrong, certs) = start(ServerCert::WrongHost, false)?;
    fails(
        builder().tls_ca(&certs.ca),
        &wrong.url(),
        "connect by a name",
    )
    .await?;
    let (expired, certs) = start(ServerCert::Expired, false)?;
    fails(
        builder().tls_ca(&certs.ca),
        &expired.url(),
        "renew the server's certificate",
    )
    .await?;

    let plain_server = RedisServer::start()?;
    let secured = plain_server
        .url()
        .replace("redis://127.0.0.1", "rediss://localhost");
    fails(builder().tls_ca(&certs.ca), &secured, "plain text").await?;
    Ok(())
}
