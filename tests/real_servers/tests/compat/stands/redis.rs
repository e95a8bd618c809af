//! Redis: the commands that make its keys.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::servers::{Flavour, RedisServer};

use super::{Stand, WAITERS_LIVE};
use crate::scenario::Has;

/// Begins a word whose bytes are no text.
const HEX: &str = "hex:";

pub(crate) struct Redis(RedisServer);

/// With plain locks.
pub(crate) struct Plain(RedisServer);

fn start() -> Result<RedisServer> {
    // Always the same server: a key has one form on all.
    RedisServer::builder().flavour(Flavour::Redis7).start()
}

impl Stand for Redis {
    const NAME: &'static str = "redis";
    const HAS: Has = Has {
        counts: true,
        ..Has::ALL_SIDES
    };

    fn start() -> Result<Self> {
        start().map(Self)
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn dump(&self) -> Result<String> {
        dump(&self.0)
    }

    fn load(&self, text: &str, age: Duration) -> Result<()> {
        load(&self.0, text, age)
    }
}

impl Stand for Plain {
    const NAME: &'static str = "redis-plain";
    const HAS: Has = Has::LEAST;

    fn start() -> Result<Self> {
        start().map(Self)
    }

    fn url(&self) -> String {
        format!("{}?locks=plain", self.0.url())
    }

    fn dump(&self) -> Result<String> {
        dump(&self.0)
    }

    fn load(&self, text: &str, age: Duration) -> Result<()> {
        load(&self.0, text, age)
    }
}

/// A command in each line, as a JSON array.
fn dump(server: &RedisServer) -> Result<String> {
    let mut lines = Vec::new();
    for key in server.keys()? {
        // See the mask.
        if key.contains("tidelock:processes") {
            continue;
        }
        let kind: String = server.query(&["TYPE", &key])?;
        let (make, read): (&str, &[&str]) = match &*kind {
            "string" => ("SET", &["GET", &key]),
            "hash" => ("HSET", &["HGETALL", &key]),
            "list" => ("RPUSH", &["LRANGE", &key, "0", "-1"]),
            "zset" => ("ZADD", &["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            // A key that has expired meanwhile.
            "none" => continue,
            other => anyhow::bail!("{key} is a {other}"),
        };
        let parts: Vec<Vec<u8>> = match make {
            "SET" => vec![server.query(read)?],
            _ => server.query(read)?,
        };
        let parts: Vec<String> = parts.into_iter().map(as_text).collect();
        // The order of the fields of a hash is the server's.
        let mut pairs: Vec<Vec<String>> = parts.chunks(2).map(<[String]>::to_vec).collect();
        match make {
            // The ids of clients are random, so their fields go by what they say.
            "HSET" => pairs.sort_by_key(|pair| {
                let (field, value) = (pair.first(), pair.last().cloned());
                (field.filter(|field| !is_client(field)).cloned(), value)
            }),
            "ZADD" => pairs.iter_mut().for_each(|pair| pair.reverse()),
            _ => {}
        }
        let mut words = vec![make.to_owned(), key.clone()];
        words.extend(pairs.into_iter().flatten());
        lines.push(serde_json::to_string(&words)?);
        let ttl: i64 = server.query(&["PTTL", &key])?;
        if ttl > 0 {
            lines.push(serde_json::to_string(&["PEXPIRE", &key, &ttl.to_string()])?);
        }
    }
    Ok(lines.join("\n") + "\n")
}

fn load(server: &RedisServer, text: &str, age: Duration) -> Result<()> {
    for line in text.lines() {
        let mut words: Vec<String> = serde_json::from_str(line)?;
        // A score is a time, in milliseconds.
        if let [command, key, scores @ ..] = words.as_mut_slice()
            && command == "ZADD"
        {
            let live = key.starts_with("tidelock:alive:");
            let moved = age + if live { WAITERS_LIVE } else { Duration::ZERO };
            for score in scores.iter_mut().step_by(2) {
                *score = (score.parse::<u128>()? + moved.as_millis()).to_string();
            }
        }
        let words = words.iter().map(|word| as_bytes(word));
        server.admin(&words.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

fn is_client(field: &str) -> bool {
    field.len() == 36 && field.matches('-').count() == 4
}

/// The id of a permit is bytes, always with some zeros among them.
fn as_text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text,
        Ok(text) => in_hex(text.as_bytes()),
        Err(error) => in_hex(error.as_bytes()),
    }
}

fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(HEX.to_owned(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn as_bytes(word: &str) -> Result<Vec<u8>> {
    let Some(hex) = word.strip_prefix(HEX) else {
        return Ok(word.as_bytes().to_vec());
    };
    let pairs = (0..hex.len()).step_by(2).map(|at| {
        let pair = hex.get(at..at + 2).context("half a byte")?;
        Ok(u8::from_str_radix(pair, 16)?)
    });
    pairs.collect()
}
