//! A TLS server for tests, on loopback. It answers as the test says.

use std::sync::Arc;
use std::time::Duration;

use rcgen::CertifiedKey;
use tempfile::NamedTempFile;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::store::TlsFiles;

pub(crate) struct TlsServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// The file with its certificate, which is signed by its own key: it is its own authority.
    ca: NamedTempFile,
}

impl TlsServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let names = ["127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        let ca = NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), cert.pem()).unwrap();
        Self {
            listener,
            acceptor: acceptor(cert.der().clone(), signing_key.into()),
            ca,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The files of a client that trusts this server.
    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles {
            ca: Some(self.ca.path().to_owned()),
            ..TlsFiles::default()
        }
    }

    /// The next client, in the middle of its handshake: it has said hello and waits. We read all of it. Otherwise the close
    /// of our side would be a reset, and the client might lose what we have sent.
    pub(crate) async fn hears_a_hello(&self) -> TcpStream {
        let (mut peer, _) = self.listener.accept().await.unwrap();
        let mut header = [0; 5];
        peer.read_exact(&mut header).await.unwrap();
        let length = u16::from_be_bytes([header[3], header[4]]);
        let mut hello = vec![0; usize::from(length)];
        peer.read_exact(&mut hello).await.unwrap();
        peer
    }

    /// As [`hears_a_hello`](Self::hears_a_hello). From then on tokio's time is paused: as nothing else happens, the next
    /// timer is due at once.
    pub(crate) async fn freezes(&self) -> TcpStream {
        let peer = self.hears_a_hello().await;
        time::pause();
        peer
    }

    /// The next client, after its handshake.
    pub(crate) async fn serves(&self) -> TlsStream<TcpStream> {
        let (peer, _) = self.listener.accept().await.unwrap();
        self.acceptor.accept(peer).await.unwrap()
    }
}

fn acceptor(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    // What etcd asks for. A client that asks for nothing is let in too.
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Waits until the client has closed the connection.
pub(crate) async fn hung_up(mut peer: TcpStream) {
    let mut rest = Vec::new();
    in_time(peer.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    time::timeout(limit, future).await.expect("in time")
}
