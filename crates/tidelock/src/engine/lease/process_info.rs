//! A record of this process in the store, for operators: host, process id, program, user. It exists while the client does.

use crate::engine::runtime::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::engine::runtime::sync::Mutex;
use crate::engine::runtime::timers::Timers;
use crate::engine::store_handle::StoreHandle;
use crate::error::Result;
use crate::snapshot::ClientInfo;
use crate::store::{Backend, CLIENT_INFO_TTL, ClientId, MarkChange, Marks, Name};

/// The name under which the store keeps what each process tells of itself: one mark for each client.
const RECORDS: &str = "tidelock:processes";

/// How long the record of a closed client stays, without text.
const REMOVED_AFTER: Duration = Duration::from_millis(1);

/// The record of one client.
#[derive(Debug)]
pub(crate) struct ProcessInfo {
    client: ClientId,
    /// Asked once: after an upgrade in place the system adds `(deleted)` to the name.
    program: String,
    user: Option<String>,
    connected: SystemTime,
    /// A write was sent, so there may be something to remove.
    sent: AtomicBool,
    /// The text of the record that was sent last. `None`: none was sent.
    record: Mutex<Option<String>>,
}

/// The name under which the store keeps the records of the processes.
pub(crate) fn records() -> Result<Name> {
    Name::new(RECORDS)
}

impl ProcessInfo {
    pub(crate) fn new(
        client: ClientId,
        program: Option<String>,
        user: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            program: program.or_else(own_program).unwrap_or_default(),
            user,
            connected: SystemTime::now(),
            sent: AtomicBool::new(false),
            record: Mutex::new(None),
        })
    }

    /// The details of this process.
    pub(crate) fn own(&self) -> ClientInfo {
        let (program, connected) = (self.program.clone(), self.connected);
        ClientInfo::new(host_name(), std::process::id(), program, connected)
            .run_by(self.user.clone())
    }

    /// Writes what this process tells of itself, and keeps it for that long.
    pub(crate) async fn put_record(
        &self,
        marks: &dyn Marks,
        text: String,
        keep: Duration,
    ) -> Result<()> {
        let (name, slot) = (records()?, self.client.as_str());
        // We note the text first: if the reply is lost, the record may exist and must be removed.
        let before = self.record.lock().replace(text.clone());
        let put = |before: Option<String>| {
            let (name, text) = (&name, &text);
            async move {
                let change = MarkChange::unacknowledged(slot, before.as_deref(), text, keep);
                marks.replace(name, change).await
            }
        };
        if !put(before).await? {
            // The record has expired, or a write whose reply was lost has taken effect, or has taken none.
            let seen = marks.read(&name, slot).await?;
            put(seen).await?;
        }
        Ok(())
    }

    async fn remove_record(&self, store: &dyn Backend) -> Result<()> {
        if self.record.lock().is_none() {
            return Ok(());
        }
        let marks = store.extensions().need_marks()?;
        self.put_record(marks, String::new(), REMOVED_AFTER).await
    }

    /// Removes the record if it may exist. The steward calls it when no other request of this client is in flight.
    pub(crate) async fn remove(&self, store: &dyn Backend) {
        if !self.sent.load(Ordering::SeqCst) {
            return;
        }
        if let Err(error) = self.remove_record(store).await {
            tracing::debug!(%error, "the record of this process could not be removed from the store; it expires by itself");
        }
        if let Err(error) = store.announce(&self.client, None).await {
            tracing::debug!(%error, "the process info of this client could not be removed from the store; it expires by itself");
        }
    }

    /// Writes the record now, and again before it expires, until `begin_write` returns `None`: the client is closed or
    /// dropped. `close` waits for the write while it is marked as in flight, and only then removes the record.
    pub(crate) fn publish<M: Send>(
        self: Arc<Self>,
        timers: Timers,
        begin_write: impl Fn() -> Option<(M, Arc<StoreHandle>)> + Send,
    ) -> impl Future<Output = ()> + Send {
        let own = self.own();
        async move {
            while let Some((in_flight, home)) = begin_write() {
                self.sent.store(true, Ordering::SeqCst);
                if let Err(error) = home.back().announce(&self.client, Some(&own)).await {
                    tracing::debug!(%error, "the process info of this client could not be written to the store; the client retries");
                }
                drop((in_flight, home));
                timers.after(CLIENT_INFO_TTL / 3).await;
            }
        }
    }
}

/// The file name of this program.
fn own_program() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

#[cfg(all(unix, not(miri)))]
fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Also under Miri, whose `uname` leaves a part of its answer unwritten.
#[cfg(any(not(unix), miri))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests;
