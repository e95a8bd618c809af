//! Lists the processes, and asks them to tell more often.

use std::time::Duration;

use crate::client::Client;
use crate::engine::lease::process_info::records;
use crate::error::{Error, Result};
use crate::processes::process::{Process, WATCHERS};
use crate::processes::record::from_line;
use crate::store::MarkChange;

/// How long a call of [`Client::watch_processes`] lasts.
const WATCHED: Duration = Duration::from_secs(15);

/// Bounds how many records are read.
const MOST: u32 = 1000;

impl Client {
    /// The processes that use this store, as far as they tell: each client writes a record ten seconds after the one
    /// before, so the answer is at most that old, and every second while somebody
    /// [watches](Self::watch_processes). The first record is written ten seconds after the connect. At most 1000
    /// processes, sorted by host, program and process id. It only reads; on ZooKeeper it also writes one empty node, because
    /// only the reply to a write tells the server's time.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on stores that keep no records: Memcached, PostgreSQL with session
    /// locks; [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
    /// [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().program_version("1.9").connect("memory:").await?;
    /// for process in client.processes().await? {
    ///     println!("{}: {} held, {} waiting", process.info, process.held, process.waiting);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn processes(&self) -> Result<Vec<Process>> {
        let core = self.core();
        core.refuse_if_closed()?;
        let store = &core.home.store;
        let marks = store.front().extensions().need_marks()?;
        let name = records()?;
        let read = async {
            let lines = marks.history(&name, MOST).await;
            store.heard_answer(&name, &lines);
            let lines = lines?;
            let now = marks.now(&name).await;
            store.heard_answer(&name, &now);
            Ok((lines, now?))
        };
        let read = core.steward.answered(read).await;
        let (lines, now) = read.map_err(Error::without_effect)?;
        let lines = lines.iter();
        let mut processes: Vec<Process> = lines
            .filter_map(|(client, line)| from_line(client, line, now))
            .collect();
        processes.sort_by(|a, b| {
            let key = |one: &'_ Process| {
                let info = &one.info;
                (
                    info.host.clone(),
                    info.program.clone(),
                    info.pid,
                    one.client.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        Ok(processes)
    }

    /// Asks all processes to write their records every second, for the next 15 seconds. They notice it with their next
    /// record. Call it again as long as somebody looks.
    ///
    /// # Errors
    /// As [`processes`](Self::processes). Without the right to write, the records come every ten seconds.
    ///
    /// # Cancel safety
    /// Cancel safe: it was done, or it was not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// client.watch_processes().await?;
    /// # Ok(()) }
    /// ```
    pub async fn watch_processes(&self) -> Result<()> {
        let core = self.core();
        core.refuse_if_closed()?;
        let store = &core.home.store;
        let marks = store.front().extensions().need_marks()?;
        let name = records()?;
        let written = async {
            let before = marks.read(&name, WATCHERS).await;
            store.heard_answer(&name, &before);
            let before = before?;
            // If another one was faster, they have been asked.
            let ask = MarkChange::unacknowledged(WATCHERS, before.as_deref(), "1", WATCHED);
            let asked = marks.replace(&name, ask).await;
            store.heard_answer(&name, &asked);
            asked.map(drop)
        };
        core.steward.answered(written).await
    }
}
