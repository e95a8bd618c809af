//! Implements the driver's TLS traits with rustls. The driver negotiates TLS with the server; we do the handshake.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::Error;
use crate::store::tls;

/// The TLS connector. `None`: plain text, and the driver never asks for a handshake.
#[derive(Clone)]
pub(crate) struct Secure(pub(crate) Option<TlsConnector>);

/// A handshake with one server.
pub(crate) struct Handshake(Option<(TlsConnector, ServerName<'static>)>);

impl<S> MakeTlsConnect<S> for Secure
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = Secured<S>;
    type TlsConnect = Handshake;
    type Error = Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Error> {
        let Some(connector) = self.0.clone() else {
            return Ok(Handshake(None));
        };
        Ok(Handshake(Some((connector, tls::name(host)?))))
    }
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let Some((connector, name)) = self.0 else {
                return Err(io::Error::other("no TLS was asked for"));
            };
            Ok(Secured(connector.connect(name, stream).await?))
        })
    }
}

/// An encrypted stream.
pub(crate) struct Secured<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    /// The handshake with a host of this name.
    fn handshake<S>(mut secure: Secure, host: &str) -> Result<Handshake, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        MakeTlsConnect::<S>::make_tls_connect(&mut secure, host)
    }

    #[tokio::test]
    async fn without_tls_there_is_no_handshake() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let plain = handshake::<DuplexStream>(Secure(None), "").unwrap();
        let made = plain.connect(ours).await;
        assert!(made.is_err());
    }

    /// The other side is a part of the builds with etcd.
    #[cfg(feature = "etcd")]
    #[tokio::test]
    async fn a_stream_with_tls_carries_all_that_both_sides_say_and_its_end() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;

        use crate::store::tls::handshake::peer::TlsServer;

        let server = TlsServer::start().await;
        let made = tls::connector(&server.files(), tls::Check::Everything, &[]).await;
        let secure = Secure(Some(made.unwrap()));
        assert!(handshake::<TcpStream>(secure.clone(), "").is_err());
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await;
        let ours = handshake::<TcpStream>(secure, "127.0.0.1").unwrap();
        let (ours, mut peer) = tokio::join!(ours.connect(stream.unwrap()), server.serves());
        let mut ours = ours.unwrap();
        ours.write_all(b"ask").await.unwrap();
        ours.flush().await.unwrap();
        let mut heard = [0; 3];
        peer.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ask");
        peer.write_all(b"yes").await.unwrap();
        peer.flush().await.unwrap();
        ours.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"yes");
        ours.shutdown().await.unwrap();
        assert_eq!(peer.read(&mut heard).await.unwrap(), 0);
    }
}
