//! A job: something to run on the server that has a key. The router finds the server, and in a cluster runs the job
//! again after a redirection, or after an error that shows that it did not run.

use crate::error::Result;
use crate::store::BootInstant;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::script::Script;

/// Something to run on the server that has [`key`](Self::key).
pub(crate) trait ServerJob: Sync {
    type Output: Send;

    /// All keys of the job are in the slot of this one.
    fn key(&self) -> &str;

    /// The caller waits for the reply until then.
    fn deadline(&self) -> BootInstant;

    /// Runs once on one server. `asking`: the slot is being migrated to that server, so ASKING goes first.
    fn run(
        &self,
        connection: &Connection,
        asking: bool,
    ) -> impl Future<Output = Result<Self::Output>> + Send;
}

/// Runs a script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptJob<'a> {
    pub(crate) script: &'static Script,
    pub(crate) keys: &'a [&'a str],
    pub(crate) args: &'a [&'a str],
    pub(crate) deadline: BootInstant,
}

impl ServerJob for ScriptJob<'_> {
    type Output = Reply;

    fn key(&self) -> &str {
        self.keys.first().unwrap_or(&"")
    }

    fn deadline(&self) -> BootInstant {
        self.deadline
    }

    async fn run(&self, connection: &Connection, asking: bool) -> Result<Reply> {
        let conn = connection.get(self.deadline).await?;
        connection.eval(&conn, asking, self).await
    }
}

/// Sends one request.
pub(crate) struct RequestJob<'a> {
    pub(crate) key: &'a str,
    pub(crate) request: &'a Request,
    pub(crate) deadline: BootInstant,
}

impl ServerJob for RequestJob<'_> {
    type Output = Reply;

    fn key(&self) -> &str {
        self.key
    }

    fn deadline(&self) -> BootInstant {
        self.deadline
    }

    async fn run(&self, connection: &Connection, asking: bool) -> Result<Reply> {
        if !asking {
            return connection.ask(self.request, self.deadline).await;
        }
        let request = self.request.clone().asking(true);
        connection.ask(&request, self.deadline).await
    }
}
