//! Opens TCP connections to hosts that may have several addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::net::{TcpStream, lookup_host};

use crate::store::Timers;

/// How long we wait for an address before we try the next one too.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Connects to the address of the host that accepts first. The caller sets the timeout.
///
/// The first address may never answer, as that of a server that is switched off. If we waited for it, the timeout would
/// pass although another address works.
pub(crate) async fn connect(host: &str, port: u16, timers: &Timers) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    first_of(addresses.collect(), timers).await
}

async fn first_of(addresses: Vec<SocketAddr>, timers: &Timers) -> io::Result<TcpStream> {
    let (mut addresses, mut connecting) = (addresses.into_iter(), FuturesUnordered::new());
    let mut refusal = io::Error::new(io::ErrorKind::InvalidInput, "the host has no address");
    loop {
        if let Some(address) = addresses.next() {
            connecting.push(TcpStream::connect(address));
        }
        let answer = if addresses.as_slice().is_empty() {
            Some(connecting.next().await)
        } else {
            timers.limit(NEXT_ADDRESS, connecting.next()).await
        };
        match answer {
            Some(Some(Ok(stream))) => {
                // A connection without it works as well.
                let _ = keep_alive(&stream);
                return Ok(stream);
            }
            Some(Some(Err(error))) => refusal = error,
            Some(None) => return Err(refusal),
            None => {}
        }
    }
}

/// Sets when TCP asks whether the server is there.
#[cfg(unix)]
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;

    use crate::store::keepalive;

    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, keepalive::IDLE)?;
    sockopt::set_tcp_keepintvl(stream, keepalive::INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, keepalive::PROBES)?;
    Ok(())
}

#[cfg(not(unix))]
fn keep_alive(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::store::{Background, Clock};

    /// The timers stop when the second part is dropped.
    fn timers() -> (Timers, impl Sized) {
        let (background, stop) = Background::start(Clock::Boot).unwrap();
        let timers = Timers::new(Clock::Boot);
        background.spawn(timers.clone().drive());
        (timers, stop)
    }

    async fn good() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// An address at which nothing listens any more.
    async fn closed() -> SocketAddr {
        good().await.1
    }

    /// A listener whose backlog is full of these streams, so that it answers no other. Not all systems do so.
    #[cfg(target_os = "linux")]
    async fn silent() -> (TcpListener, Vec<TcpStream>) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let (address, mut streams) = (listener.local_addr().unwrap(), Vec::new());
        let limit = Duration::from_millis(500);
        while let Ok(stream) = tokio::time::timeout(limit, TcpStream::connect(address)).await {
            streams.push(stream.unwrap());
            assert!(streams.len() < 100, "a backlog without an end");
        }
        (listener, streams)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_is_silent_or_refuses_does_not_hide_one_that_accepts() {
        let (timers, _stop) = timers();
        let soon = Duration::from_secs(20);
        let (listener, _streams) = silent().await;
        let (silent, closed) = (listener.local_addr().unwrap(), closed().await);
        let (_good, good) = good().await;
        for addresses in [
            vec![silent, good],
            vec![closed, good],
            vec![silent, closed, good],
            vec![good, silent],
            vec![good],
        ] {
            let connecting = first_of(addresses.clone(), &timers);
            let stream = tokio::time::timeout(soon, connecting).await.unwrap();
            assert_eq!(stream.unwrap().peer_addr().unwrap(), good, "{addresses:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn tcp_asks_whether_the_other_end_of_a_silent_connection_is_there() {
        use rustix::net::sockopt;

        let (timers, _stop) = timers();
        let (_listener, address) = good().await;
        let stream = first_of(vec![address], &timers).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let idle = sockopt::tcp_keepidle(&stream).unwrap();
        assert_eq!(idle, crate::store::keepalive::IDLE);
    }

    #[tokio::test]
    async fn a_host_without_a_good_address_is_an_error() {
        let (timers, _stop) = timers();
        let (one, other) = (closed().await, closed().await);
        let error = first_of(vec![one, other], &timers).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = first_of(Vec::new(), &timers).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
