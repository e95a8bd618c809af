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
