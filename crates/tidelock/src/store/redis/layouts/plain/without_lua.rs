//! The plain lock for users that are not allowed to run scripts: each script as a table.
//!
//! The scripts are not generated from these tables: a server knows a script by the hash of its text, so the text of
//! today has to stay.

use crate::error::{Error, ErrorKind};
use crate::store::redis::layouts::plain::table::Table;

/// Whether the error says that the user is not allowed to run scripts. The script has certainly not run then.
pub(crate) fn forbids_scripts(error: &Error) -> bool {
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    error.kind() == ErrorKind::Refused
        && ["'evalsha'", "'eval'", "'evalsha|", "'eval|"]
            .iter()
            .any(|command| detail.contains(command))
}

/// `plain_acquire.lua`. The counter is checked before it is incremented. A transaction continues after a command that
/// fails, so a failed `INCR` would still let the `SET` take the lock.
pub(crate) static ACQUIRE: Table = Table {
    watch: "$name $tombstone $counter",
    reads: &[
        "GET $name",
        "PTTL $name",
        "EXISTS $tombstone",
        "GET $counter ?",
    ],
    cases: &[
        ("2=1", &[], "[2]"),
        ("0=WRONGTYPE", &[], "[3]"),
        ("0=nil 3=spent", &[], "[4 r3?]"),
        (
            "0=nil",
            &["INCR $counter", "SET $name $owner NX PX $millis -> OK"],
            "[1 token]",
        ),
        // A repeated request of the holder. Its key may have no limit, and its counter may be gone. If the key has
        // expired meanwhile, a retry finds out.
        ("0=$owner 1=-1 3=nil", &["INCR $counter"], "[1 token]"),
        ("0=$owner 1=-1", &["GET $counter"], "[1 token]"),
        (
            "0=$owner 3=nil",
            &["PEXPIRE $name $longer1 -> 1", "INCR $counter"],
            "[1 token]",
        ),
        (
            "0=$owner",
            &["PEXPIRE $name $longer1 -> 1", "GET $counter"],
            "[1 token]",
        ),
        ("", &[], "[0 r1 r0]"),
    ],
};

/// `plain_release.lua` with `release`. Without the lock it writes all the same. That has no effect on a primary. A
/// server that has become a replica, and may not have the lock yet, refuses it; otherwise it would wrongly report that
/// the lock is not held.
pub(crate) static RELEASE: Table = Table {
    watch: "$name",
    reads: &["GET $name", "PTTL $name"],
    cases: &[
        ("0=$owner", &["DEL $name"], "w0"),
        ("", &["PEXPIRE $tombstone $millis"], "0"),
    ],
};

/// `plain_release.lua` with `withdraw`.
pub(crate) static WITHDRAW: Table = Table {
    watch: "$name $tombstone",
    reads: &["GET $name", "PTTL $name"],
    cases: &[
        (
            "0=$owner",
            &["DEL $name", "SET $tombstone 1 PX $millis"],
            "w0",
        ),
        ("", &["SET $tombstone 1 PX $millis"], "0"),
    ],
};

/// `plain_renew.lua`, for one lock. Without the lock it writes for the same reason as [`RELEASE`].
pub(crate) static RENEW: Table = Table {
    watch: "$name",
    reads: &["GET $name", "PTTL $name", "PTTL $tombstone ?"],
    cases: &[
        ("0=$owner 1=-1", &[], "1"),
        ("0=$owner", &["PEXPIRE $name $longer1"], "w0"),
        ("", &["PEXPIRE $tombstone $longer2"], "0"),
    ],
};

/// `plain_force_release.lua`.
pub(crate) static FORCE_RELEASE: Table = Table {
    watch: "$name",
    reads: &["TYPE $name"],
    cases: &[("0=none", &[], "0"), ("0=string", &["DEL $name"], "w0")],
};

/// `plain_force_release.lua` with an owner.
pub(crate) static FORCE_RELEASE_IF_OWNED: Table = Table {
    watch: "$name",
    reads: &["TYPE $name", "GET $name"],
    cases: &[
        ("0=none", &[], "0"),
        ("0=string 1=$owner", &["DEL $name"], "w0"),
        ("0=string", &[], "0"),
    ],
};

/// `plain_force_release.lua` with an owner and a token.
pub(crate) static FORCE_RELEASE_IF_GRANTED: Table = Table {
    watch: "$name $counter",
    reads: &["TYPE $name", "GET $name", "GET $counter ?"],
    cases: &[
        ("0=none", &[], "0"),
        ("0=string 1=$owner 2=$newest", &["DEL $name"], "w0"),
        ("0=string", &[], "0"),
    ],
};

/// `plain_inspect.lua`. The reads are not atomic: nothing depends on that.
pub(crate) static INSPECT: Table = Table {
    watch: "$name",
    reads: &["GET $name", "PTTL $name", "GET $counter ?"],
    cases: &[("", &[], "[r0 r1 r2?]")],
};

/// `raise_token.lua`.
pub(crate) static RAISE_TOKEN: Table = Table {
    watch: "$counter",
    reads: &["GET $counter"],
    cases: &[
        ("0=WRONGTYPE", &[], "[4]"),
        ("0=spent", &[], "[4 r0]"),
        (
            "0=below",
            &["SET $counter $newest -> OK", "GET $counter"],
            "[1 w1]",
        ),
        ("", &[], "[1 r0]"),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::errors::ServerError;

    /// A word that the executor does not know would be sent as it is.
    #[test]
    fn every_word_of_a_table_is_known() {
        for table in [
            &ACQUIRE,
            &RELEASE,
            &WITHDRAW,
            &RENEW,
            &FORCE_RELEASE,
            &FORCE_RELEASE_IF_OWNED,
            &FORCE_RELEASE_IF_GRANTED,
            &INSPECT,
            &RAISE_TOKEN,
        ] {
            let writes = table.cases.iter().flat_map(|(_, writes, _)| *writes);
            let commands = table.reads.iter().chain(writes).chain([&table.watch]);
            for word in commands.flat_map(|command| command.split(' ')) {
                let placeholder = word.strip_prefix('$').unwrap_or("name");
                let known = ["name", "owner", "tombstone", "counter", "millis", "newest"];
                let read = placeholder
                    .strip_prefix("longer")
                    .and_then(|at| at.parse().ok());
                let is_read = read.is_some_and(|read: usize| read < table.reads.len());
                assert!(known.contains(&placeholder) || is_read, "{word}");
            }
            for (tests, writes, reply) in table.cases {
                for test in tests.split_terminator(' ') {
                    let read: usize = test.split_once('=').unwrap().0.parse().unwrap();
                    assert!(read < table.reads.len(), "{test}");
                }
                for word in reply.trim_matches(['[', ']']).split(' ') {
                    let at = word.trim_start_matches(['r', 'w']).trim_end_matches('?');
                    let of = match word.split_at(1).0 {
                        "r" => table.reads.len(),
                        "w" => writes.len(),
                        _ => usize::MAX,
                    };
                    assert!(
                        word == "token" || at.parse::<usize>().unwrap() < of,
                        "{word}"
                    );
                }
            }
        }
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
