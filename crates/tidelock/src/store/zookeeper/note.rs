//! The content of a node: which client created it. For operators, and for `inspect`.

use std::time::SystemTime;

use crate::snapshot::{ClientInfo, Holder, since_epoch};
use crate::store::zookeeper::keys;

/// One line each: the owner and, if the client has announced them, its host, process id, program, start and user.
pub(crate) fn write(owner: &str, info: Option<&ClientInfo>) -> Vec<u8> {
    let mut text = owner.to_owned();
    if let Some(info) = info {
        let since = info.since.duration_since(SystemTime::UNIX_EPOCH);
        let since = since.unwrap_or_default().as_millis().to_string();
        let pid = info.pid.to_string();
        let parts = [&info.host, &pid, &info.program, &since];
        for part in parts.into_iter().chain(&info.user) {
            text.push('\n');
            text.extend(part.chars().filter(|c| !c.is_control()));
        }
    }
    text.into_bytes()
}

/// Parses the content of a node. Other clients write other data (Curator writes the host's address); then we show the
/// node's name as the owner.
pub(crate) fn read(node: &str, data: &[u8]) -> Holder {
    let text = std::str::from_utf8(data).unwrap_or_default();
    let mut lines = text.lines();
    let owner = lines.next().filter(|line| is_owner(line));
    let mut holder = Holder::new(owner.unwrap_or(node), 1);
    holder.mode = keys::mode(node);
    if owner.is_some() {
        holder.client = client(lines);
    }
    holder
}

fn is_owner(line: &str) -> bool {
    let parts = line.split_once(':');
    parts.is_some_and(|(client, number)| client.len() == 36 && number.parse::<u64>().is_ok())
}

fn client<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<ClientInfo> {
    let (host, pid) = (lines.next()?, lines.next()?.parse().ok()?);
    let program = lines.next().unwrap_or_default();
    let since = lines.next().and_then(|since| since.parse().ok());
    let since = since_epoch(since.unwrap_or(0));
    // An earlier version wrote no user.
    Some(ClientInfo::new(host, pid, program, since).run_by(lines.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_value_is_read_back() {
        let owner = format!("{}:7", uuid::Uuid::new_v4());
        let since = since_epoch(1_234_567);
        for (given, seen) in [(None, None), (Some("dep\nloy"), Some("deploy"))] {
            let info = ClientInfo::new("web\n1", 42, "shop", since).run_by(given);
            let holder = read("n", &write(&owner, Some(&info)));
            assert_eq!(holder.owner, owner);
            let expected = ClientInfo::new("web1", 42, "shop", since).run_by(seen);
            assert_eq!(holder.client, Some(expected));
        }
        assert_eq!(read("n", &write(&owner, None)).client, None);
        for foreign in [b"10.0.0.7".as_slice(), b"", b"\xff\xfe", b"x:1"] {
            assert_eq!(
                read("_c_x-lock-0000000001", foreign).owner,
                "_c_x-lock-0000000001"
            );
        }
    }
}
