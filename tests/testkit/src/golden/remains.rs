//! Reads all keys of a server and their contents.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::Mask;
use crate::servers::RedisServer;

/// Every key of the server by its name.
pub type Remains = BTreeMap<String, Key>;

/// A key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its contents.
    #[serde(flatten)]
    pub content: Content,
    /// Seconds to live, rounded up; `None`: it does not expire.
    pub ttl_s: Option<u64>,
}

/// The contents of a key. Locks use no other types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// The fields of a hash.
    Hash(BTreeMap<String, String>),
    /// A string.
    String(String),
}

pub(super) fn read(server: &RedisServer, mask: &Mask) -> Result<Remains> {
    let mut remains = Remains::new();
    for name in server.keys()? {
        let content = content(server, &name, mask)?;
        let ttl: i64 = server.query(&["PTTL", &name])?;
        let ttl_s = u64::try_from(ttl).ok().map(|ms| ms.div_ceil(1000));
        remains.insert(mask.word(name), Key { content, ttl_s });
    }
    Ok(remains)
}

fn content(server: &RedisServer, name: &str, mask: &Mask) -> Result<Content> {
    let kind: String = server.query(&["TYPE", name])?;
    Ok(match kind.as_str() {
        "hash" => {
            let fields: BTreeMap<String, String> = server.query(&["HGETALL", name])?;
            let masked = |(field, value)| (mask.word(field), value);
            Content::Hash(fields.into_iter().map(masked).collect())
        }
        "string" => Content::String(server.query(&["GET", name])?),
        other => bail!("{name} is a {other}"),
    })
}
