//! The plain lock where the user may not run scripts: each script of it as a transaction that says the same.

use super::errors::Complaint;
use super::plain::Words;
use super::reply::Reply;
use super::request::Request;
use super::solo::{Next, Outcome, Transaction};
use crate::error::{Error, ErrorKind, Result};

/// The server does not let this user run scripts; it surely did not run.
pub(super) fn forbids_scripts(error: &Error) -> bool {
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    error.kind() == ErrorKind::Refused
        && ["'evalsha'", "'eval'", "'evalsha|", "'eval|"]
            .iter()
            .any(|command| detail.contains(command))
}

fn list(numbers: &[i64]) -> Reply {
    Reply::List(numbers.iter().map(|number| Reply::Int(*number)).collect())
}

fn command(words: &[&str]) -> Request {
    let (first, rest) = words.split_first().unwrap_or((&"", &[]));
    rest.iter()
        .fold(Request::new(first), |request, word| request.arg(*word))
}

fn good(outcome: Option<&Outcome>) -> Result<&Reply> {
    match outcome {
        Some(Ok(reply)) => Ok(reply),
        Some(Err(complaint)) => Err(complaint.error()),
        None => Ok(&Reply::Nil),
    }
}

/// What a look at a lock says: whose it is, and for how long.
enum Seen {
    Stranger,
    Free,
    Mine(i64),
    Others(i64, Vec<u8>),
}

/// From the answers to `GET` and `PTTL`.
fn seen(looks: &[Outcome], owner: &str) -> Result<Seen> {
    let value = match looks.first() {
        Some(Err(complaint)) if is_wrong_type(complaint) => return Ok(Seen::Stranger),
        value => good(value)?,
    };
    let left = good(looks.get(1))?.int().unwrap_or(-2);
    Ok(match value {
        Reply::Text(text) if text == owner.as_bytes() => Seen::Mine(left),
        Reply::Text(owner) => Seen::Others(left, owner.clone()),
        _ => Seen::Free,
    })
}

fn is_wrong_type(complaint: &Complaint) -> bool {
    complaint.error().kind() == ErrorKind::WrongType
}

/// What must not be shortened, and lasts as long as that at least.
fn longer(left: i64, lease: &str) -> String {
    let lease: i64 = lease.parse().unwrap_or(0);
    left.max(lease).to_string()
}

/// `plain_acquire.lua`.
pub(super) fn acquire<'a>(words: Words<'a>, lease: &'a str) -> Transaction<'a> {
    let Words {
        name,
        owner,
        tombstone,
        token,
    } = words;
    let decide = move |looks: &[Outcome]| {
        if good(looks.get(2))?.int() == Some(1) {
            return Ok(Next::Answer(list(&[2])));
        }
        Ok(match seen(looks, owner)? {
            Seen::Stranger => Next::Answer(list(&[3])),
            Seen::Others(left, owner) => {
                let others = [Reply::Int(0), Reply::Int(left), Reply::Text(owner)];
                Next::Answer(Reply::List(others.into()))
            }
            Seen::Free => {
                let set = command(&["SET", name, owner, "NX", "PX", lease]);
                match token {
                    Some(token) => Next::Write(vec![command(&["INCR", token]), set], |said| {
                        let [token, Reply::Text(_)] = said else {
                            return None;
                        };
                        Some(list(&[1, token.int()?]))
                    }),
                    None => Next::Write(vec![set], |said| {
                        matches!(said, [Reply::Text(_)]).then(|| list(&[1, 0]))
                    }),
                }
            }
            Seen::Mine(-1) => Next::Answer(mine(looks)),
            Seen::Mine(left) => {
                let longer = longer(left, lease);
                let mut writes = vec![command(&["PEXPIRE", name, &longer])];
                writes.extend(token.map(|token| command(&["GET", token])));
                // Gone meanwhile: another look tells.
                Next::Write(writes, |said| {
                    let token = said.get(1).and_then(Reply::int).unwrap_or(0);
                    (said.first() == Some(&Reply::Int(1))).then(|| list(&[1, token]))
                })
            }
        })
    };
    let mut looks = vec![
        command(&["GET", name]),
        command(&["PTTL", name]),
        command(&["EXISTS", tombstone]),
    ];
    looks.extend(token.map(|token| command(&["GET", token])));
    Transaction {
        watch: vec![name, tombstone],
        looks,
        decide: Box::new(decide),
    }
}

fn mine(looks: &[Outcome]) -> Reply {
    let token = good(looks.get(3)).ok().and_then(Reply::int).unwrap_or(0);
    list(&[1, token])
}

/// `plain_release.lua`.
pub(super) fn end<'a>(words: Words<'a>, kept: &'a str, withdraw: bool) -> Transaction<'a> {
    let Words {
        name,
        owner,
        tombstone,
        ..
    } = words;
    let decide = move |looks: &[Outcome]| {
        let mine = matches!(seen(looks, owner)?, Seen::Mine(_));
        let mut writes = Vec::new();
        if mine {
            writes.push(command(&["DEL", name]));
        }
        if withdraw {
            writes.push(command(&["SET", tombstone, "1", "PX", kept]));
        } else if !mine {
            // Changes nothing on a primary. A server that has become a replica, and has not heard of the lock, refuses it.
            writes.push(command(&["PEXPIRE", tombstone, kept]));
        }
        let answer: fn(&[Reply]) -> Option<Reply> = if mine {
            |said| said.first().cloned()
        } else {
            |_| Some(Reply::Int(0))
        };
        Ok(Next::Write(writes, answer))
    };
    Transaction {
        watch: vec![name, tombstone],
        looks: vec![command(&["GET", name]), command(&["PTTL", name])],
        decide: Box::new(decide),
    }
}

/// `plain_renew.lua`, of one lock.
pub(super) fn renew<'a>(words: Words<'a>, lease: &'a str) -> Transaction<'a> {
    let Words {
        name,
        owner,
        tombstone,
        ..
    } = words;
    let decide = move |looks: &[Outcome]| {
        Ok(match seen(looks, owner)? {
            Seen::Mine(-1) => Next::Answer(Reply::Int(1)),
            Seen::Mine(left) => {
                let longer = longer(left, lease);
                let keep = command(&["PEXPIRE", name, &longer]);
                Next::Write(vec![keep], |said| said.first().cloned())
            }
            // As above: a replica refuses it.
            _ => {
                let stands = good(looks.get(2))?.int().unwrap_or(-2);
                let nothing = command(&["PEXPIRE", tombstone, &longer(stands, lease)]);
                Next::Write(vec![nothing], |_| Some(Reply::Int(0)))
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
pub(super) fn free(name: &str) -> Transaction<'_> {
    let decide = move |looks: &[Outcome]| match good(looks.first())?.text() {
        Some("none") => Ok(Next::Answer(Reply::Int(0))),
        Some("string") => Ok(Next::Write(vec![command(&["DEL", name])], |said| {
            said.first().cloned()
        })),
        _ => Err(Complaint::parse("WRONGTYPE the key is no plain lock").error()),
    };
    Transaction {
        watch: vec![name],
        looks: vec![command(&["TYPE", name])],
        decide: Box::new(decide),
    }
}

/// `plain_inspect.lua`. Nothing is written, so the answers may be a moment apart.
pub(super) fn look<'a>(name: &'a str, token: &'a str) -> Transaction<'a> {
    let decide = move |looks: &[Outcome]| {
        let token = good(looks.get(2)).unwrap_or(&Reply::Nil);
        let (owner, left) = (good(looks.first())?, good(looks.get(1))?);
        let seen = vec![owner.clone(), left.clone(), token.clone()];
        Ok(Next::Answer(Reply::List(seen)))
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
            let error = Complaint::parse(text).error();
            assert_eq!(forbids_scripts(&error), forbidden, "{text}");
        }
    }
}
