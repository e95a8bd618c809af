//! PostgreSQL's advisory locks by hand, one session for each task.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, ensure};
use load::{Contender, Side};
use tokio_postgres::{Client, NoTls, Statement};

use crate::idle::Idle;

/// The sessions of a process.
pub(crate) struct Advisory {
    url: String,
    idle: Idle<Session>,
}

impl Advisory {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            idle: Idle::new(),
        }
    }
}

struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl Session {
    async fn connect(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // It ends with the client. A failure comes back to the next statement.
        tokio::spawn(connection);
        Ok(Self {
            lock: client.prepare("SELECT pg_advisory_lock($1)").await?,
            unlock: client.prepare("SELECT pg_advisory_unlock($1)").await?,
            client,
        })
    }
}

/// One task.
pub(crate) struct SessionTask {
    url: String,
    key: i64,
    idle: Idle<Session>,
    session: Option<Session>,
}

impl Side for Advisory {
    type Contender = SessionTask;

    fn contender(&self, name: &str) -> Result<SessionTask> {
        // Without a seed, so all processes have the same key for a name.
        let mut hash = DefaultHasher::new();
        name.hash(&mut hash);
        Ok(SessionTask {
            url: self.url.clone(),
            key: hash.finish().cast_signed(),
            idle: self.idle.clone(),
            session: self.idle.take(),
        })
    }
}

impl Contender for SessionTask {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(Session::connect(&self.url).await?),
        };
        session.client.query(&session.lock, &[&self.key]).await?;
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        let session = self.session.as_ref().context("nothing is held")?;
        let row = session
            .client
            .query_one(&session.unlock, &[&self.key])
            .await?;
        ensure!(row.get::<_, bool>(0), "it was not held");
        Ok(())
    }
}

impl Drop for SessionTask {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.idle.put(session);
        }
    }
}
