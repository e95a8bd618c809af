//! Opens the byte stream to a member: TCP, or TLS over TCP.

use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::store::etcd::address::MemberAddress;
use crate::store::etcd::errors::unsent;
use crate::store::tls::handshake;
use crate::store::{Timers, TlsFiles, tcp};

/// A byte stream, with or without TLS.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Send + Sync> ByteStream for S {}

/// Connects. There is no timeout: the caller sets one.
pub(crate) async fn dial(
    address: &MemberAddress,
    files: &TlsFiles,
    timers: &Timers,
) -> Result<Pin<Box<dyn ByteStream>>> {
    let tcp = tcp::connect(&address.host, address.port, timers)
        .await
        .map_err(|e| unreachable_at(address, &e))?;
    // Disable Nagle's algorithm: a request is one small write, and buffering would only delay it.
    tcp.set_nodelay(true)
        .map_err(|e| unreachable_at(address, &e))?;
    if address.tls {
        secure(tcp, address, &address.host, files).await
    } else {
        Ok(Box::pin(tcp))
    }
}

fn unreachable_at(address: &MemberAddress, why: &std::io::Error) -> Error {
    unsent(format_args!("{address}: {why}"))
}

async fn secure(
    tcp: TcpStream,
    address: &MemberAddress,
    host: &str,
    files: &TlsFiles,
) -> Result<Pin<Box<dyn ByteStream>>> {
    let plain = "write etcd:// instead of etcds://";
    // Request HTTP/2 through ALPN. Otherwise etcd closes the connection.
    let stream = handshake::run(tcp, address, host, files, &[b"h2"], plain).await?;
    Ok(Box::pin(stream))
}
