//! A job: something to run on the server that has a key. The router finds the server, and in a cluster runs the job
//! again after a redirection, or after an error that shows that it did not run.

use std::sync::Arc;

use crate::error::Result;
use crate::store::BootInstant;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::{Request, ScriptCall};
use crate::store::redis::wire::script::Script;

/// Something to run on the server that has [`key`](Self::key).
pub(crate) trait ServerJob: Sync {
    type Output: Send;

    /// All keys of the job are in the slot of this one.
    fn key(&self) -> &str;

    /// The caller waits for the reply until then.
    fn deadline(&self) -> BootInstant;

    /// Called before it runs once more, after a redirection or an error that shows that it did not run.
    fn again(&self) {}

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

impl ScriptJob<'_> {
    /// Runs the script with EVALSHA. If the server replies NOSCRIPT, it has not run the script, and we send it again
    /// with EVAL. `asking`: see [`ServerJob::run`].
    pub(crate) async fn eval(
        &self,
        connection: &Connection,
        conn: &Arc<LiveConnection>,
        asking: bool,
    ) -> Result<Reply> {
        let mut call = ScriptCall {
            how: "EVALSHA",
            what: self.script.sha(),
            keys: self.keys,
            args: self.args,
            asking,
        };
        loop {
            match connection.settle(conn, &call, self.deadline).await {
                Err(RequestError::Server(server_error))
                    if call.how == "EVALSHA" && server_error.is_no_script() =>
                {
                    (call.how, call.what) = ("EVAL", self.script.source);
                }
                other => return other.map_err(|e| e.error()),
            }
        }
    }
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
        self.eval(connection, &conn, asking).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::redis::topology::tests::connection_to;
    use crate::store::redis::wire::live_connection::peer::{in_time, request_of};
    use crate::store::redis::wire::script::sha1;
    use crate::store::redis::wire::tests::ScriptedServer;

    static SCRIPT: Script = Script::new("return 1", || sha1("return 1"));

    #[tokio::test]
    async fn a_script_that_the_server_does_not_know_is_sent_as_text_once() {
        let unknown = "-NOSCRIPT No matching script.\r\n";
        for (by_hash, by_text, expected, texts_sent) in [
            (":7\r\n", ":8\r\n", Ok(7), 0),
            (unknown, ":8\r\n", Ok(8), 1),
            (unknown, unknown, Err(ErrorKind::OutcomeUnknown), 1),
            (
                "-READONLY a replica\r\n",
                ":8\r\n",
                Err(ErrorKind::Unavailable),
                0,
            ),
        ] {
            let server = ScriptedServer::start().await;
            server.answers("EVALSHA", &[by_hash]);
            server.answers("EVAL ", &[by_text]);
            let connection = connection_to(server.address());
            let job = ScriptJob {
                script: &SCRIPT,
                keys: &["key"],
                args: &["arg"],
                deadline: connection.deadline(),
            };
            let reply = in_time(job.run(&connection, true)).await;
            let reply = reply.map(|reply| reply.int().unwrap());
            let reply = reply.map_err(|error| error.kind());
            assert_eq!(reply, expected, "{by_hash}");
            let sent = server.heard("EVAL ");
            assert_eq!(sent, vec!["EVAL return 1 1 key arg"; texts_sent]);
            // The slot is being migrated: each request needs its own.
            assert_eq!(server.heard("ASKING").len(), 1 + texts_sent);
        }
    }

    #[tokio::test]
    async fn a_job_is_for_the_server_of_its_first_key() {
        let server = ScriptedServer::start().await;
        let connection = connection_to(server.address());
        let deadline = connection.deadline();
        let mut job = ScriptJob {
            script: &SCRIPT,
            keys: &["one", "two"],
            args: &[],
            deadline,
        };
        assert_eq!((job.key(), job.deadline()), ("one", deadline));
        job.keys = &[];
        assert_eq!(job.key(), "");
        let request = request_of("GET key");
        let job = RequestJob {
            key: "key",
            request: &request,
            deadline,
        };
        assert_eq!((job.key(), job.deadline()), ("key", deadline));
        for (asking, sent) in [(false, 0), (true, 1)] {
            in_time(job.run(&connection, asking)).await.unwrap();
            assert_eq!(server.heard("ASKING").len(), sent);
        }
        assert_eq!(server.heard("GET key").len(), 2);
    }
}
