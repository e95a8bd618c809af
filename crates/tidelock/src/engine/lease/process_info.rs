//! A record of this process in the store, for operators: host, process id, program, user. It exists while the client does.

use crate::engine::runtime::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::SystemTime;

use crate::engine::runtime::timers::Timers;
use crate::engine::store_handle::StoreHandle;
use crate::snapshot::ClientInfo;
use crate::store::{Backend, CLIENT_INFO_TTL, ClientId};

/// The record of one client.
#[derive(Debug)]
pub(crate) struct ProcessInfo {
    client: ClientId,
    /// `None`: the file name of this program.
    program: Option<String>,
    user: Option<String>,
    /// A write was sent, so there may be something to remove.
    sent: AtomicBool,
}

impl ProcessInfo {
    pub(crate) fn new(
        client: ClientId,
        program: Option<String>,
        user: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            program,
            user,
            sent: AtomicBool::new(false),
        })
    }

    /// The details of this process.
    pub(crate) fn own(&self) -> ClientInfo {
        own_info(self.program.clone()).run_by(self.user.clone())
    }

    /// Removes the record if it may exist. The steward calls it when no other request of this client is in flight.
    pub(crate) async fn remove(&self, store: &dyn Backend) {
        if !self.sent.load(Ordering::SeqCst) {
            return;
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

fn own_info(program: Option<String>) -> ClientInfo {
    let program = program.or_else(|| {
        let path = std::env::current_exe().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    });
    ClientInfo::new(
        host_name(),
        std::process::id(),
        program.unwrap_or_default(),
        SystemTime::now(),
    )
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
