//! The handshake of a server that speaks TLS from the first byte of a connection.

use std::{fmt, io};

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, Result};
use crate::store::TlsFiles;
use crate::store::tls::{self, Check};

/// Begins a new connection with a TLS handshake. There is no timeout: the caller sets one. `plain`: how to configure plain
/// text.
pub(crate) async fn run(
    tcp: TcpStream,
    address: &impl fmt::Display,
    host: &str,
    files: &TlsFiles,
    alpn: &[&[u8]],
    plain: &str,
) -> Result<TlsStream<TcpStream>> {
    let name = tls::name(host)?;
    let connector = tls::connector(files, Check::Everything, alpn).await?;
    let stream = connector.connect(name, tcp).await;
    stream.map_err(|error| {
        let why = explain(&error, plain);
        Error::new(tls::kind(&why)).because(format!("{address}: TLS: {why}"))
    })
}

/// As [`tls::explain`]. A server without TLS answers the handshake in plain text and closes the connection. If the close
/// overtakes the answer, we see only a reset. Elsewhere a reset says nothing of plain text: that advice would make users
/// turn TLS off because a server was restarted.
fn explain(error: &io::Error, plain: &str) -> String {
    if error.kind() == io::ErrorKind::ConnectionReset {
        tls::may_be_plain(error, plain)
    } else {
        tls::explain(error, plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Otherwise it depends on the order of two packets whether the user is told of the wrong scheme.
    #[test]
    fn a_handshake_that_ends_in_a_reset_may_have_met_plain_text() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let told = explain(&reset, "write a://");
        assert!(
            told.ends_with("; the port may speak plain text: write a://"),
            "{told}"
        );
        assert_eq!(tls::kind(&told), ErrorKind::Unavailable);
    }

    /// A server that has agreed to TLS, or a connection without TLS.
    #[test]
    fn any_other_reset_advises_nobody_to_turn_tls_off() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(tls::explain(&reset, "write a://"), reset.to_string());
    }
}
