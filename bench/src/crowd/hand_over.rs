//! A prototype of a hand-over for the plain lock: tidelock's scripts with the least that grants the lock to the next
//! waiter in the script of the release. It knows neither waiters of Redisson nor lost replies, so a product would cost
//! more, never less.

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt as _;
use load::Contender;
use redis::aio::MultiplexedConnection;
use tidelock::store::redis_scripts;
use tokio::sync::watch;

use crate::raw::{channel, client, connection, is_granted, script};

/// What a waiter does when it is told that it has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It asks, and so confirms the grant: the form of tidelock's fair lock.
    Asks,
    /// It enters at once. Unsafe as it stands here; it shows the shortest gap that a hand-over can have.
    Enters,
}

/// The acquire script: a waiter that is refused joins the queue.
fn acquire() -> Result<String> {
    const REFUSED: &str =
        "if ARGV[3] ~= 'sleeps' and ARGV[3] ~= 'spins' then\n      return {0, left}\n    end\n";
    let body = redis_scripts::acquire();
    let found = body.matches(REFUSED).count();
    ensure!(found == 1, "the acquire script has changed");
    let queues = include_str!("queue.lua");
    Ok(body.replace(REFUSED, &format!("{REFUSED}{queues}")))
}

/// The release script: one more key in its `EXISTS`, and the hand-over where that finds something.
fn release() -> Result<String> {
    const OTHERS: &str = "'redisson_lock_queue:' .. braced) ~= 0";
    const TELLS: &str = "local all, ours, muted = 0, 0, false";
    let body = redis_scripts::release();
    let parts = [OTHERS, TELLS].map(|part| body.matches(part).count());
    ensure!(parts == [1, 1], "the release script has changed");
    let more = "'redisson_lock_queue:' .. braced, 'tidelock:waiting_for:' .. braced) ~= 0";
    let hands_over = format!("{}\n{TELLS}", include_str!("hand_over.lua"));
    Ok(body.replace(OTHERS, more).replace(TELLS, &hands_over))
}

/// One client: a connection for its scripts, and one that hears its own channel.
#[derive(Debug)]
pub(crate) struct HandedOver {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    keys: [String; 2],
    queue: String,
    owner: String,
    told: Told,
    messages: watch::Receiver<u64>,
}

impl HandedOver {
    pub(crate) async fn connect(url: &str, name: &str, number: usize, told: Told) -> Result<Self> {
        let owner = format!("01234567-89ab-8cde-8f01-{number:012x}:1");
        let (count, mut messages) = watch::channel(0);
        let own = format!("{}:{owner}", channel(name));
        let mut ears = client(url)?.get_async_pubsub().await?;
        tokio::spawn(async move {
            if ears.subscribe(own).await.is_err() {
                return;
            }
            count.send_modify(|count| *count += 1);
            let mut heard = ears.on_message();
            while heard.next().await.is_some() {
                count.send_modify(|count| *count += 1);
            }
        });
        messages.changed().await.context("no subscription")?;
        let mut connection = connection(url).await?;
        let mut load = async |text: String| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            load.query_async::<String>(&mut connection).await
        };
        let (acquire, release) = (load(acquire()?).await?, load(release()?).await?);
        Ok(Self {
            connection,
            acquire,
            release,
            keys: [
                name.to_owned(),
                format!("tidelock:withdrawn:{{{name}}}:{owner}"),
            ],
            queue: format!("tidelock:waiting_for:{{{name}}}"),
            owner,
            told,
            messages,
        })
    }

    async fn asks(&mut self) -> Result<bool> {
        let keys = self.keys.each_ref().map(String::as_str);
        let args = ["30000", &self.owner, "sleeps", "1", &self.queue];
        let asks = script(&self.acquire, &keys, &args);
        let answer: redis::Value = asks.query_async(&mut self.connection).await?;
        Ok(is_granted(&answer))
    }
}

impl Contender for HandedOver {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        self.messages.mark_unchanged();
        while !self.asks().await? {
            self.messages.changed().await.context("it is deaf")?;
            if self.told == Told::Enters {
                break;
            }
        }
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        let release = script(&self.release, &[&self.keys[0]], &[&self.owner]);
        let freed: redis::Value = release.query_async(&mut self.connection).await?;
        ensure!(freed != redis::Value::Int(0), "it was not held");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The prototypes change the texts of the product's scripts, so they must find the places that they change.
    #[test]
    fn the_prototypes_fit_the_scripts() {
        let acquire = acquire().unwrap();
        assert!(acquire.contains("'rpush'"), "{acquire}");
        let release = release().unwrap();
        assert!(release.contains("'lpop'"), "{release}");
        assert!(release.contains("tidelock:waiting_for:"), "{release}");
    }
}
