//! Connections with TLS.

use std::path::Path;

use futures_util::FutureExt as _;
use rcgen::CertifiedKey;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

use super::*;
use crate::store::postgres::tls::Secure;

/// A server with a certificate for this host, which is its own authority, and the file with that certificate.
fn acceptor(host: &str) -> (TlsAcceptor, NamedTempFile) {
    let names = [host.to_owned()];
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    let ca = NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), cert.pem()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], signing_key.into())
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), ca)
}

/// The encryption of a connection to a server with this authority.
async fn secure(ca: &Path, more: &str) -> Secure {
    let url = format!(
        "postgres://localhost/d?sslmode=require&sslrootcert={}{more}",
        ca.display()
    );
    let address = Address::parse(&url, &env()).unwrap();
    address.secure().await.unwrap()
}

/// A server that speaks TLS from the first byte refuses a client that does not say so.
#[tokio::test]
async fn only_a_connection_that_begins_with_tls_names_its_protocol() {
    let (_, ca) = acceptor("localhost");
    for (options, expected) in [
        ("", &[][..]),
        ("&sslnegotiation=postgres", &[]),
        ("&sslnegotiation=direct", &["postgresql"]),
    ] {
        let connector = secure(ca.path(), options).await.0.unwrap();
        let protocols = connector.config().alpn_protocols.iter();
        let named: Vec<_> = protocols
            .map(|bytes| String::from_utf8_lossy(bytes))
            .collect();
        assert_eq!(named, expected, "{options}");
    }
}

/// Otherwise the end of a long statement could stay here, and its answer would never come.
#[tokio::test]
async fn a_stream_with_tls_is_flushed_only_when_all_was_sent() {
    let (acceptor, ca) = acceptor("localhost");
    let mut secure = secure(ca.path(), "").await;
    // A network that takes so much until the other side reads.
    let (ours, theirs) = tokio::io::duplex(4096);
    let handshake = MakeTlsConnect::<DuplexStream>::make_tls_connect(&mut secure, "localhost");
    let ours = handshake.unwrap().connect(ours);
    let (ours, theirs) = tokio::join!(ours, acceptor.accept(theirs));
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    let said = vec![7_u8; 16_384];
    let count = ours.write(&said).await.unwrap();
    assert!(count > 4096, "TLS has taken more than the network");
    assert!(ours.flush().now_or_never().is_none());
    let mut heard = vec![0_u8; count];
    let (flushed, read) = tokio::join!(ours.flush(), theirs.read_exact(&mut heard));
    flushed.unwrap();
    assert_eq!(read.unwrap(), count);
    assert_eq!(heard, said[..count]);
}
