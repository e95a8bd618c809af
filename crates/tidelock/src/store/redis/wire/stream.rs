//! Opens byte streams to a server: TCP, TLS or a Unix socket.

use std::path::Path;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::errors::unsent;
use crate::store::tls::handshake;
use crate::store::{Timers, TlsFiles, tcp};

/// A byte stream of any transport.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Send + Sync> ByteStream for S {}

/// Connects. The caller sets the timeout.
pub(crate) async fn dial(
    address: &HostAddress,
    files: &TlsFiles,
    timers: &Timers,
) -> Result<Pin<Box<dyn ByteStream>>> {
    match address {
        HostAddress::Tcp { host, port, tls } => {
            let tcp = tcp::connect(host, *port, timers)
                .await
                .map_err(|e| unreachable_at(address, &e))?;
            // A script is one small write: Nagle's algorithm would only delay it.
            tcp.set_nodelay(true)
                .map_err(|e| unreachable_at(address, &e))?;
            if *tls {
                secure(tcp, address, host, files).await
            } else {
                Ok(Box::pin(tcp))
            }
        }
        HostAddress::Unix(path) => dial_socket(path, address).await,
    }
}

#[cfg(unix)]
async fn dial_socket(path: &Path, address: &HostAddress) -> Result<Pin<Box<dyn ByteStream>>> {
    match tokio::net::UnixStream::connect(path).await {
        Ok(socket) => Ok(Box::pin(socket)),
        Err(e) => Err(unreachable_at(address, &e)),
    }
}

#[cfg(not(unix))]
#[allow(
    clippy::unused_async,
    reason = "the same shape as where sockets have files"
)]
async fn dial_socket(_path: &Path, _place: &HostAddress) -> Result<Pin<Box<dyn ByteStream>>> {
    Err(Error::new(crate::error::ErrorKind::Unsupported).because("this system has no Unix sockets"))
}

fn unreachable_at(address: &HostAddress, why: &std::io::Error) -> Error {
    unsent(format_args!("{address}: {why}"))
}

async fn secure(
    tcp: TcpStream,
    address: &HostAddress,
    host: &str,
    files: &TlsFiles,
) -> Result<Pin<Box<dyn ByteStream>>> {
    let plain = "write redis:// instead of rediss://";
    let stream = handshake::run(tcp, address, host, files, &[], plain).await?;
    Ok(Box::pin(stream))
}
