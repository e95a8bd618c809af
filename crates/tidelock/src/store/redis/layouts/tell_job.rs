//! A script that publishes a change, in the form that its listeners hear.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::store::BootInstant;
use crate::store::redis::Redis;
use crate::store::redis::pubsub::subscriber::{AUTO, SETTLING};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::job::{ScriptJob, ServerJob};
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::script::Script;

/// Runs a script that publishes. A node that gets the script after a redirection cannot count the listeners at the old node, but a plain
/// message reaches them. So it publishes in both forms. Otherwise a waiter of Redisson there would sleep until the lease that it has
/// last seen has ended.
struct TellJob<'a> {
    job: ScriptJob<'a>,
    /// Which of the arguments says how to publish.
    how: usize,
    is_repeated: AtomicBool,
}

impl ServerJob for TellJob<'_> {
    type Output = Reply;

    fn key(&self) -> &str {
        self.job.key()
    }

    fn deadline(&self) -> BootInstant {
        self.job.deadline()
    }

    fn again(&self) {
        self.is_repeated.store(true, Ordering::Relaxed);
    }

    async fn run(&self, connection: &Connection, asking: bool) -> Result<Reply> {
        let is_auto = self.job.args.get(self.how) == Some(&AUTO);
        if !(is_auto && self.is_repeated.load(Ordering::Relaxed)) {
            return self.job.run(connection, asking).await;
        }
        let mut args = self.job.args.to_vec();
        args[self.how] = SETTLING;
        let job = ScriptJob {
            args: &args,
            ..self.job
        };
        // Boxed, because this path is rare: inline, it would enlarge the future of each release.
        Box::pin(job.run(connection, asking)).await
    }
}

impl Redis {
    /// Runs a script that publishes. `how`: which of its arguments says in which form.
    pub(crate) async fn tell(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        how: usize,
        deadline: BootInstant,
    ) -> Result<Reply> {
        let job = ScriptJob {
            script,
            keys,
            args,
            deadline,
        };
        let job = TellJob {
            job,
            how,
            is_repeated: AtomicBool::new(false),
        };
        self.router.run(&job).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::layouts::scripts;
    use crate::store::redis::topology::tests::connection_to;
    use crate::store::redis::wire::live_connection::peer::in_time;
    use crate::store::redis::wire::tests::ScriptedServer;

    #[tokio::test]
    async fn a_release_that_is_sent_on_is_told_in_both_forms() {
        for (how, again) in [
            ("auto", "settling"),
            ("settling", "settling"),
            ("publish", "publish"),
            ("spublish", "spublish"),
        ] {
            let server = ScriptedServer::start().await;
            server.on("EVALSHA", "1");
            let connection = connection_to(server.address());
            let job = TellJob {
                job: ScriptJob {
                    script: &scripts::RELEASE,
                    keys: &["stock"],
                    args: &["owner", how],
                    deadline: connection.deadline(),
                },
                how: 1,
                is_repeated: AtomicBool::new(false),
            };
            in_time(job.run(&connection, false)).await.unwrap();
            job.again();
            in_time(job.run(&connection, true)).await.unwrap();
            let told = server.heard("EVALSHA");
            let words: Vec<&str> = told
                .iter()
                .map(|call| call.rsplit(' ').next().unwrap())
                .collect();
            assert_eq!(words, [how, again]);
        }
    }
}
