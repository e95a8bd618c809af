use std::collections::HashSet;

use super::*;

#[test]
fn an_error_is_one_line_that_forges_nothing() {
    let evil = "evil\nx: free\u{1b}[31m";
    let error = Error::new(ErrorKind::WrongType).on_lock(evil).because(evil);
    let (shown, name) = (error.to_string(), error.lock_name());
    let kind = ErrorKind::WrongType.text();
    let line = r"evil\nx: free\u{1b}[31m";
    assert_eq!(shown, format!("{line}: {kind}: {line}"));
    assert_eq!(name, Some(evil), "the name itself is unchanged");
}

#[test]
fn the_debug_text_of_an_error_is_readable() {
    let error = Error::new(ErrorKind::TimedOut).on_lock("job");
    assert_eq!(
        format!("{error:?}"),
        r#"TimedOut("job: not acquired in time")"#
    );
    let broken = error.caused_by(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
    assert_eq!(
        format!("{broken:?}"),
        r#"TimedOut("job: not acquired in time", caused by Kind(BrokenPipe))"#
    );
}

pub(crate) const KINDS: [ErrorKind; 13] = [
    ErrorKind::TimedOut,
    ErrorKind::Cancelled,
    ErrorKind::Lost,
    ErrorKind::NotHeld,
    ErrorKind::WrongType,
    ErrorKind::Refused,
    ErrorKind::Unavailable,
    ErrorKind::OutcomeUnknown,
    ErrorKind::Closed,
    ErrorKind::Unsupported,
    ErrorKind::InvalidName,
    ErrorKind::InvalidOptions,
    ErrorKind::Runtime,
];

#[test]
fn each_kind_has_its_own_word_and_its_own_text() {
    let words: HashSet<&str> = KINDS.iter().map(|kind| kind.as_str()).collect();
    let texts = KINDS.map(|kind| Error::new(kind).to_string());
    let texts = HashSet::from(texts);
    assert_eq!((words.len(), texts.len()), (KINDS.len(), KINDS.len()));
    assert!(!texts.contains(""));
}

#[test]
fn a_caller_repeats_only_calls_that_may_succeed_without_a_change() {
    for kind in KINDS {
        let error = Error::new(kind);
        let silent = [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown].contains(&kind);
        let is_timeout = kind == ErrorKind::TimedOut;
        assert_eq!(error.is_timeout(), is_timeout, "{kind:?}");
        assert_eq!(error.is_retryable(), silent || is_timeout, "{kind:?}");
        let is_in_doubt = kind == ErrorKind::OutcomeUnknown;
        assert_eq!(error.outcome_unknown(), is_in_doubt, "{kind:?}");
    }
}

#[test]
fn only_a_doubt_ends_with_the_word_that_nothing_was_changed() {
    for kind in KINDS {
        let error = Error::new(kind).on_lock("job").because("why");
        let error = error.without_effect();
        let expected = if kind == ErrorKind::OutcomeUnknown {
            ErrorKind::Unavailable
        } else {
            kind
        };
        assert_eq!(error.kind(), expected);
        let told = (error.lock_name(), error.detail());
        assert_eq!(told, (Some("job"), Some("why")), "{kind:?}");
    }
}

/// It joined the request of another, so it has sent none itself.
#[test]
fn a_caller_who_shares_the_error_of_another_is_not_in_doubt() {
    let sent = Error::new(ErrorKind::OutcomeUnknown).because("the connection broke");
    let told = sent.retold();
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    assert_eq!(told.detail(), Some("the connection broke"));
    let bare = Error::new(ErrorKind::Refused);
    let (bare, told) = (bare.to_string(), bare.retold());
    assert_eq!(told.detail(), Some(&*bare));
}

#[test]
fn a_name_that_is_empty_is_not_shown() {
    let error = Error::new(ErrorKind::InvalidName).on_lock("");
    assert_eq!(error.to_string(), "invalid lock name");
    assert_eq!(error.lock_name(), Some(""));
    let error = error.on_lock("job").because("why");
    assert_eq!(error.to_string(), "invalid lock name: why");
}

#[test]
fn a_loss_has_its_reason_and_other_errors_have_none() {
    let error = Error::lost(LostReason::MaxHold);
    let found = (error.kind(), error.lost_reason());
    assert_eq!(found, (ErrorKind::Lost, Some(LostReason::MaxHold)));
    let reason = LostReason::MaxHold.to_string();
    assert_eq!(error.to_string(), format!("the lock was lost: {reason}"));
    assert_eq!(Error::new(ErrorKind::Lost).lost_reason(), None);
}

#[test]
fn the_error_of_a_driver_is_the_source() {
    let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let error = Error::new(ErrorKind::OutcomeUnknown);
    assert!(error.source().is_none());
    let error = error.caused_by(broken);
    let source = error.source().map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("broken pipe"));
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[test]
fn the_file_or_server_comes_before_what_is_wrong_with_it() {
    let error = Error::new(ErrorKind::Unavailable).prefix("locks.db");
    assert_eq!(error.detail(), Some("locks.db"));
    let error = error.because("is full").prefix("locks.db");
    assert_eq!(error.detail(), Some("locks.db: is full"));
}
