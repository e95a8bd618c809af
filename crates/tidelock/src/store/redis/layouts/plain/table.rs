//! Compare and change: a table says what to read, and for each case what to write and what to reply. One function
//! executes every table, as a transaction; another several tables in one.
//!
//! Commands, tests and replies are words with a blank between them:
//!
//! - In a command, `$name`, `$owner`, `$tombstone`, `$counter`, `$millis` and `$newest` stand for [`PlainLockWords`], and `$longer1`
//!   for the longer of `$millis` and what read 1 says is left: a repeated request must not shorten a lease. A command
//!   with `$counter` is left out if the caller requests no token. `-> 1` is the reply that a write must have; otherwise
//!   a key has changed since it was read, and the transaction is retried.
//! - A test `0=x` says that read 0 replied `x`. `nil` is null, `WRONGTYPE` that error, `spent` the value of a counter
//!   that has no next token, and `below` the value of one below `$newest`. `$owner` is an owner that is [`shown`] so.
//!   The first case whose tests all hold applies.
//! - In a reply, `r0` is the reply to read 0, `w0` that to write 0, and `token` that to the write with `$counter`, or 0.
//!   Brackets make a list.
//! - A read that fails ends the transaction, unless the key is of another type. With `?` its error counts only where the
//!   reply is used, and `r0?` is null then.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::error::{ErrorKind, Result};
use crate::store::redis::topology::transaction::{AnswerToWrites, Transaction, TransactionStep};
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::reply::{CommandResult, Reply};
use crate::store::redis::wire::request::Request;

pub(crate) struct Table {
    /// The keys to watch.
    pub(crate) watch: &'static str,
    pub(crate) reads: &'static [&'static str],
    /// Tests, writes and the reply.
    pub(crate) cases: &'static [(&'static str, &'static [&'static str], &'static str)],
}

/// The keys and values of one transaction. A table does not name those that are empty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlainLockWords<'a> {
    pub(crate) name: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) tombstone: &'a str,
    /// The token counter. `None`: the caller requests no token.
    pub(crate) counter: Option<&'a str>,
    /// The lease, or how long a tombstone stays.
    pub(crate) millis: &'a str,
    /// What the counter is raised to.
    pub(crate) newest: &'a str,
}

/// A table, filled in for one lock. It owns its words, because its transaction is a task.
pub(crate) struct TableRun {
    table: &'static Table,
    name: String,
    owner: String,
    tombstone: String,
    counter: Option<String>,
    millis: String,
    newest: String,
}

impl TableRun {
    pub(crate) fn new(table: &'static Table, words: PlainLockWords<'_>) -> Self {
        Self {
            table,
            name: words.name.to_owned(),
            owner: words.owner.to_owned(),
            tombstone: words.tombstone.to_owned(),
            counter: words.counter.map(str::to_owned),
            millis: words.millis.to_owned(),
            newest: words.newest.to_owned(),
        }
    }
}

/// Tables for several locks in one transaction. The reply is the list of their replies. All keys are in one slot.
pub(crate) struct TableRuns(pub(crate) Vec<TableRun>);

impl Transaction for TableRuns {
    fn watch(&self) -> Request {
        let watch = Request::new("WATCH");
        self.0.iter().fold(watch, |watch, run| run.watched(watch))
    }

    fn reads(&self) -> Vec<Request> {
        self.0.iter().flat_map(TableRun::reads).collect()
    }

    fn may_split(&self) -> bool {
        self.0.len() > 1
    }

    fn decide(&self, seen: &[CommandResult]) -> Result<TransactionStep> {
        let (mut writes, mut answers, mut rest) = (Vec::new(), Vec::new(), seen);
        for run in &self.0 {
            let own;
            (own, rest) = rest.split_at(run.reads().len().min(rest.len()));
            let (mut requests, answer) = match run.decide(own)? {
                TransactionStep::Answer(reply) => {
                    let answer: AnswerToWrites = Box::new(move |_| Ok(Some(reply)));
                    (Vec::new(), answer)
                }
                TransactionStep::Write(requests, answer) => (requests, answer),
            };
            answers.push((requests.len(), answer));
            writes.append(&mut requests);
        }
        let answer = move |written: &[Reply]| {
            let (mut each, mut rest) = (Vec::new(), written);
            for (count, answer) in answers {
                let own;
                (own, rest) = rest.split_at(count.min(rest.len()));
                let Some(reply) = answer(own)? else {
                    return Ok(None);
                };
                each.push(reply);
            }
            Ok(Some(Reply::List(each)))
        };
        Ok(if writes.is_empty() {
            TransactionStep::Answer(answer(&[])?.unwrap_or(Reply::Nil))
        } else {
            TransactionStep::Write(writes, Box::new(answer))
        })
    }
}

impl Transaction for TableRun {
    fn watch(&self) -> Request {
        self.watched(Request::new("WATCH"))
    }

    fn reads(&self) -> Vec<Request> {
        let reads = self.table.reads.iter();
        let reads = reads.map(|read| self.command(read.trim_end_matches(" ?"), &[]));
        reads.filter_map(|read| read.ok()?).collect()
    }

    fn decide(&self, seen: &[CommandResult]) -> Result<TransactionStep> {
        for (reply, read) in seen.iter().zip(self.table.reads) {
            match reply {
                Err(server_error) if !read.ends_with('?') && !is_wrong_type(server_error) => {
                    return Err(server_error.error());
                }
                _ => {}
            }
        }
        for (tests, writes, reply) in self.table.cases {
            let mut tests = tests.split_terminator(' ');
            if tests.all(|test| self.holds(test, seen)) {
                return self.apply(writes, reply, seen);
            }
        }
        Err(ServerError::parse("WRONGTYPE the key is no plain lock").error())
    }
}

impl TableRun {
    /// Adds the keys to watch.
    fn watched(&self, watch: Request) -> Request {
        let keys = self.table.watch.split(' ');
        let keys = keys.filter_map(|key| self.word(key, &[]).ok()?);
        keys.fold(watch, |watch, key| watch.arg(&*key))
    }

    /// `None`: the caller requests no token.
    fn word<'w>(&'w self, word: &'w str, seen: &[CommandResult]) -> Result<Option<Cow<'w, str>>> {
        Ok(Some(Cow::Borrowed(match word {
            "$name" => self.name.as_str(),
            "$owner" => self.owner.as_str(),
            "$tombstone" => self.tombstone.as_str(),
            "$millis" => self.millis.as_str(),
            "$newest" => self.newest.as_str(),
            "$counter" => return Ok(self.counter.as_deref().map(Cow::Borrowed)),
            _ => match word.strip_prefix("$longer") {
                Some(read) => {
                    let left = replied(seen, read)?.int().unwrap_or(-2);
                    let longer = left.max(self.millis.parse().unwrap_or(0));
                    return Ok(Some(Cow::Owned(longer.to_string())));
                }
                None => word,
            },
        })))
    }

    fn command(&self, text: &str, seen: &[CommandResult]) -> Result<Option<Request>> {
        let words = text.split(' ').map(|word| self.word(word, seen));
        let words: Option<Vec<_>> = words.collect::<Result<_>>()?;
        let command = words.as_deref().and_then(<[_]>::split_first);
        Ok(command.map(|(command, args)| {
            let args = args.iter().map(|word| &**word);
            args.fold(Request::new(command), Request::arg)
        }))
    }

    fn holds(&self, test: &str, seen: &[CommandResult]) -> bool {
        let Some((read, expected)) = test.split_once('=') else {
            return false;
        };
        match (expected, at(seen, read)) {
            ("spent", Some(last)) => is_spent(last),
            ("below", Some(Ok(reply))) => {
                let count = |text: &str| text.parse::<u64>().unwrap_or_default();
                reply.text().map_or(0, count) < count(self.newest.as_str())
            }
            ("WRONGTYPE", Some(Err(server_error))) => is_wrong_type(server_error),
            ("nil", Some(Ok(reply))) => *reply == Reply::Nil,
            ("$owner", Some(Ok(Reply::Text(owner)))) => shown(owner) == self.owner,
            ("$newest", Some(Ok(reply))) => is_word(reply, &self.newest),
            (word, Some(Ok(reply))) => is_word(reply, word),
            _ => false,
        }
    }

    fn apply(
        &self,
        writes: &[&'static str],
        reply: &'static str,
        seen: &[CommandResult],
    ) -> Result<TransactionStep> {
        let (mut requests, mut musts, mut token) = (Vec::new(), Vec::new(), None);
        for write in writes {
            let (command, must) = write.split_once(" -> ").unwrap_or((write, ""));
            if let Some(request) = self.command(command, seen)? {
                if command.contains("$counter") {
                    token = Some(requests.len());
                }
                requests.push(request);
                musts.push(must);
            }
        }
        let seen = seen.to_vec();
        let answer = move |written: &[Reply]| {
            let mut pairs = written.iter().zip(&musts);
            let done = pairs.all(|(reply, must)| must.is_empty() || is_word(reply, must));
            if !done || written.len() != musts.len() {
                return Ok(None);
            }
            let words = reply.trim_matches(['[', ']']).split(' ');
            let parts = words.map(|word| part(word, &seen, written, token));
            let mut parts = parts.collect::<Result<Vec<Reply>>>()?;
            Ok(if reply.starts_with('[') {
                Some(Reply::List(parts))
            } else {
                parts.pop()
            })
        };
        Ok(if requests.is_empty() {
            TransactionStep::Answer(answer(&[])?.unwrap_or(Reply::Nil))
        } else {
            TransactionStep::Write(requests, Box::new(answer))
        })
    }
}

/// A word of a reply. `token`: the write with the token counter.
fn part(
    word: &str,
    seen: &[CommandResult],
    written: &[Reply],
    token: Option<usize>,
) -> Result<Reply> {
    let written = |at: Option<usize>| at.and_then(|at| written.get(at)).cloned();
    Ok(match (word, word.split_at(1)) {
        ("token", _) => written(token).unwrap_or(Reply::Int(0)),
        (_, ("w", at)) => written(at.parse().ok()).unwrap_or(Reply::Nil),
        (_, ("r", read)) => match read.strip_suffix('?') {
            Some(read) => replied(seen, read).cloned().unwrap_or(Reply::Nil),
            None => replied(seen, read)?.clone(),
        },
        _ => word.parse().map_or(Reply::Nil, Reply::Int),
    })
}

fn at<'s>(seen: &'s [CommandResult], read: &str) -> Option<&'s CommandResult> {
    seen.get(read.parse::<usize>().ok()?)
}

/// The reply to a read, or its error. A read that was left out counts as null.
fn replied<'s>(seen: &'s [CommandResult], read: &str) -> Result<&'s Reply> {
    match at(seen, read) {
        Some(Ok(reply)) => Ok(reply),
        Some(Err(server_error)) => Err(server_error.error()),
        None => Ok(&Reply::Nil),
    }
}

/// The text that an owner is shown as. Other clients may write bytes that are no text: these are shown by their digits.
/// With replacement characters many owners would look the same, and a forced release that names one would find nobody.
pub(crate) fn shown(owner: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(owner) {
        return Cow::Borrowed(text);
    }
    let mut digits = "0x".to_owned();
    for byte in owner {
        // Cannot fail: it goes to a string.
        let _ = write!(digits, "{byte:02x}");
    }
    Cow::Owned(digits)
}

fn is_word(reply: &Reply, word: &str) -> bool {
    match reply {
        Reply::Text(text) => text == word.as_bytes(),
        Reply::Int(number) => number.to_string() == word,
        _ => false,
    }
}

fn is_wrong_type(server_error: &ServerError) -> bool {
    server_error.error().kind() == ErrorKind::WrongType
}

/// Whether a counter with this value has no next token, as `token.lua` decides it.
fn is_spent(last: &CommandResult) -> bool {
    let last = match last {
        Ok(Reply::Text(last)) => last,
        Err(server_error) => return is_wrong_type(server_error),
        // No token was issued yet.
        Ok(_) => return false,
    };
    let text = std::str::from_utf8(last).unwrap_or_default();
    // The server accepts a number in its canonical form only.
    let is_number = |last: &i64| last.to_string() == text;
    let number = text.parse().ok().filter(is_number);
    !number.is_some_and(|last| (0..i64::MAX).contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise one busy key would cost all locks of a batch their leases.
    #[test]
    fn a_transaction_for_several_locks_may_be_split() {
        let run = |name| {
            let words = PlainLockWords {
                name,
                ..PlainLockWords::default()
            };
            TableRun::new(&super::super::without_lua::RENEW, words)
        };
        assert!(!run("a").may_split());
        assert!(!TableRuns(vec![run("a")]).may_split());
        assert!(TableRuns(vec![run("a"), run("b")]).may_split());
    }

    #[test]
    fn a_counter_is_moved_only_where_a_token_follows() {
        let looked = |text: &str| Ok(Reply::Text(text.into()));
        for good in ["0", "7", "9007199254740993", "9223372036854775806"] {
            assert!(!is_spent(&looked(good)), "{good}");
        }
        assert!(!is_spent(&Ok(Reply::Nil)));
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
            assert!(is_spent(&looked(bad)), "{bad}");
        }
        let wrong = ServerError::parse("WRONGTYPE Operation against a key");
        assert!(is_spent(&Err(wrong)));
    }
}
