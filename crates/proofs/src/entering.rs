//! A server that takes nobody in, and does so later.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidelock::{Client, ClientBuilder, ErrorKind};

/// Longer than anything here takes that does not hang.
const SOON: Duration = Duration::from_secs(20);

/// A client comes while the server takes nobody in. Without patience it is told that it may come again; with patience it is
/// let in as soon as the server is open.
///
/// # Errors
/// When it is let in before, is told anything else, or is not let in then.
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

/// Connections that say nothing, as many as a server takes.
///
/// # Errors
/// When a connection cannot be made.
pub fn crowd(server: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let each = (0..count).map(|_| TcpStream::connect(server));
    each.collect::<Result<_, _>>().context("filling the server")
}

/// Connections until a server takes no more that says nothing to whom it lets in, and hangs up on others.
///
/// # Errors
/// When a connection cannot be made.
pub fn fill(server: SocketAddr) -> Result<Vec<TcpStream>> {
    let mut inside = Vec::new();
    let mut refused = 0;
    // One refusal may be because of others that are being refused at that moment.
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

/// A connection to a Redis that was let in, for commands in one line.
#[derive(Debug)]
pub struct Insider(BufReader<TcpStream>);

impl Insider {
    /// Connects, and returns when the server has answered.
    ///
    /// # Errors
    /// When the server takes nobody in.
    pub fn enter(server: SocketAddr) -> Result<Self> {
        let mut insider = Self(BufReader::new(TcpStream::connect(server)?));
        let answer = insider.say("PING")?;
        ensure!(answer == "+PONG", "{answer}");
        Ok(insider)
    }

    /// Sends a command, and reads one line.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn say(&mut self, command: &str) -> Result<String> {
        self.begin(command)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Sends a command, and does not wait for its answer.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn begin(&mut self, command: &str) -> Result<()> {
        let stream = self.0.get_mut();
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        Ok(())
    }
}
