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
    use crate::Credentials;
    use crate::store::memcached::tests::{HANG_UP, ScriptedServer};

    /// Connects with this login, to a server that replies so to this request, and sends a request. An error: its kind.
    async fn enters(login: &str, request: &str, reply: &str) -> Result<(), ErrorKind> {
        let server = ScriptedServer::start().await;
        server.answers(request, &[reply]);
        let connection = server.connection_as(login, None);
        let asked = connection.ask_one(Command::get("a"), None, connection.deadline());
        let entered = asked.await.map(drop);
        let is_heard = !server.heard("mg").is_empty();
        assert_eq!(is_heard, entered.is_ok(), "{request}: {reply}");
        entered.map_err(|error| {
            let address = format!("127.0.0.1:{}: ", server.port);
            let told = error.detail().unwrap_or_default();
            assert!(told.contains(&address), "{told}");
            error.kind()
        })
    }

    #[tokio::test]
    async fn a_server_on_which_locks_do_not_work_gets_no_request() {
        use ErrorKind::{Refused, Unavailable, Unsupported};

        for (request, reply, entered) in [
            ("version", "VERSION 1.6.13\r\n", Ok(())),
            ("version", "VERSION 1.6.12\r\n", Err(Unsupported)),
            ("version", "EN\r\n", Err(Unavailable)),
            ("version", "VA x\r\n", Err(Unavailable)),
            ("version", HANG_UP, Err(Unavailable)),
            (
                "version",
                "ERROR Too many open connections\r\n",
                Err(Unavailable),
            ),
            ("version", "CLIENT_ERROR unauthenticated\r\n", Err(Refused)),
            // It was no command of a lock, so nothing is in doubt.
            ("version", "CLIENT_ERROR odd\r\n", Err(Refused)),
            ("stats", "STAT cas_enabled yes\r\nEND\r\n", Ok(())),
            ("stats", "STAT cas_enabled no\r\nEND\r\n", Err(Unsupported)),
            (
                "stats",
                "STAT cas_enabled yes\r\nSTAT flush no\r\nEND\r\n",
                Ok(()),
            ),
            ("stats", HANG_UP, Err(Unavailable)),
        ] {
            assert_eq!(enters("", request, reply).await, entered, "{reply:?}");
        }
    }

    #[tokio::test]
    async fn a_login_that_is_not_accepted_is_an_error() {
        use ErrorKind::{Refused, Unavailable, Unsupported};

        for (reply, entered) in [
            ("STORED\r\n", Ok(())),
            ("CLIENT_ERROR authentication failure\r\n", Err(Refused)),
            ("ERROR\r\n", Err(Unsupported)),
            ("NOT_STORED\r\n", Err(Unavailable)),
            (HANG_UP, Err(Unavailable)),
        ] {
            let outcome = enters("me:secret@", "set", reply).await;
            assert_eq!(outcome, entered, "{reply:?}");
        }
    }

    /// A server without logins stores it as an item, which expires at once.
    #[tokio::test]
    async fn the_login_of_the_credentials_takes_the_place_of_that_of_the_url() {
        let with_user = Credentials::new("you", "hush");
        let alone = Credentials::password("hush");
        for (login, given, sent) in [
            ("", None, None),
            ("me:secret@", None, Some("me secret")),
            ("me:secret@", Some(&with_user), Some("you hush")),
            ("", Some(&with_user), Some("you hush")),
            ("me:secret@", Some(&alone), Some("me hush")),
        ] {
            let server = ScriptedServer::start().await;
            let connection = server.connection_as(login, given.cloned());
            let asked = connection.ask_one(Command::get("a"), None, connection.deadline());
            asked.await.unwrap();
            let sent = sent.map(|words| format!("set tidelock 0 -1 {} {words}", words.len()));
            let sent: Vec<String> = sent.into_iter().collect();
            assert_eq!(server.heard("set"), sent, "{login}, {}", given.is_some());
        }
    }

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
