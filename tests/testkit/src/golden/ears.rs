//! Two connections that only listen: `MONITOR` and `PSUBSCRIBE *`.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redis::{Client, Connection, Value, cmd};

use super::Message;
use crate::servers::RedisServer;

/// The limit for any event, generous.
const PATIENCE: Duration = Duration::from_secs(20);

/// Commands that a driver sends on its own, at unpredictable times.
const CHATTER: [&str; 5] = ["PING", "HELLO", "CLIENT", "SCRIPT", "COMMAND"];

/// The observer publishes on this channel to mark a position in both streams.
pub(super) const MARK: &str = "observer:mark";

/// A connection that listens.
pub(super) struct Ear(Connection);

impl Ear {
    fn open(server: &RedisServer, command: &[&str]) -> Result<Self> {
        let mut connection = Client::open(server.url())?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut words = cmd(command[0]);
        words.arg(&command[1..]);
        connection.send_packed_command(&words.get_packed_command())?;
        connection.recv_response()?;
        Ok(Self(connection))
    }

    pub(super) fn monitor(server: &RedisServer) -> Result<Self> {
        Self::open(server, &["MONITOR"])
    }

    pub(super) fn messages(server: &RedisServer) -> Result<Self> {
        Self::open(server, &["PSUBSCRIBE", "*"])
    }

    /// The next command that a client sent, split into words, and its time by the server's clock since 1970. We skip
    /// commands from scripts, chatter, and the tests' own operator commands through the Unix socket, except marks.
    pub(super) fn command(&mut self) -> Result<(Duration, Vec<String>)> {
        loop {
            let Value::SimpleString(line) =
                self.0.recv_response().context("MONITOR fell silent")?
            else {
                bail!("MONITOR gave no line")
            };
            let (head, words) = line.split_once("] ").context("a line of another shape")?;
            let words = words_of(words)?;
            let chatter = words
                .first()
                .is_none_or(|name| CHATTER.contains(&name.to_uppercase().as_str()));
            let ours = head.contains(" unix:") && words.get(1).is_none_or(|word| word != MARK);
            if !(chatter || ours || head.ends_with(" lua")) {
                let at = head.split(' ').next().unwrap_or_default();
                return Ok((Duration::try_from_secs_f64(at.parse()?)?, words));
            }
        }
    }

    /// The next message.
    pub(super) fn message(&mut self) -> Result<Message> {
        let value = self.0.recv_response().context("no message came")?;
        let (_kind, _pattern, channel, payload): (String, String, String, String) =
            redis::from_redis_value(value)?;
        Ok(Message { channel, payload })
    }
}

/// Splits `"a" "b\x00"` into words.
fn words_of(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.bytes();
    while let Some(quote) = letters.find(|letter| *letter != b' ') {
        anyhow::ensure!(quote == b'"', "a word without quotes: {line}");
        let mut word = Vec::new();
        loop {
            match letters.next().context("a word without an end")? {
                b'"' => break,
                b'\\' => word.push(escaped(&mut letters)?),
                letter => word.push(letter),
            }
        }
        // Some arguments of a driver are not text.
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words)
}

fn escaped(letters: &mut impl Iterator<Item = u8>) -> Result<u8> {
    Ok(match letters.next().context("a lone backslash")? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let digits: Vec<u8> = letters.take(2).collect();
            u8::from_str_radix(std::str::from_utf8(&digits)?, 16)?
        }
        letter => letter,
    })
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn words_are_taken_apart_and_unescaped() {
        let words = words_of(r#""a b" "" "\"\\" "\xc3\xbc""#);
        assert!(words.is_ok_and(|words| words == ["a b", "", "\"\\", "ü"]));
    }
}
