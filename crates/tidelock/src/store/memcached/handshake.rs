//! The handshake: login, then checks that the server's version and settings support locks.

use crate::error::{Error, ErrorKind, Result};
use crate::store::memcached::address::Address;
use crate::store::memcached::errors::{server_error, unsent};
use crate::store::memcached::live_connection::LiveConnection;
use crate::store::memcached::wire::{Command, Reply, Shape};

/// Lower bound of the server's version. 1.6.10 to 1.6.12 refuse every delete with a CAS number, so no lock could be
/// released. Older ones read `ms` in another way, and would run the value of a lock, with its name, as commands.
const OLDEST_VERSION: (u32, u32, u32) = (1, 6, 13);

/// Performs the handshake on a new connection, with a login if one is given.
pub(crate) async fn exchange(
    wire: &mut LiveConnection,
    address: &Address,
    login: Option<(String, String)>,
) -> Result<()> {
    let broken = |why: String| unsent(format_args!("{address}: {why}"));
    if let Some((user, password)) = login {
        // A login is a `set` whose key and flags are ignored. A server without authentication stores it as an item;
        // the time to live of -1 makes that item expire at once. Otherwise the password would stay in the cache.
        let words = format!("{user} {password}");
        let login = format!("set tidelock 0 -1 {}\r\n{words}\r\n", words.len());
        wire.write(login.as_bytes()).await.map_err(broken)?;
        match wire.answer(Shape::One).await.map_err(broken)? {
            Reply::Text(text) if text == "STORED" => {}
            other => return Err(refused(address, &other)),
        }
    }
    let looks = Command::line("version");
    wire.write(&looks.bytes).await.map_err(broken)?;
    match wire.answer(Shape::One).await.map_err(broken)? {
        Reply::Text(text) if is_new_enough(&text) => {}
        Reply::Text(text) => {
            return Err(Error::new(ErrorKind::Unsupported).because(format!(
                "{address}: {text:?} is not memcached 1.6.13 or later; locks need its commands"
            )));
        }
        other => return Err(refused(address, &other)),
    }
    // Without compare-and-swap, a renewal or release could hit the lock of a later holder.
    let settings = Command::lines("stats settings", |line| line.contains("cas_enabled"));
    wire.write(&settings.bytes).await.map_err(broken)?;
    match wire.answer(settings.shape).await.map_err(broken)? {
        Reply::Lines(lines) if lines.iter().any(|line| line.ends_with(" no")) => {
            Err(Error::new(ErrorKind::Unsupported).because(format!(
                "{address}: this memcached was started with -C, which disables compare-and-swap; start it without -C"
            )))
        }
        _ => Ok(()),
    }
}

fn refused(address: &Address, reply: &Reply) -> Error {
    match reply {
        Reply::Server(text) => {
            let error = server_error(text);
            let kind = match error.kind() {
                // No command was sent yet, so the outcome is certain.
                ErrorKind::OutcomeUnknown => ErrorKind::Refused,
                kind => kind,
            };
            Error::new(kind).because(format!("{address}: {}", error.detail().unwrap_or_default()))
        }
        other => unsent(format_args!(
            "{address}: unexpected reply to the handshake: {other:?}"
        )),
    }
}

pub(crate) fn is_new_enough(version: &str) -> bool {
    let Some(version) = version.strip_prefix("VERSION ") else {
        return false;
    };
    // The last part may go on with a word, as in `1.6.18-rc1`.
    let number = |part: &str| {
        let digits = part.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    };
    let mut parts = version.split('.').map_while(number);
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) >= OLDEST_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memcached_1_6_13_and_later_is_accepted() {
        for (text, good) in [
            ("VERSION 1.6.18", true),
            ("VERSION 1.6.13", true),
            ("VERSION 1.6.21-5-gabc", true),
            ("VERSION 1.10.0-rc1", true),
            ("VERSION 2", true),
            ("VERSION 1.6.12", false),
            ("VERSION 1.6.9", false),
            ("VERSION 1.6", false),
            ("VERSION 1.5.22", false),
            ("VERSION ", false),
            ("+PONG", false),
        ] {
            assert_eq!(is_new_enough(text), good, "{text}");
        }
    }
}
