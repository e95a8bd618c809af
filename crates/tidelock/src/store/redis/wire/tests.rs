//! A server on loopback that answers as a test says, and what else the tests of all rooms share.

pub(crate) mod replies;
pub(crate) mod values;

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::script::Script;
use crate::store::redis::wire::tests::replies::{all_slots, encoded, text};
pub(crate) use crate::store::tests::scripted::{HANG_UP, LIMIT, SILENCE, simulated, skip};
use crate::store::tests::scripted::{Protocol, Scripted};

/// To requests that the test has not named it replies as a server that allows everything, has no replicas, and has all slots of
/// its cluster.
pub(crate) type ScriptedServer = Scripted<Resp>;

/// The protocol of Redis.
pub(crate) struct Resp;

impl Protocol for Resp {
    async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
        let count = number(peer, '*').await?;
        let mut words = Vec::new();
        for _ in 0..count {
            let length = number(peer, '$').await?;
            let mut word = vec![0; length + 2];
            peer.read_exact(&mut word).await?;
            word.truncate(length);
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        Ok(words)
    }

    fn usual(port: u16, words: &[&str]) -> String {
        match words {
            ["HELLO", "3", ..] => "%1\r\n+proto\r\n:3\r\n".to_owned(),
            ["HELLO", ..] => "-ERR unknown command 'HELLO'\r\n".to_owned(),
            ["INFO", "replication"] => text("role:master\r\nconnected_slaves:0\r\n"),
            ["CLUSTER", "SLOTS"] => all_slots(port, "id"),
            [
                command @ ("SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE"),
                channel,
            ] => {
                let confirmed = text(&command.to_lowercase());
                format!(">3\r\n{confirmed}{}:1\r\n", text(channel))
            }
            _ => "+OK\r\n".to_owned(),
        }
    }
}

impl ScriptedServer {
    pub(crate) fn address(&self) -> HostAddress {
        loopback(self.port)
    }

    /// As [`answers`](Self::answers), with replies as [`encoded`] reads them.
    pub(crate) fn in_turn(&self, request: &str, replies: &[&str]) {
        let replies: Vec<String> = replies.iter().map(|reply| encoded(reply)).collect();
        let replies: Vec<&str> = replies.iter().map(String::as_str).collect();
        self.answers(request, &replies);
    }

    /// As [`in_turn`](Self::in_turn), with one reply to all of them.
    pub(crate) fn on(&self, request: &str, reply: &str) {
        self.in_turn(request, &[reply]);
    }

    /// As [`on`](Self::on), for a script that is called by its hash.
    pub(crate) fn on_script(&self, script: &Script, reply: &str) {
        self.on(&format!("EVALSHA {}", script.sha()), reply);
    }

    /// The calls of a script so far, each as `KEYS | ARGV`. An empty word is shown as `-`.
    pub(crate) fn calls(&self, script: &Script) -> Vec<String> {
        let requests = self.requests();
        let calls = requests.iter().filter_map(|words| match &words[..] {
            [how, sha, count, rest @ ..] if how == "EVALSHA" && sha == script.sha() => {
                Some(rest.split_at(count.parse().unwrap()))
            }
            _ => None,
        });
        calls
            .map(|(keys, args)| format!("{} | {}", shown(keys), shown(args)))
            .collect()
    }
}

fn shown(words: &[String]) -> String {
    let words = words.iter().map(String::as_str);
    let words = words.map(|word| if word.is_empty() { "-" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

async fn number(peer: &mut BufReader<TcpStream>, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    if peer.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = line.trim_end().strip_prefix(kind);
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub(crate) fn tcp(host: &str, port: u16, tls: bool) -> HostAddress {
    HostAddress::Tcp {
        host: host.to_owned(),
        port,
        tls,
    }
}

pub(crate) fn loopback(port: u16) -> HostAddress {
    tcp("127.0.0.1", port, false)
}

/// An address at which nobody listens.
pub(crate) async fn nowhere() -> HostAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    loopback(listener.local_addr().unwrap().port())
}
