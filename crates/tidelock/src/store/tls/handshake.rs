//! The handshake of a server that speaks TLS from the first byte of a connection.

#[cfg(test)]
pub(crate) mod peer;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::{fmt, io};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, Result};
use crate::store::TlsFiles;
use crate::store::tls::{self, Check};

/// The first byte of a server that speaks TLS: that of an alert or of a handshake message. Text begins with neither.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];

/// Begins a new connection with a TLS handshake. There is no timeout: the caller sets one. Dropping the future closes the
/// connection. `plain`: how to configure plain text.
pub(crate) async fn run(
    tcp: TcpStream,
    address: &impl fmt::Display,
    host: &str,
    files: &TlsFiles,
    alpn: &[&[u8]],
    plain: &str,
) -> Result<TlsStream<SeenStream>> {
    let name = tls::name(host)?;
    let connector = tls::connector(files, Check::Everything, alpn).await?;
    let seen = SeenStream { tcp, first: None };
    let stream = connector.connect(name, seen).into_fallible().await;
    stream.map_err(|(error, seen)| {
        let why = explain(&error, seen.first, plain);
        Error::new(tls::kind(&why)).because(format!("{address}: TLS: {why}"))
    })
}

/// As [`tls::explain`]. `first`: the first byte of the server.
///
/// A server without TLS answers the handshake in plain text and closes the connection. If the close overtakes the
/// answer, we see only a reset. Elsewhere a reset says nothing of plain text, and so does any end after the server has
/// begun to speak TLS: that advice would make users turn TLS off because a server was restarted.
fn explain(error: &io::Error, first: Option<u8>, plain: &str) -> String {
    let is_cut = matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    );
    match first {
        _ if !is_cut => tls::explain(error, plain),
        Some(byte) if TLS_RECORDS.contains(&byte) => format!(
            "{error}; the server speaks TLS and ended the connection during the handshake: see its log; \
             if it requires a client certificate, set `tls_identity`"
        ),
        _ => tls::may_be_plain(error, plain),
    }
}

/// A connection whose first received byte is kept. The error of a handshake does not tell whether anything was received.
#[derive(Debug)]
pub(crate) struct SeenStream {
    tcp: TcpStream,
    first: Option<u8>,
}

impl AsyncRead for SeenStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, into);
        if self.first.is_none() {
            self.first = into.filled().get(before).copied();
        }
        read
    }
}

impl AsyncWrite for SeenStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::peer::{TlsServer, hung_up, in_time};
    use super::*;
    use crate::error::ErrorKind;

    /// The first bytes of the answer of a TLS server, without the rest.
    const HALF_A_HELLO: &[u8] = b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03half a random value";

    async fn shakes_hands(server: &TlsServer) -> Result<TlsStream<SeenStream>> {
        let (host, port) = ("127.0.0.1", server.port());
        let tcp = TcpStream::connect((host, port)).await.unwrap();
        let address = format!("a://{host}:{port}");
        run(tcp, &address, host, &server.files(), &[], "write b://").await
    }

    /// The client may connect to this server again.
    async fn succeeds(server: &TlsServer) {
        let both = async { tokio::join!(shakes_hands(server), server.serves()) };
        let (stream, _peer) = in_time(both).await;
        stream.unwrap();
    }

    /// A caller may set a timeout, or leave for another reason.
    #[tokio::test]
    async fn a_handshake_that_is_dropped_hangs_up_and_the_next_one_succeeds() {
        let server = TlsServer::start().await;
        let peer = tokio::select! {
            result = shakes_hands(&server) => panic!("the server has not answered: {result:?}"),
            peer = in_time(server.hears_a_hello()) => peer,
        };
        hung_up(peer).await;
        succeeds(&server).await;
    }

    #[tokio::test]
    async fn a_server_that_ends_after_half_a_hello_is_not_said_to_speak_plain_text() {
        let server = TlsServer::start().await;
        for (heard, advice) in [
            (HALF_A_HELLO.len(), "the server speaks TLS"),
            (1, "the server speaks TLS"),
            (0, "the port may speak plain text: write b://"),
        ] {
            let ends = async {
                let mut peer = server.hears_a_hello().await;
                peer.write_all(&HALF_A_HELLO[..heard]).await.unwrap();
            };
            let both = async { tokio::join!(shakes_hands(&server), ends) };
            let (result, ()) = in_time(both).await;
            let error = result.unwrap_err();
            // A retry may succeed: perhaps the server restarts.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let told = error.to_string();
            let named = format!("a://127.0.0.1:{}: TLS: ", server.port());
            assert!(told.contains(&named), "{heard} bytes: {told}");
            assert!(told.contains(advice), "{heard} bytes: {told}");
            let is_plain = told.contains("plain text");
            assert_eq!(is_plain, advice.contains("plain text"), "{told}");
        }
        succeeds(&server).await;
    }

    /// Otherwise it depends on the order of two packets whether the user is told of the wrong scheme.
    #[test]
    fn a_handshake_that_ends_in_a_reset_may_have_met_plain_text() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        for first in [None, Some(b'-')] {
            let told = explain(&reset, first, "write a://");
            assert!(
                told.ends_with("; the port may speak plain text: write a://"),
                "{told}"
            );
            assert_eq!(tls::kind(&told), ErrorKind::Unavailable);
        }
    }

    /// A server that has agreed to TLS, or has begun to speak it, or a connection without TLS.
    #[test]
    fn any_other_reset_advises_nobody_to_turn_tls_off() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(tls::explain(&reset, "write a://"), reset.to_string());
        for first in TLS_RECORDS {
            let told = explain(&reset, Some(first), "write a://");
            assert!(!told.contains("write a://"), "{told}");
            assert_eq!(tls::kind(&told), ErrorKind::Unavailable);
        }
    }

    /// The server speaks TLS all the same, and has not ended the connection.
    #[test]
    fn a_certificate_that_the_client_refuses_is_told_as_such() {
        let untrusted = "invalid peer certificate: UnknownIssuer";
        let refused = io::Error::new(io::ErrorKind::InvalidData, untrusted);
        for first in [None, Some(TLS_RECORDS[1]), Some(b'-')] {
            let told = explain(&refused, first, "write a://");
            assert_eq!(told, tls::explain(&untrusted, "write a://"));
            assert!(told.contains("`tls_ca`"), "{told}");
        }
    }
}
