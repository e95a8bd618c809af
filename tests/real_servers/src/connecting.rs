//! Connecting to a server that refuses clients at first and accepts them later.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidelock::{Client, ClientBuilder, ErrorKind};

/// A limit for steps that are much faster unless they hang.
const SOON: Duration = Duration::from_secs(20);

/// Connects while the server refuses clients. Without `connect_within` the error must be retryable (`Unavailable`);
/// with it the client must connect as soon as `open` has run.
///
/// # Errors
/// Fails if the client connects too early, gets any other error, or does not connect in time.
pub async fn is_waited_for(
    builder: ClientBuilder,
    url: &str,
    open: impl FnOnce() -> Result<()>,
) -> Result<Client> {
    let refused = builder.clone().connect(url).await.err();
    let refused = refused.context("it was let in")?;
    ensure!(refused.kind() == ErrorKind::Unavailable, "{refused}");
    let (patient, place) = (builder.connect_within(SOON), url.to_owned());
    let coming = tokio::spawn(async move { patient.connect(&place).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(!coming.is_finished(), "{:?}", coming.await?.err());
    open()?;
    let client = tokio::time::timeout(SOON, coming).await???;
    client.lock("stock").acquire().await?.release().await?;
    Ok(client)
}

/// Opens `count` idle connections, to use up the server's limit.
///
/// # Errors
/// Fails if a connection cannot be made.
pub fn crowd(server: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let each = (0..count).map(|_| TcpStream::connect(server));
    each.collect::<Result<_, _>>().context("filling the server")
}

/// Opens idle connections until the server is full. It works with a server that closes a refused connection and sends
/// nothing on an accepted one.
///
/// # Errors
/// Fails if a connection cannot be made.
pub fn fill(server: SocketAddr) -> Result<Vec<TcpStream>> {
    let mut inside = Vec::new();
    let mut refused = 0;
    // The server may still count connections that it is about to refuse, so one refusal does not prove that it is full.
    while refused < 5 {
        let mut next = TcpStream::connect(server)?;
        next.set_read_timeout(Some(Duration::from_millis(20)))?;
        if next.read(&mut [0; 100]).is_ok() {
            refused += 1;
        } else {
            refused = 0;
            inside.push(next);
        }
    }
    Ok(inside)
}

/// An accepted connection to Redis, for inline commands.
#[derive(Debug)]
pub struct Insider(BufReader<TcpStream>);

impl Insider {
    /// Connects, and returns once the server has answered.
    ///
    /// # Errors
    /// Fails if the server refuses the connection.
    pub fn enter(server: SocketAddr) -> Result<Self> {
        let mut insider = Self(BufReader::new(TcpStream::connect(server)?));
        let answer = insider.say("PING")?;
        ensure!(answer == "+PONG", "{answer}");
        Ok(insider)
    }

    /// Sends a command and reads one line.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub fn say(&mut self, command: &str) -> Result<String> {
        self.begin(command)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Sends a command and does not wait for the answer.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub fn begin(&mut self, command: &str) -> Result<()> {
        let stream = self.0.get_mut();
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        Ok(())
    }
}
