//! Flags, durations and URLs of the command-line tool. It includes the tool's own source files unchanged.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/tidelock-cli/src/args.rs"]
mod args;
#[path = "../../crates/tidelock-cli/src/exit.rs"]
mod exit;
#[path = "../../crates/tidelock-cli/src/secret.rs"]
mod secret;
#[path = "../../crates/tidelock-cli/src/store.rs"]
mod store;

use args::{Cli, StoreArgs};
use clap::Parser;

const SECRET: &str = "hunter2";
const OTHER: &str = "correct";

// The input is one argument per line.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let words = ["tidelock"].into_iter().chain(text.split('\n'));
    if let Ok(cli) = Cli::try_parse_from(words) {
        comes_back(&cli.store);
        let text = format!("{:?}", cli.command);
        assert!(!text.is_empty());
    }
    stays_hidden(text);
});

/// A child process must read the same store arguments that were handed down to it.
fn comes_back(given: &StoreArgs) {
    let mut command = tokio::process::Command::new("tidelock");
    if given.store.is_none() || store::hand_down(given, &mut command).is_err() {
        return;
    }
    let words = ["tidelock".into()].into_iter();
    let words = words.chain(command.as_std().get_args().map(ToOwned::to_owned));
    let words = words.chain(["ls".into()]);
    let read = Cli::try_parse_from(words).expect("our own words").store;
    assert_eq!(read.lease, given.lease);
    assert_eq!(read.prefix, given.prefix);
    assert_eq!(read.user, given.user);
    assert_eq!(read.password_file, given.password_file);
    assert_eq!(read.tls_ca, given.tls_ca);
    assert_eq!(
        (read.tls_cert, read.tls_key),
        (given.tls_cert.clone(), given.tls_key.clone())
    );
}

/// A password that the library reads from a URL must not occur in the text that we show to others.
fn stays_hidden(text: &str) {
    let mut lines = text.splitn(3, '\n');
    let [before, after, tail] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let url = |secret: &str| format!("{before}{secret}{after}@{tail}");
    let (one, other) = (url(SECRET), url(OTHER));
    if other.contains(SECRET) {
        return;
    }
    let passwords = tidelock::fuzz::passwords(&one);
    if passwords.iter().any(|it| it.contains(SECRET)) {
        let shown = secret::shown(&one);
        assert!(!shown.contains(SECRET), "{one}: {shown}");
        assert_eq!(shown, secret::shown(&other));
        assert!(
            !secret::hidden(&format!("no: {one}"), &one).contains(SECRET),
            "{one}"
        );
        // The shown URL must not contain any other password either.
        let left = tidelock::fuzz::passwords(&shown);
        assert!(left.is_empty(), "{one}: {shown}");
    }
}
