//! The plain lock for users that are not allowed to run scripts: each script as an equivalent transaction.

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::layouts::plain::PlainLockNames;
use crate::store::redis::topology::transaction::{CommandResult, Transaction, TransactionStep};
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;

/// Whether the error says that the user is not allowed to run scripts. The script has certainly not run then.
pub(crate) fn forbids_scripts(error: &Error) -> bool {
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    error.kind() == ErrorKind::Refused
        && ["'evalsha'", "'eval'", "'evalsha|", "'eval|"]
            .iter()
            .any(|command| detail.contains(command))
}

fn list(numbers: &[i64]) -> Reply {
    Reply::List(numbers.iter().map(|number| Reply::Int(*number)).collect())
}

fn command(args: &[&str]) -> Request {
    let (first, rest) = args.split_first().unwrap_or((&"", &[]));
    rest.iter()
        .fold(Request::new(first), |request, word| request.arg(*word))
}

fn good(outcome: Option<&CommandResult>) -> Result<&Reply> {
    match outcome {
        Some(Ok(reply)) => Ok(reply),
        Some(Err(server_error)) => Err(server_error.error()),
        None => Ok(&Reply::Nil),
    }
}

/// The state of a lock: its owner, and the milliseconds left.
enum PlainLockState {
    Stranger,
    Free,
    Mine(i64),
    Others(i64, Vec<u8>),
}

/// Parses the replies to `GET` and `PTTL`.
fn seen(looks: &[CommandResult], owner: &str) -> Result<PlainLockState> {
    let value = match looks.first() {
        Some(Err(server_error)) if is_wrong_type(server_error) => {
            return Ok(PlainLockState::Stranger);
        }
        value => good(value)?,
    };
    let left = good(looks.get(1))?.int().unwrap_or(-2);
    Ok(match value {
        Reply::Text(text) if text == owner.as_bytes() => PlainLockState::Mine(left),
        Reply::Text(owner) => PlainLockState::Others(left, owner.clone()),
        _ => PlainLockState::Free,
    })
}

fn is_wrong_type(server_error: &ServerError) -> bool {
    server_error.error().kind() == ErrorKind::WrongType
}

/// The longer of the remaining time and the lease: a repeated request must not shorten a lease.
fn longer(left: i64, lease: &str) -> String {
    let lease: i64 = lease.parse().unwrap_or(0);
    left.max(lease).to_string()
}

/// `plain_acquire.lua`.
pub(crate) fn acquire<'a>(args: PlainLockNames<'a>, lease: &'a str) -> Transaction<'a> {
    let PlainLockNames {
        name,
        owner,
        tombstone,
        token,
    } = args;
    let decide = move |looks: &[CommandResult]| {
        if good(looks.get(2))?.int() == Some(1) {
            return Ok(TransactionStep::Answer(list(&[2])));
        }
        Ok(match seen(looks, owner)? {
            PlainLockState::Stranger => TransactionStep::Answer(list(&[3])),
            PlainLockState::Others(left, owner) => {
                let others = [Reply::Int(0), Reply::Int(left), Reply::Text(owner)];
                TransactionStep::Answer(Reply::List(others.into()))
            }
            PlainLockState::Free => {
                // We check the counter first. A transaction continues after a command that fails, so a failed INCR
                // would still let the SET take the lock.
                if let Some(refusal) = looks.get(3).and_then(no_token) {
                    return Ok(TransactionStep::Answer(refusal));
                }
                let set = command(&["SET", name, owner, "NX", "PX", lease]);
                match token {
                    Some(token) => {
                        TransactionStep::Write(vec![command(&["INCR", token]), set], |said| {
                            let [token, Reply::Text(_)] = said else {
                                return None;
                            };
                            Some(list(&[1, token.int()?]))
                        })
                    }
                    None => TransactionStep::Write(vec![set], |said| {
                        matches!(said, [Reply::Text(_)]).then(|| list(&[1, 0]))
                    }),
                }
            }
            PlainLockState::Mine(left) => {
                let longer = longer(left, lease);
                let mut writes = Vec::new();
                if left != -1 {
                    writes.push(command(&["PEXPIRE", name, &longer]));
                }
                writes.extend(token.map(|token| again(token, looks.get(3))));
                if writes.is_empty() {
                    return Ok(TransactionStep::Answer(list(&[1, 0])));
                }
                // If the key has expired meanwhile, a retry finds out.
                let answer: fn(&[Reply]) -> Option<Reply> = match token {
                    Some(_) => |said| {
                        let (token, kept) = said.split_last()?;
                        let granted = || Reply::List(vec![Reply::Int(1), token.clone()]);
                        all_done(kept).then(granted)
                    },
                    None => |said| all_done(said).then(|| list(&[1, 0])),
                };
                TransactionStep::Write(writes, answer)
            }
        })
    };
    let mut looks = vec![
        command(&["GET", name]),
        command(&["PTTL", name]),
        command(&["EXISTS", tombstone]),
    ];
    looks.extend(token.map(|token| command(&["GET", token])));
    let mut watch = vec![name, tombstone];
    watch.extend(token);
    Transaction {
        watch,
        looks,
        decide: Box::new(decide),
    }
}

/// The reply of `token.lua` if the counter has no next token.
fn no_token(last: &CommandResult) -> Option<Reply> {
    let last = match last {
        Ok(Reply::Text(last)) => last,
        Err(server_error) if is_wrong_type(server_error) => &Vec::new(),
        // No token was issued yet. Any other error shows up in the transaction.
        _ => return None,
    };
    let text = std::str::from_utf8(last).unwrap_or_default();
    // The server accepts a number in its canonical form only.
    let is_number = |last: &i64| last.to_string() == text;
    let number = text.parse().ok().filter(is_number);
    let follows = number.is_some_and(|last| (0..i64::MAX).contains(&last));
    let answer = || Reply::List(vec![Reply::Int(4), Reply::Text(last.clone())]);
    (!follows).then(answer)
}

/// The token of an owner that already holds the lock.
fn again(token: &str, last: Option<&CommandResult>) -> Request {
    match last {
        Some(Ok(Reply::Nil)) => command(&["INCR", token]),
        _ => command(&["GET", token]),
    }
}

fn all_done(said: &[Reply]) -> bool {
    said.iter().all(|answer| *answer == Reply::Int(1))
}

/// `plain_release.lua`.
pub(crate) fn end<'a>(args: PlainLockNames<'a>, kept: &'a str, withdraw: bool) -> Transaction<'a> {
    let PlainLockNames {
        name,
        owner,
        tombstone,
        ..
    } = args;
    let decide = move |looks: &[CommandResult]| {
        let mine = matches!(seen(looks, owner)?, PlainLockState::Mine(_));
        let mut writes = Vec::new();
        if mine {
            writes.push(command(&["DEL", name]));
        }
        if withdraw {
            writes.push(command(&["SET", tombstone, "1", "PX", kept]));
        } else if !mine {
            // This has no effect on a primary. A server that has become a replica, and may not have the lock yet,
            // refuses it; otherwise it would wrongly report that the lock is not held.
            writes.push(command(&["PEXPIRE", tombstone, kept]));
        }
        let answer: fn(&[Reply]) -> Option<Reply> = if mine {
            |said| said.first().cloned()
        } else {
            |_| Some(Reply::Int(0))
        };
        Ok(TransactionStep::Write(writes, answer))
    };
    Transaction {
        watch: vec![name, tombstone],
        looks: vec![command(&["GET", name]), command(&["PTTL", name])],
        decide: Box::new(decide),
    }
}

/// `plain_renew.lua`, for one lock.
pub(crate) fn renew<'a>(args: PlainLockNames<'a>, lease: &'a str) -> Transaction<'a> {
    let PlainLockNames {
        name,
        owner,
        tombstone,
        ..
    } = args;
    let decide = move |looks: &[CommandResult]| {
        Ok(match seen(looks, owner)? {
            PlainLockState::Mine(-1) => TransactionStep::Answer(Reply::Int(1)),
            PlainLockState::Mine(left) => {
                let longer = longer(left, lease);
                let renewal = command(&["PEXPIRE", name, &longer]);
                TransactionStep::Write(vec![renewal], |said| said.first().cloned())
            }
            // As above: a replica refuses this write.
            _ => {
                let stands = good(looks.get(2))?.int().unwrap_or(-2);
                let nothing = command(&["PEXPIRE", tombstone, &longer(stands, lease)]);
                TransactionStep::Write(vec![nothing], |_| Some(Reply::Int(0)))
            }
        })
    };
    Transaction {
        watch: vec![name],
        looks: vec![
            command(&["GET", name]),
            command(&["PTTL", name]),
            command(&["PTTL", tombstone]),
        ],
        decide: Box::new(decide),
    }
}

/// `plain_force_release.lua`.
pub(crate) fn free(name: &str) -> Transaction<'_> {
    let decide = move |looks: &[CommandResult]| match good(looks.first())?.text() {
        Some("none") => Ok(TransactionStep::Answer(Reply::Int(0))),
        Some("string") => Ok(TransactionStep::Write(
            vec![command(&["DEL", name])],
            |said| said.first().cloned(),
        )),
        _ => Err(ServerError::parse("WRONGTYPE the key is no plain lock").error()),
    };
    Transaction {
        watch: vec![name],
        looks: vec![command(&["TYPE", name])],
        decide: Box::new(decide),
    }
}

/// `plain_inspect.lua`. The reads are not atomic: nothing depends on that.
pub(crate) fn look<'a>(name: &'a str, token: &'a str) -> Transaction<'a> {
    let decide = move |looks: &[CommandResult]| {
        let token = good(looks.get(2)).unwrap_or(&Reply::Nil);
        let (owner, left) = (good(looks.first())?, good(looks.get(1))?);
        let seen = vec![owner.clone(), left.clone(), token.clone()];
        Ok(TransactionStep::Answer(Reply::List(seen)))
    };
    Transaction {
        watch: vec![name],
        looks: vec![
            command(&["GET", name]),
            command(&["PTTL", name]),
            command(&["GET", token]),
        ],
        decide: Box::new(decide),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_moved_only_where_a_token_follows() {
        let looked = |text: &str| Ok(Reply::Text(text.into()));
        for good in ["0", "7", "9007199254740993", "9223372036854775806"] {
            assert_eq!(no_token(&looked(good)), None, "{good}");
        }
        assert_eq!(no_token(&Ok(Reply::Nil)), None);
        for bad in [
            "9223372036854775807",
            "9223372036854775808",
            "-1",
            "abc",
            "",
            "007",
            "+7",
            " 7",
            "1.5",
        ] {
            let answer = Reply::List(vec![Reply::Int(4), Reply::Text(bad.into())]);
            assert_eq!(no_token(&looked(bad)), Some(answer), "{bad}");
        }
        let wrong = ServerError::parse("WRONGTYPE Operation against a key");
        assert!(no_token(&Err(wrong)).is_some());
    }

    #[test]
    fn only_a_refusal_of_scripts_themselves_makes_it_go_without() {
        for (text, forbidden) in [
            (
                "NOPERM this user has no permissions to run the 'evalsha' command",
                true,
            ),
            (
                "NOPERM User app has no permissions to run the 'eval' command",
                true,
            ),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: 'x'",
                true,
            ),
            (
                "NOPERM this user has no permissions to access one of the keys",
                false,
            ),
            ("WRONGTYPE the 'eval' key", false),
        ] {
            let error = ServerError::parse(text).error();
            assert_eq!(forbids_scripts(&error), forbidden, "{text}");
        }
    }
}
