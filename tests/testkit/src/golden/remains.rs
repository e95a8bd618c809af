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
    /// The entries of a list, head first.
    List(Vec<String>),
    /// The members of a sorted set; of the random id of a permit, its length. A score is a time: the seconds from now, rounded up.
    Times(BTreeMap<String, i64>),
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
        "string" => Content::String(mask.word(server.query(&["GET", name])?)),
        "list" => {
            let entries: Vec<String> = server.query(&["LRANGE", name, "0", "-1"])?;
            Content::List(entries.into_iter().map(|entry| mask.word(entry)).collect())
        }
        "zset" => {
            let scores: Vec<(Vec<u8>, i64)> =
                server.query(&["ZRANGE", name, "0", "-1", "WITHSCORES"])?;
            let (seconds, micros): (i64, i64) = server.query(&["TIME"])?;
            let now = seconds * 1000 + micros / 1000;
            let left = |score: i64| (score - now + 999).div_euclid(1000);
            let masked = |(member, score): (Vec<u8>, i64)| (mask.word(shown(&member)), left(score));
            Content::Times(scores.into_iter().map(masked).collect())
        }
        other => bail!("{name} is a {other}"),
    })
}

/// A member of a sorted set. The id of a permit is random bytes, or before Redisson 3.17 its digits.
fn shown(member: &[u8]) -> String {
    match std::str::from_utf8(member) {
        Ok(text) if text.contains(':') => text.to_owned(),
        _ => format!("<permit of {} bytes>", member.len()),
    }
}
