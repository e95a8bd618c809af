//! A proxy that counts the requests of a client to a database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the clients speak.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    /// MySQL or `MariaDB`.
    Mysql,
    /// `PostgreSQL`.
    Postgres,
}

/// Counts the requests of all connections through it. Each is one round trip.
#[derive(Debug)]
pub struct RequestCounter {
    /// Where clients connect.
    pub addr: SocketAddr,
    requests: Arc<AtomicU64>,
    unknown: Arc<AtomicU64>,
}

impl RequestCounter {
    /// A proxy in front of this server.
    pub async fn before(server: SocketAddr, protocol: Protocol) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::new(0));
        let unknown = Arc::new(AtomicU64::new(0));
        let (counted, refused) = (Arc::clone(&requests), Arc::clone(&unknown));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (counted, refused) = (Arc::clone(&counted), Arc::clone(&refused));
                tokio::spawn(relay(client, server, protocol, counted, refused));
            }
        });
        Ok(Self {
            addr,
            requests,
            unknown,
        })
    }

    /// How often the server has answered that something does not exist.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::SeqCst)
    }

    /// The total number of requests.
    pub fn total(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// The number of requests since the previous call.
    pub fn spent(&self) -> u64 {
        self.requests.swap(0, Ordering::SeqCst)
    }
}

async fn relay(
    client: TcpStream,
    server: SocketAddr,
    protocol: Protocol,
    counted: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
) -> Result<()> {
    let server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move {
        let mut answer = vec![0; 1 << 16];
        loop {
            let length = from_server.read(&mut answer).await?;
            if length == 0 {
                return to_client.shutdown().await;
            }
            // An answer to one of a few requests that come one after the other is one piece.
            let text = String::from_utf8_lossy(&answer[..length]);
            let unknown = text.matches("does not exist").count();
            refused.fetch_add(unknown as u64, Ordering::SeqCst);
            to_client.write_all(&answer[..length]).await?;
        }
    });
    let mut greets = true;
    loop {
        let (packet, is_request) = match protocol {
            Protocol::Mysql => mysql_packet(&mut from_client).await?,
            Protocol::Postgres => postgres_message(&mut from_client, &mut greets).await?,
        };
        counted.fetch_add(u64::from(is_request), Ordering::SeqCst);
        to_server.write_all(&packet).await?;
    }
}

/// The header: three bytes of length, and a sequence number that restarts at 0 with each command.
async fn mysql_packet(from: &mut (impl AsyncReadExt + Unpin)) -> Result<(Vec<u8>, bool)> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet).await?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
    let is_request = packet[3] == 0;
    packet.resize(4 + usize::try_from(length)?, 0);
    from.read_exact(&mut packet[4..]).await?;
    Ok((packet, is_request))
}

/// The header: a letter, and four bytes of length that count themselves. The first messages have no letter. A request
/// is a simple query, or ends with a `Sync`.
async fn postgres_message(
    from: &mut (impl AsyncReadExt + Unpin),
    greets: &mut bool,
) -> Result<(Vec<u8>, bool)> {
    /// Asks for TLS. The next message has no letter either.
    const WANTS_TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();
    let letters = usize::from(!*greets);
    let mut message = vec![0; letters + 4];
    from.read_exact(&mut message).await?;
    let length = [letters, letters + 1, letters + 2, letters + 3].map(|at| message[at]);
    message.resize(letters + usize::try_from(u32::from_be_bytes(length))?, 0);
    from.read_exact(&mut message[letters + 4..]).await?;
    if *greets {
        *greets = message[4..] == WANTS_TLS;
        return Ok((message, false));
    }
    let is_request = matches!(message[0], b'Q' | b'S');
    Ok((message, is_request))
}
