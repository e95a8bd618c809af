//! Opens the byte stream to a member: TCP, or TLS over TCP.

use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::store::etcd::address::MemberAddress;
use crate::store::etcd::errors::unsent;
use crate::store::tls::Check;
use crate::store::{Timers, TlsFiles, tcp, tls};

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
    let name = tls::name(host)?;
    // Request HTTP/2 through ALPN. Otherwise etcd closes the connection.
    let connector = tls::connector(files, Check::Everything, &[b"h2"]).await?;
    match connector.connect(name, tcp).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(e) => {
            let why = tls::explain(&e, "write etcd:// instead of etcds://");
            Err(Error::new(tls::kind(&why)).because(format!("{address}: TLS: {why}")))
        }
    }
}
