//! ZooKeeper: its nodes, with the numbers of the transactions that made them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use testkit::servers::ZooKeeperServer;
use tokio::runtime::Handle;
use zookeeper_client as zk;

use super::Stand;
use crate::scenario::Has;

/// Written to count up to the next transaction or child, and not left behind.
const FILLER: &str = "filler";

/// A line of a dump.
#[derive(Debug, Serialize, Deserialize)]
struct Node {
    path: String,
    /// It ends with the session that made it. A container looks like any other node that does not.
    ephemeral: bool,
    data: String,
    /// The transactions that made it, and that changed it last.
    created: i64,
    changed: i64,
}

impl Node {
    fn parent(&self) -> &str {
        let (parent, _) = self.path.rsplit_once('/').unwrap_or_default();
        if parent.is_empty() { "/" } else { parent }
    }

    /// Its place among the children that its parent has had, if it has one.
    fn number(&self) -> Option<i64> {
        let digits = self.path.get(self.path.len().checked_sub(10)?..)?;
        digits.parse().ok().filter(|_| self.ephemeral)
    }
}

pub(crate) struct ZooKeeper {
    server: ZooKeeperServer,
    /// Holds what was loaded: it would end with its session.
    session: Mutex<Option<zk::Client>>,
}

impl ZooKeeper {
    async fn connect(&self) -> Result<zk::Client> {
        let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(120));
        Ok(connector.connect(&self.server.addr().to_string()).await?)
    }

    async fn read(&self) -> Result<String> {
        let client = self.connect().await?;
        let (mut left, mut text) = (vec!["/".to_owned()], String::new());
        while let Some(path) = left.pop() {
            let found = client.get_data(&path).await;
            let children = client.list_children(&path).await;
            // It may go meanwhile: the server removes empty containers.
            let (Ok((data, stat)), Ok(mut children)) = (found, children) else {
                continue;
            };
            children.sort();
            let base = path.trim_end_matches('/');
            let of_server = |child: &String| base.is_empty() && child == "zookeeper";
            children.retain(|child| !of_server(child));
            left.extend(children.iter().map(|child| format!("{base}/{child}")));
            let node = Node {
                path,
                ephemeral: stat.ephemeral_owner != 0,
                data: String::from_utf8(data)?,
                created: stat.czxid,
                changed: stat.mzxid,
            };
            let is_empty = node.data.is_empty() && children.is_empty() && !node.ephemeral;
            if is_empty || node.path == "/" {
                continue;
            }
            text += &serde_json::to_string(&node)?;
            text.push('\n');
        }
        Ok(text)
    }

    /// What a session makes has the transaction that it had: that is its token. Its number is the one that it had, and
    /// the next child of the same parent has a larger one.
    async fn write(&self, mut nodes: Vec<Node>) -> Result<()> {
        let client = self.connect().await?;
        nodes.sort_by_key(|node| node.created);
        let filler = format!("/{FILLER}");
        let persistent = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        let ephemeral = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
        let (stat, _) = client.create(&filler, b"", &persistent).await?;
        let mut newest = stat.czxid;
        for node in &nodes {
            if let Some(number) = node.number() {
                let counted = count_to(&client, node.parent(), number).await?;
                newest = newest.max(counted);
                while newest + 1 < node.created {
                    newest = client.set_data(&filler, b"", None).await?.mzxid;
                }
            }
            let mode = if node.ephemeral {
                &ephemeral
            } else {
                &persistent
            };
            let creating = client.create(&node.path, node.data.as_bytes(), mode);
            let (stat, _) = creating.await.with_context(|| node.path.clone())?;
            newest = stat.czxid;
            ensure!(
                node.number().is_none() || newest == node.created,
                "{node:?} has the transaction {newest}"
            );
        }
        nodes.sort_by_key(|node| node.changed);
        for node in nodes.iter().filter(|node| node.changed > node.created) {
            client
                .set_data(&node.path, node.data.as_bytes(), None)
                .await?;
        }
        client.delete(&filler, None).await?;
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        Ok(())
    }
}

/// Makes children until the next one has this number. Returns the transaction of the last change.
async fn count_to(client: &zk::Client, parent: &str, number: i64) -> Result<i64> {
    let path = format!("{parent}/{FILLER}");
    let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    loop {
        let stat = client.check_stat(parent).await?.context("no parent")?;
        // A child counts when it is made and when it goes.
        let had = i64::from(stat.cversion + stat.num_children) / 2;
        ensure!(had <= number, "{parent} has had {had} children");
        if had == number {
            return Ok(stat.pzxid);
        }
        client.create(&path, b"", &mode).await?;
        client.delete(&path, None).await?;
    }
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(work))
}

impl Stand for ZooKeeper {
    const NAME: &'static str = "zookeeper";
    const HAS: Has = Has {
        fair: true,
        queues: true,
        read_write: true,
        ..Has::LEAST
    };

    fn start() -> Result<Self> {
        Ok(Self {
            server: ZooKeeperServer::start()?,
            session: Mutex::default(),
        })
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn dump(&self) -> Result<String> {
        wait(self.read())
    }

    /// A mark counts from the time at which its node was changed, and that is now.
    fn load(&self, text: &str, _age: Duration) -> Result<()> {
        let nodes = text.lines().map(serde_json::from_str::<Node>);
        wait(self.write(nodes.collect::<Result<_, _>>()?))
    }
}
