//! Tests of the errors of servers: what each means for the request and for those after it.

use super::*;
use crate::store::redis::wire::tests::tcp;

/// The text of an error, its kind, whether any other request would get it too, and whether a retry may succeed soon.
const ERRORS: [(&str, ErrorKind, bool, bool); 22] = [
    ("NOAUTH no", ErrorKind::Refused, true, false),
    ("WRONGPASS no", ErrorKind::Refused, true, false),
    ("DENIED no", ErrorKind::Refused, true, false),
    ("OOM no", ErrorKind::Unavailable, true, false),
    ("MISCONF no", ErrorKind::Unavailable, true, false),
    ("UNKILLABLE no", ErrorKind::Unavailable, true, false),
    (
        "ERR max number of clients reached",
        ErrorKind::Unavailable,
        true,
        false,
    ),
    ("LOADING no", ErrorKind::Unavailable, true, true),
    ("BUSY no", ErrorKind::Unavailable, true, true),
    ("READONLY no", ErrorKind::Unavailable, true, true),
    ("MASTERDOWN no", ErrorKind::Unavailable, true, true),
    ("CLUSTERDOWN no", ErrorKind::Unavailable, true, true),
    ("NOREPLICAS no", ErrorKind::Unavailable, true, true),
    ("TRYAGAIN no", ErrorKind::Unavailable, false, true),
    ("MOVED 1 b:7", ErrorKind::InvalidOptions, false, false),
    ("ASK 1 b:7", ErrorKind::InvalidOptions, false, false),
    ("NOPERM no", ErrorKind::Refused, false, false),
    ("ERR unknown command 'X'", ErrorKind::Refused, false, false),
    (
        "EXECABORT because of: NOPERM",
        ErrorKind::Refused,
        false,
        false,
    ),
    ("EXECABORT no", ErrorKind::OutcomeUnknown, false, false),
    ("ERR no", ErrorKind::OutcomeUnknown, false, false),
    (
        "PROXY max number of clients",
        ErrorKind::OutcomeUnknown,
        false,
        false,
    ),
];

#[test]
fn an_error_of_the_whole_server_is_told_from_that_of_a_request() {
    for (text, kind, of_server, passes) in ERRORS {
        let server_error = ServerError::parse(text);
        let error = server_error.error();
        assert_eq!(error.kind(), kind, "{text}");
        let scope = if of_server {
            ReplyScope::Server
        } else {
            ReplyScope::Request
        };
        assert_eq!(error.reply_scope(), Some(scope), "{text}");
        assert_eq!(server_error.passes(), passes, "{text}");
        // A cluster store follows a redirection, or tries again.
        let goes_on = passes || kind == ErrorKind::InvalidOptions;
        let cause = super::server_error(&error);
        assert_eq!(cause, goes_on.then_some(&server_error), "{text}");
    }
}

#[test]
fn an_error_that_a_script_has_wrapped_keeps_its_meaning() {
    for (text, kind) in [
        ("ERR ACL failure in script: no", ErrorKind::Refused),
        ("@user_script:23: OOM no", ErrorKind::Unavailable),
        ("Error NOREPLICAS no", ErrorKind::Unavailable),
        ("ERR ZOOM no", ErrorKind::OutcomeUnknown),
    ] {
        assert_eq!(ServerError::parse(text).error().kind(), kind, "{text}");
    }
}

#[test]
fn an_error_is_known_by_its_code_and_not_by_a_word_in_its_text() {
    type Question = fn(&ServerError) -> bool;
    let questions: [(Question, &str, [&str; 2]); 5] = [
        (
            ServerError::is_no_database,
            "ERR DB index is out of range",
            ["ERR value is out of range", "NOPERM DB index"],
        ),
        (
            ServerError::is_no_script,
            "NOSCRIPT No matching script.",
            ["ERR no", "OOM NOSCRIPT"],
        ),
        (
            ServerError::ends_session,
            "NOAUTH Authentication required.",
            ["NOPERM no", "ERR NOAUTH"],
        ),
        (
            ServerError::aborts,
            "EXECABORT because of: NOPERM",
            ["NOPERM no", "ERR EXECABORT"],
        ),
        (
            ServerError::is_replica,
            "READONLY You can't write against a read only replica.",
            ["LOADING no", "OOM READONLY"],
        ),
    ];
    for (question, yes, no) in questions {
        assert!(question(&ServerError::parse(yes)), "{yes}");
        for text in no {
            assert!(!question(&ServerError::parse(text)), "{text}");
        }
    }
}

#[test]
fn a_redirection_names_the_slot_and_its_node() {
    let node = |host: &str| tcp(host, 7, false);
    for (text, expected) in [
        ("MOVED 3999 b:7", Some(Redirect::Moved(3999, node("b")))),
        ("ASK 3999 :7", Some(Redirect::Ask(3999, node("asked")))),
        ("MOVED 3999", None),
        ("ERR 3999 b:7", None),
    ] {
        let redirection = ServerError::parse(text).redirection(&node("asked"));
        assert_eq!(redirection, expected, "{text}");
    }
}

/// With the same user, other commands go on.
#[test]
fn a_forbidden_command_is_told_from_a_session_that_has_ended() {
    for (text, is_forbidden) in [
        ("NOPERM no", true),
        ("ERR unknown command 'CONFIG'", true),
        ("NOAUTH no", false),
        ("WRONGPASS no", false),
        ("LOADING no", false),
        ("ERR no", false),
    ] {
        let forbidden = forbids(&ServerError::parse(text));
        assert_eq!(forbidden.is_some(), is_forbidden, "{text}");
    }
}

#[test]
fn a_command_that_a_hosted_server_does_not_offer_has_no_answer() {
    assert_eq!(allowed(Ok(7)).unwrap(), Some(7));
    for (kind, why, has_no_answer) in [
        (ErrorKind::Refused, "no", true),
        (ErrorKind::OutcomeUnknown, "unknown command 'CONFIG'", true),
        (ErrorKind::OutcomeUnknown, "no", false),
        (ErrorKind::Unavailable, "no", false),
    ] {
        let result = allowed(Err::<i32, _>(Error::new(kind).because(why)));
        let expected = if has_no_answer { Ok(None) } else { Err(kind) };
        assert_eq!(result.map_err(|error| error.kind()), expected, "{why}");
    }
}

#[test]
fn a_message_shows_the_error_as_the_server_sent_it() {
    let error = ServerError::parse("-OOM command not allowed");
    assert_eq!(error.to_string(), "OOM command not allowed");
}

#[test]
fn errors_tell_which_requests_did_not_run() {
    for (text, kind) in [
        ("WRONGTYPE Operation against a key", ErrorKind::WrongType),
        ("NOPERM this user has no permissions", ErrorKind::Refused),
        ("NOAUTH Authentication required.", ErrorKind::Refused),
        (
            "LOADING Redis is loading the dataset in memory",
            ErrorKind::Unavailable,
        ),
        (
            "BUSY Redis is busy running a script.",
            ErrorKind::Unavailable,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            ErrorKind::Unavailable,
        ),
        (
            "READONLY You can't write against a read only replica.",
            ErrorKind::Unavailable,
        ),
        ("ERR max number of clients reached", ErrorKind::Unavailable),
        (
            "DENIED Redis is running in protected mode",
            ErrorKind::Refused,
        ),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            ErrorKind::Refused,
        ),
        ("ERR CROSSSLOT keys of several shards", ErrorKind::Refused),
        ("ERR something new", ErrorKind::OutcomeUnknown),
        (
            "ERR The user executing the script can't run this command or subcommand script: 00, on @user_script:23.",
            ErrorKind::Refused,
        ),
        (
            "ERR value is not an integer or out of range",
            ErrorKind::WrongType,
        ),
        (
            "ERR Error running script (call to f_00): @user_script:5: @user_script: 5: -OOM command not allowed",
            ErrorKind::Unavailable,
        ),
    ] {
        assert_eq!(ServerError::parse(text).error().kind(), kind, "{text}");
    }
}

#[test]
fn a_server_that_wants_every_key_declared_is_known_by_its_words() {
    let dragonfly = "ERR Error running script (call to 00): @user_script:1: script tried accessing undeclared key";
    for (text, wants) in [
        (dragonfly, true),
        (
            "NOPERM No permissions to access a key script: 00, on @user_script:1.",
            false,
        ),
    ] {
        let error = ServerError::parse(text).error();
        assert_eq!(wants_keys_declared(&error), wants, "{text}");
    }
}

#[test]
fn a_subcommand_that_a_server_does_not_know_is_told_by_its_words() {
    let older =
        "ERR Unknown subcommand or wrong number of arguments for 'shardchannels'. Try PUBSUB HELP.";
    for (text, lacks) in [
        (older, true),
        (
            "ERR unknown subcommand 'shardchannels'. Try PUBSUB HELP.",
            true,
        ),
        ("ERR unknown command 'pubsub'", false),
    ] {
        let error = ServerError::parse(text).error();
        assert_eq!(lacks_subcommand(&error), lacks, "{text}");
    }
}

#[test]
fn an_echo_of_a_greeting_shows_no_password() {
    let echo = "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'hunter2' ";
    let error = ServerError::parse(echo).error();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    assert!(error.to_string().contains("HELLO"));
}

#[test]
fn an_answer_of_the_wrong_shape_is_never_a_success() {
    assert!(unexpected(&"sunsubscribe").outcome_unknown());
}
