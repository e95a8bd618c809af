//! Carries the bytes of a connection and applies modes and rules to them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::rule::RuleState;
use super::state::{Accepted, Fate, Shared};
use super::{Mode, Way, resp};

/// How many bytes are read at once.
const PIECE: usize = 16 * 1024;

/// One message in flight, or arbitrary bytes of a connection that we cannot parse.
struct Parcel {
    bytes: Vec<u8>,
    came: Instant,
    held: Option<Arc<RuleState>>,
}

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // `accept` fails when file descriptors run out. We try again, because the next call may succeed.
        let Ok((client, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let Some(Accepted {
            id,
            upstream,
            modes,
            cut,
        }) = shared.accept()
        else {
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            tokio::select! {
                // An error means that one side has closed. The end of this task closes the other side.
                _ = carry(id, client, upstream, modes, &shared) => {}
                () = cut.notified() => {}
            }
            shared.forget(id);
        });
    }
}

async fn carry(
    id: u64,
    client: TcpStream,
    upstream: std::net::SocketAddr,
    [to_server, to_client]: [watch::Receiver<Mode>; 2],
    shared: &Shared,
) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let understood = AtomicBool::new(false);
    let reader = |way| Reader {
        id,
        way,
        shared,
        understood: &understood,
    };
    tokio::try_join!(
        one_way(reader(Way::ToServer), client_read, server_write, to_server),
        one_way(reader(Way::ToClient), server_read, client_write, to_client),
    )?;
    Ok(())
}

async fn one_way(
    reader: Reader<'_>,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    mode: watch::Receiver<Mode>,
) -> io::Result<()> {
    let (sender, parcels) = unbounded_channel();
    tokio::try_join!(reader.run(from, sender), write(to, parcels, mode))?;
    Ok(())
}

struct Reader<'a> {
    id: u64,
    way: Way,
    shared: &'a Shared,
    /// Whether this connection speaks Redis's protocol. We decide by the first byte from the client.
    understood: &'a AtomicBool,
}

impl Reader<'_> {
    async fn run(
        self,
        mut from: impl AsyncRead + Unpin,
        to: UnboundedSender<Parcel>,
    ) -> io::Result<()> {
        // `read_buf` gives an empty buffer no more than 64 bytes, and a rule for bytes would miss those that are in two pieces.
        let mut buffer = Vec::with_capacity(PIECE);
        let mut first = true;
        while from.read_buf(&mut buffer).await? > 0 {
            if first && self.way == Way::ToServer {
                self.understood.store(
                    self.shared.looks && buffer.starts_with(b"*"),
                    Ordering::Relaxed,
                );
            }
            first = false;
            self.take(&mut buffer, &to)?;
        }
        Ok(())
    }

    /// Forwards the complete messages in the buffer.
    fn take(&self, buffer: &mut Vec<u8>, to: &UnboundedSender<Parcel>) -> io::Result<()> {
        while !buffer.is_empty() {
            let end = if self.understood.load(Ordering::Relaxed) {
                resp::end(buffer)
            } else {
                Err(())
            };
            let (end, fate) = match end {
                Ok(None) => return Ok(()),
                Ok(Some(end)) => (end, self.judge(&buffer[..end])),
                Err(()) => (buffer.len(), self.judge_bytes(buffer)),
            };
            let bytes = buffer.drain(..end).collect();
            let held = match fate {
                Fate::Pass => None,
                Fate::Hold(rule) => Some(rule),
                Fate::Drop => continue,
                Fate::Cut => return Err(io::ErrorKind::ConnectionAborted.into()),
            };
            // The receiver exists as long as this reader, so `send` does not fail.
            let _ = to.send(Parcel {
                bytes,
                came: Instant::now(),
                held,
            });
        }
        Ok(())
    }

    fn judge(&self, message: &[u8]) -> Fate {
        match self.way {
            Way::ToServer => self.shared.request(self.id, message),
            Way::ToClient => self.shared.reply(self.id, message),
        }
    }

    fn judge_bytes(&self, bytes: &[u8]) -> Fate {
        match self.way {
            Way::ToServer => self.shared.bytes(bytes),
            Way::ToClient => Fate::Pass,
        }
    }
}

async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut parcels: UnboundedReceiver<Parcel>,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<()> {
    while let Some(parcel) = parcels.recv().await {
        if let Some(rule) = parcel.held {
            // We hold the rule, and the rule owns the sender, so the wait ends only with the value.
            let _ = rule.open.subscribe().wait_for(|open| *open).await;
        }
        if goes_on(parcel.came, &mut mode).await {
            to.write_all(&parcel.bytes).await?;
        }
    }
    // The mode drops or holds the end of a connection like its bytes.
    while !goes_on(Instant::now(), &mut mode).await {
        if mode.changed().await.is_err() {
            break;
        }
    }
    to.shutdown().await
}

/// Waits as the mode demands. Returns whether the bytes may pass.
async fn goes_on(came: Instant, mode: &mut watch::Receiver<Mode>) -> bool {
    loop {
        let now = *mode.borrow_and_update();
        match now {
            Mode::Pass => return true,
            Mode::Drop => return false,
            Mode::Delay(time) => tokio::select! {
                () = sleep_until(came + time) => return true,
                Ok(()) = mode.changed() => {}
            },
            // Without a sender, the connection was cut, and this future is about to be dropped.
            Mode::Hold => {
                if mode.changed().await.is_err() {
                    return false;
                }
            }
        }
    }
}
