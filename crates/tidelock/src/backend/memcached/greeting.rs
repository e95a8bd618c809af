//! What is said before the first command, and whether the server can keep locks at all.

use super::errors::{complaint, unsent};
use super::place::Place;
use super::stream::Wire;
use super::wire::{Command, Reply, Shape};
use crate::error::{Error, ErrorKind, Result};

/// The oldest server with the commands that locks need.
const OLDEST: (u32, u32) = (1, 6);

/// As that user, if the server is to know one.
pub(super) async fn exchange(
    wire: &mut Wire,
    place: &Place,
    login: Option<(String, String)>,
) -> Result<()> {
    let broken = |why: String| unsent(format_args!("{place}: {why}"));
    if let Some((user, password)) = login {
        // The key and the flags mean nothing. A server that asks for no login takes it for an item: that is to be over at once.
        let words = format!("{user} {password}");
        let login = format!("set tidelock 0 -1 {}\r\n{words}\r\n", words.len());
        wire.write(login.as_bytes()).await.map_err(broken)?;
        match wire.answer(Shape::One).await.map_err(broken)? {
            Reply::Text(text) if text == "STORED" => {}
            other => return Err(refused(place, &other)),
        }
    }
    let looks = Command::line("version");
    wire.write(&looks.bytes).await.map_err(broken)?;
    match wire.answer(Shape::One).await.map_err(broken)? {
        Reply::Text(text) if is_new_enough(&text) => {}
        Reply::Text(text) => {
            return Err(Error::new(ErrorKind::Unsupported).because(format!(
                "{place}: {text:?} is no memcached of version 1.6 or later"
            )));
        }
        other => return Err(refused(place, &other)),
    }
    let settings = Command::lines("stats settings", |line| line.contains("cas_enabled"));
    wire.write(&settings.bytes).await.map_err(broken)?;
    match wire.answer(settings.shape).await.map_err(broken)? {
        Reply::Lines(lines) if lines.iter().any(|line| line.ends_with(" no")) => {
            Err(Error::new(ErrorKind::Unsupported).because(format!(
                "{place}: this memcached was started with -C, so nothing can be compared before it is changed; start it without"
            )))
        }
        _ => Ok(()),
    }
}

fn refused(place: &Place, reply: &Reply) -> Error {
    match reply {
        Reply::Complaint(text) => {
            let error = complaint(text);
            let kind = match error.kind() {
                // Nothing was asked yet.
                ErrorKind::OutcomeUnknown => ErrorKind::Refused,
                kind => kind,
            };
            Error::new(kind).because(format!("{place}: {}", error.detail().unwrap_or_default()))
        }
        other => unsent(format_args!("{place}: it greets with {other:?}")),
    }
}

pub(super) fn is_new_enough(version: &str) -> bool {
    let Some(version) = version.strip_prefix("VERSION ") else {
        return false;
    };
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_and_strangers_are_told_apart() {
        for (text, good) in [
            ("VERSION 1.6.18", true),
            ("VERSION 1.10.0-rc1", true),
            ("VERSION 1.5.22", false),
            ("+PONG", false),
        ] {
            assert_eq!(is_new_enough(text), good, "{text}");
        }
    }
}
