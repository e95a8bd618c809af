//! etcd: its keys, with the revisions and the leases that they have.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::servers::EtcdServer;

use super::Stand;
use crate::scenario::{Has, PATIENCE};

/// Written to count up to the next revision, and not left behind.
const FILLER: &str = "filler";

/// A line of a dump.
#[derive(Debug, Serialize, Deserialize)]
struct Key {
    #[serde(rename = "key")]
    name: String,
    value: String,
    created: u64,
    changed: u64,
    /// 0: none.
    lease: i64,
    /// Seconds that are left of the lease.
    ttl: i64,
}

pub(crate) struct Etcd(EtcdServer);

impl Etcd {
    /// The fields of each key, and the newest revision.
    fn read(&self) -> Result<(Vec<BTreeMap<String, Value>>, u64)> {
        let said = self.0.admin(&["get", "", "--prefix", "-w", "fields"])?;
        let (mut keys, mut newest) = (Vec::new(), None);
        for line in said.lines() {
            let Some((name, value)) = line.split_once(" : ") else {
                continue;
            };
            let (name, value): (String, Value) =
                (serde_json::from_str(name)?, serde_json::from_str(value)?);
            match &*name {
                "Revision" => newest = value.as_u64(),
                "Key" => keys.push(BTreeMap::from([(name, value)])),
                _ => {
                    if let Some(key) = keys.last_mut() {
                        key.insert(name, value);
                    }
                }
            }
        }
        Ok((keys, newest.context("no revision")?))
    }

    fn ttl(&self, lease: i64) -> Result<i64> {
        if lease == 0 {
            return Ok(0);
        }
        let lease = format!("{lease:x}");
        let said = self
            .0
            .admin(&["lease", "timetolive", &lease, "-w", "json"])?;
        let said: Value = serde_json::from_str(&said)?;
        said["ttl"].as_i64().context("no time to live")
    }

    /// What its JSON gateway answers. `etcdctl` cannot grant a lease with a given id.
    fn gateway(&self, path: &str, request: &Value) -> Result<()> {
        let mut stream = TcpStream::connect(self.0.addr())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = request.to_string();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.lines().next().unwrap_or_default();
        ensure!(status.contains(" 200 "), "{path}: {answer}");
        Ok(())
    }

    fn put(&self, key: &Key) -> Result<()> {
        let lease = format!("--lease={:x}", key.lease);
        let all = ["put", &lease, "--", &key.name, &key.value];
        self.0.admin(&all).map(drop)
    }
}

impl Stand for Etcd {
    const NAME: &'static str = "etcd";
    const HAS: Has = Has {
        fair: true,
        queues: true,
        ..Has::LEAST
    };

    fn start() -> Result<Self> {
        EtcdServer::start().map(Self)
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn dump(&self) -> Result<String> {
        let mut text = String::new();
        for fields in self.read()?.0 {
            let field = |name| fields.get(name).with_context(|| format!("no {name}"));
            let number = |name| field(name)?.as_u64().context("no number");
            let word = |name| field(name)?.as_str().context("no text");
            let lease = field("Lease")?.as_i64().context("no lease")?;
            let key = Key {
                name: word("Key")?.to_owned(),
                value: word("Value")?.to_owned(),
                created: number("CreateRevision")?,
                changed: number("ModRevision")?,
                lease,
                ttl: self.ttl(lease)?,
            };
            text += &serde_json::to_string(&key)?;
            text.push('\n');
        }
        Ok(text)
    }

    /// Each key is created and changed at the revision that it had: the queue goes by that, and it is the token.
    fn load(&self, text: &str, _age: Duration) -> Result<()> {
        let keys = text.lines().map(serde_json::from_str::<Key>);
        let keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
        let mut written = BTreeMap::new();
        for key in &keys {
            for revision in [key.created, key.changed] {
                let before = written.insert(revision, key);
                ensure!(
                    before.is_none_or(|it| it.name == key.name),
                    "two keys of revision {revision}"
                );
            }
            // Keys may share a lease; it is granted once.
            let grant = json!({ "ID": key.lease.to_string(), "TTL": key.ttl.to_string() });
            let first = keys.iter().find(|it| it.lease == key.lease);
            if key.lease != 0 && first.is_some_and(|it| it.name == key.name) {
                self.gateway("/v3/lease/grant", &grant)?;
            }
        }
        let (_, mut newest) = self.read()?;
        for (revision, key) in written {
            while newest + 1 < revision {
                self.0.admin(&["put", FILLER, ""])?;
                newest += 1;
            }
            ensure!(newest + 1 == revision, "it is at {newest} already");
            self.put(key)?;
            newest = revision;
        }
        self.0.admin(&["del", FILLER]).map(drop)
    }
}
