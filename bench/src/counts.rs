//! Counts the requests that a store receives. Commands that a script runs inside the store cost no round trip and do
//! not count.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::thread::JoinHandle;

use anyhow::{Result, bail};
use testkit::servers::RedisServer;

use crate::figures::number;

/// The marker in the `MONITOR` output after which the counter stops.
const END: &str = "bench-end-of-counting";

/// How often each command was sent.
pub(crate) type Sent = BTreeMap<String, usize>;

/// Counts requests by `MONITOR` from now on. It counts only connections that mention the name at least once: other
/// clients are connected too and send keep-alives. `MONITOR` slows the server down, so a run that is counted is not
/// timed.
#[derive(Debug)]
pub(crate) struct Counter {
    counting: JoinHandle<Result<Sent>>,
}

impl Counter {
    pub(crate) fn start(server: &RedisServer, name: &str) -> Result<Self> {
        let name = name.to_owned();
        let mut stream = TcpStream::connect(server.addr())?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream);
        let mut ok = String::new();
        lines.read_line(&mut ok)?;
        anyhow::ensure!(ok.starts_with("+OK"), "MONITOR: {ok}");
        Ok(Self {
            counting: std::thread::spawn(move || count(lines, &name)),
        })
    }

    pub(crate) fn stop(self, server: &RedisServer) -> Result<Sent> {
        server.admin(&["ECHO", END])?;
        match self.counting.join() {
            Ok(sent) => sent,
            Err(_) => bail!("the thread that counted has panicked"),
        }
    }
}

fn count(lines: impl BufRead, name: &str) -> Result<Sent> {
    let mut connections: BTreeMap<String, (bool, Sent)> = BTreeMap::new();
    for line in lines.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line.contains(END) {
            return Ok(of_the_named(connections.into_values()));
        }
        if let Some((address, command)) = sent_command(&line) {
            let (named, sent) = connections.entry(address).or_default();
            *named |= line.contains(name);
            *sent.entry(command).or_default() += 1;
        }
    }
    bail!("MONITOR has ended")
}

fn of_the_named(connections: impl Iterator<Item = (bool, Sent)>) -> Sent {
    let mut all = Sent::new();
    for (_, sent) in connections.filter(|(named, _)| *named) {
        for (command, count) in sent {
            *all.entry(command).or_default() += count;
        }
    }
    all
}

/// Parses the source address and the command from `+1700000000.123456 [0 127.0.0.1:5000] "EVALSHA" "…"`. Returns `None`
/// for commands inside a script (address `lua`) and for the bench's own control connection (a Unix socket).
fn sent_command(line: &str) -> Option<(String, String)> {
    let (_, rest) = line.split_once(" [")?;
    let (source, words) = rest.split_once("] ")?;
    let (_, address) = source.split_once(' ')?;
    if address == "lua" || address.starts_with("unix:") {
        return None;
    }
    let command = words.split('"').nth(1)?;
    Some((address.to_owned(), command.to_ascii_lowercase()))
}

/// The number of requests per acquisition, in total and by command: `evalsha 3.01, subscribe 1.01`. The list omits
/// commands that occur less than once in fifty acquisitions.
pub(crate) fn for_each(sent: &Sent, acquisitions: usize) -> (f64, String) {
    let each = |count: usize| number(count) / number(acquisitions);
    let mut parts: Vec<_> = sent.iter().collect();
    parts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown: Vec<String> = parts
        .iter()
        .filter(|(_, count)| each(**count) >= 0.02)
        .map(|(name, count)| format!("{name} {:.2}", each(**count)))
        .collect();
    (each(sent.values().sum()), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_on_connections_of_the_name_count_as_sent() {
        let lines = concat!(
            "+1.0 [0 127.0.0.1:4999] \"PING\"\r\n",
            "+1.1 [0 127.0.0.1:5000] \"EVALSHA\" \"0123\" \"1\" \"hot [0 lua] b\"\r\n",
            "+1.2 [0 lua] \"hincrby\" \"x\"\r\n",
            "+1.3 [0 unix:/tmp/s] \"INFO\"\r\n",
            "+1.4 [0 127.0.0.1:5001] \"evalsha\" \"0123\" \"hot\"\r\n",
            "+1.5 [0 127.0.0.1:5001] \"SUBSCRIBE\" \"c\"\r\n",
            "+1.6 [0 unix:/tmp/s] \"ECHO\" \"bench-end-of-counting\"\r\n",
        );
        let sent = count(lines.as_bytes(), "hot").unwrap();
        assert_eq!(
            sent,
            Sent::from([("evalsha".to_owned(), 2), ("subscribe".to_owned(), 1)])
        );
        let (all, parts) = for_each(&sent, 2);
        assert!((all - 1.5).abs() < 1e-9);
        assert_eq!(parts, "evalsha 1.00, subscribe 0.50");
    }
}
