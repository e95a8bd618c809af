//! The writes and the reply of each table, for everything that it may read.

use crate::error::ErrorKind;
use crate::store::redis::layouts::plain::table::{
    PlainLockWords, Table, TableRun, TableRuns, shown,
};
use crate::store::redis::layouts::plain::without_lua::{
    ACQUIRE, FORCE_RELEASE, FORCE_RELEASE_IF_GRANTED, FORCE_RELEASE_IF_OWNED, INSPECT, RAISE_TOKEN,
    RELEASE, RENEW, WITHDRAW,
};
use crate::store::redis::topology::transaction::{Transaction, TransactionStep};
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::reply::{CommandResult, Reply};
use crate::store::redis::wire::request::{Encode, Request};

const WORDS: PlainLockWords<'_> = PlainLockWords {
    name: "stock",
    owner: "me",
    tombstone: "grave",
    counter: Some("count"),
    millis: "30000",
    newest: "9",
};

/// A reply by a word: a number, `nil`, an error in capitals, or a text; `'7` is a text too.
fn reply(word: &str) -> CommandResult {
    match (word, word.parse()) {
        ("nil", _) => Ok(Reply::Nil),
        ("WRONGTYPE" | "NOPERM", _) => Err(ServerError::parse(&format!("{word} no"))),
        (_, Ok(number)) => Ok(Reply::Int(number)),
        _ => Ok(Reply::Text(word.trim_start_matches('\'').into())),
    }
}

fn replies(words: &str) -> Vec<CommandResult> {
    words.split_whitespace().map(reply).collect()
}

fn list(words: &str) -> Reply {
    Reply::List(written(words))
}

fn written(words: &str) -> Vec<Reply> {
    replies(words).into_iter().map(Result::unwrap).collect()
}

fn text(request: &Request) -> String {
    let mut bytes = Vec::new();
    request.write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    // Each word is behind its length.
    let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
    words.join(" ")
}

/// The writes of a transaction that has read this, and its reply once they have replied so. `None`: it is retried.
fn run(transaction: &impl Transaction, seen: &str, wrote: &str) -> (Vec<String>, Option<Reply>) {
    match transaction.decide(&replies(seen)).unwrap() {
        TransactionStep::Answer(reply) => (Vec::new(), Some(reply)),
        TransactionStep::Write(requests, answer) => {
            let requests = requests.iter().map(text).collect();
            (requests, answer(&written(wrote)).unwrap())
        }
    }
}

fn check(table: &'static Table, cases: &[(&str, &[&str], &str, Option<Reply>)]) {
    for (seen, writes, wrote, expected) in cases {
        let run = run(&TableRun::new(table, WORDS), seen, wrote);
        assert_eq!(run, (own(writes), expected.clone()), "{seen}");
    }
}

fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The reads are the lock, what is left of its lease, the tombstone and the counter.
#[test]
fn a_lock_is_taken_only_if_it_is_free_and_its_token_is_sure() {
    let takes = ["INCR count", "SET stock me NX PX 30000"];
    check(
        &ACQUIRE,
        &[
            ("nil -2 1 nil", &[], "", Some(list("2"))),
            ("WRONGTYPE -1 0 nil", &[], "", Some(list("3"))),
            ("nil -2 0 'x", &[], "", Some(list("4 'x"))),
            ("nil -2 0 WRONGTYPE", &[], "", Some(list("4 nil"))),
            ("nil -2 0 '7", &takes, "8 OK", Some(list("1 8"))),
            ("nil -2 0 nil", &takes, "1 OK", Some(list("1 1"))),
            // Another client was quicker.
            ("nil -2 0 '7", &takes, "8 nil", None),
            ("you 5000 0 '7", &[], "", Some(list("0 5000 you"))),
            ("you 5000 0 NOPERM", &[], "", Some(list("0 5000 you"))),
        ],
    );
}

/// Otherwise it would take a lock without a look at its tombstone.
#[test]
fn a_read_that_fails_ends_an_attempt_with_its_error() {
    for seen in ["NOPERM -2 0 nil", "nil NOPERM 0 nil", "nil -2 NOPERM nil"] {
        let refused = TableRun::new(&ACQUIRE, WORDS).decide(&replies(seen));
        let kind = refused.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::Refused), "{seen}");
    }
}

/// It has its token already, and its lease must not become shorter.
#[test]
fn a_repeated_request_of_the_holder_keeps_its_lock_and_its_token() {
    check(
        &ACQUIRE,
        &[
            ("me -1 0 nil", &["INCR count"], "1", Some(list("1 1"))),
            ("me -1 0 '7", &["GET count"], "'7", Some(list("1 '7"))),
            (
                "me 5000 0 nil",
                &["PEXPIRE stock 30000", "INCR count"],
                "1 1",
                Some(list("1 1")),
            ),
            (
                "me 60000 0 '7",
                &["PEXPIRE stock 60000", "GET count"],
                "1 '7",
                Some(list("1 '7")),
            ),
            // The lease has ended meanwhile.
            (
                "me 5 0 '7",
                &["PEXPIRE stock 30000", "GET count"],
                "0 '7",
                None,
            ),
        ],
    );
}

#[test]
fn a_lock_without_tokens_touches_no_counter() {
    let words = PlainLockWords {
        counter: None,
        ..WORDS
    };
    let acquire = TableRun::new(&ACQUIRE, words);
    assert_eq!(text(&acquire.watch()), "WATCH stock grave");
    let reads: Vec<String> = acquire.reads().iter().map(text).collect();
    assert_eq!(reads, ["GET stock", "PTTL stock", "EXISTS grave"]);
    let taken = run(&acquire, "nil -2 0", "OK");
    assert_eq!(
        taken,
        (own(&["SET stock me NX PX 30000"]), Some(list("1 0")))
    );
    let repeated = run(&acquire, "me -1 0", "");
    assert_eq!(repeated, (Vec::new(), Some(list("1 0"))));
    let fenced = TableRun::new(&ACQUIRE, WORDS);
    assert_eq!(text(&fenced.watch()), "WATCH stock grave count");
    assert_eq!(fenced.reads().len(), 4);
}

/// Without the lock it writes all the same: a server that has become a replica must refuse it.
#[test]
fn a_release_writes_whether_the_lock_is_held_or_not() {
    check(
        &RELEASE,
        &[
            ("me 5000", &["DEL stock"], "1", Some(Reply::Int(1))),
            (
                "you 5000",
                &["PEXPIRE grave 30000"],
                "0",
                Some(Reply::Int(0)),
            ),
            ("nil -2", &["PEXPIRE grave 30000"], "0", Some(Reply::Int(0))),
        ],
    );
    let buries = "SET grave 1 PX 30000";
    check(
        &WITHDRAW,
        &[
            (
                "me 5000",
                &["DEL stock", buries],
                "1 OK",
                Some(Reply::Int(1)),
            ),
            ("you 5000", &[buries], "OK", Some(Reply::Int(0))),
        ],
    );
}

/// The lease must not become shorter, whatever was left of it.
#[test]
fn a_renewal_only_prolongs_a_lease() {
    check(
        &RENEW,
        &[
            ("me -1 -2", &[], "", Some(Reply::Int(1))),
            (
                "me 5000 -2",
                &["PEXPIRE stock 30000"],
                "1",
                Some(Reply::Int(1)),
            ),
            (
                "me 60000 -2",
                &["PEXPIRE stock 60000"],
                "0",
                Some(Reply::Int(0)),
            ),
            (
                "you 5000 -2",
                &["PEXPIRE grave 30000"],
                "0",
                Some(Reply::Int(0)),
            ),
            (
                "nil -2 40000",
                &["PEXPIRE grave 40000"],
                "1",
                Some(Reply::Int(0)),
            ),
        ],
    );
    // The tombstone may have longer left, and that has to be read.
    let unread = TableRun::new(&RENEW, WORDS).decide(&replies("nil -2 NOPERM"));
    assert_eq!(unread.err().unwrap().kind(), ErrorKind::Refused);
}

#[test]
fn a_forced_release_deletes_what_was_seen_and_nothing_else() {
    let gone = Some(Reply::Int(1));
    let stays = Some(Reply::Int(0));
    check(
        &FORCE_RELEASE,
        &[
            ("none", &[], "", stays.clone()),
            ("string", &["DEL stock"], "1", gone.clone()),
        ],
    );
    check(
        &FORCE_RELEASE_IF_OWNED,
        &[
            ("none nil", &[], "", stays.clone()),
            ("string me", &["DEL stock"], "1", gone.clone()),
            ("string you", &[], "", stays.clone()),
        ],
    );
    check(
        &FORCE_RELEASE_IF_GRANTED,
        &[
            ("none nil '9", &[], "", stays.clone()),
            ("string me '9", &["DEL stock"], "1", gone),
            ("string me '8", &[], "", stays.clone()),
            ("string you '9", &[], "", stays.clone()),
            ("string me nil", &[], "", stays),
        ],
    );
    let hash = TableRun::new(&FORCE_RELEASE, WORDS).decide(&replies("hash"));
    assert_eq!(hash.err().unwrap().kind(), ErrorKind::WrongType);
}

#[test]
fn a_counter_is_raised_and_never_lowered() {
    let raises = ["SET count 9", "GET count"];
    check(
        &RAISE_TOKEN,
        &[
            ("WRONGTYPE", &[], "", Some(list("4"))),
            ("'x", &[], "", Some(list("4 'x"))),
            ("'8", &raises, "OK '9", Some(list("1 '9"))),
            ("nil", &raises, "OK '9", Some(list("1 '9"))),
            ("'9", &[], "", Some(list("1 '9"))),
            ("'10", &[], "", Some(list("1 '10"))),
            // Another client has written it in between.
            ("'8", &raises, "no '9", None),
        ],
    );
}

#[test]
fn a_look_at_a_lock_shows_what_may_be_read() {
    check(
        &INSPECT,
        &[
            ("me 5000 '7", &[], "", Some(list("me 5000 '7"))),
            ("me 5000 NOPERM", &[], "", Some(list("me 5000 nil"))),
            ("nil -2", &[], "", Some(list("nil -2 nil"))),
        ],
    );
    for (seen, kind) in [
        ("NOPERM 5000 '7", ErrorKind::Refused),
        ("WRONGTYPE -1 '7", ErrorKind::WrongType),
    ] {
        let refused = TableRun::new(&INSPECT, WORDS).decide(&replies(seen));
        assert_eq!(refused.err().unwrap().kind(), kind, "{seen}");
    }
}

#[test]
fn several_locks_in_one_transaction_have_each_their_own_reply() {
    let renewal = |name| {
        let words = PlainLockWords {
            name,
            tombstone: "grave",
            ..WORDS
        };
        TableRun::new(&RENEW, words)
    };
    let runs = TableRuns(["a", "b", "c"].map(renewal).into());
    assert_eq!(text(&runs.watch()), "WATCH a b c");
    assert_eq!(runs.reads().len(), 9);
    let (writes, reply) = run(&runs, "me 5000 -2 me -1 -2 you 5000 -2", "1 0");
    assert_eq!(writes, ["PEXPIRE a 30000", "PEXPIRE grave 30000"]);
    assert_eq!(reply, Some(list("1 1 0")));
    let (writes, reply) = run(&runs, "me 5000 -2 you 5 -2 me 60000 -2", "1 0 1");
    assert_eq!(writes.len(), 3);
    assert_eq!(reply, Some(list("1 0 1")));
    let unlimited = run(&runs, "me -1 -2 me -1 -2 me -1 -2", "");
    assert_eq!(unlimited, (Vec::new(), Some(list("1 1 1"))));
    // One of them must be tried again, and the others with it.
    let acquire = || TableRun::new(&ACQUIRE, WORDS);
    let both = TableRuns(vec![acquire(), acquire()]);
    let (_, reply) = run(&both, "me -1 0 '7 me 5 0 '7", "'7 0 '7");
    assert_eq!(reply, None);
}

/// With replacement characters, many owners would look the same.
#[test]
fn an_owner_that_is_no_text_is_shown_by_its_digits() {
    assert_eq!(shown(b"me"), "me");
    assert_eq!(shown(&[0xff, 0x0a]), "0xff0a");
    let words = PlainLockWords {
        owner: "0xff0a",
        ..WORDS
    };
    let seen = [reply("string"), Ok(Reply::Text(vec![0xff, 0x0a]))];
    let run = TableRun::new(&FORCE_RELEASE_IF_OWNED, words);
    assert!(matches!(run.decide(&seen), Ok(TransactionStep::Write(..))));
}
