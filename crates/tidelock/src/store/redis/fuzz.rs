//! Fuzz targets: properties that hold for any bytes of a Redis server and for any URL.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::snapshot::ClientInfo;
use crate::store::fuzz::{FuzzLogin, escaped};
use crate::store::redis::address::{Address, HostAddress, ServerAddress};
use crate::store::redis::keys;
use crate::store::redis::layouts::{answer, renew, tokens};
use crate::store::redis::slots;
use crate::store::redis::topology::cluster::slot_ranges;
use crate::store::redis::topology::{endpoint, replication, sentinel, server_run};
use crate::store::redis::wire::decode::{Decoder, Frame};
use crate::store::redis::wire::driver;
use crate::store::redis::wire::errors::{Redirect, ServerError};
use crate::store::redis::wire::reply::{Push, Reply};
use crate::store::redis::{doctor, inspect, marks};
use crate::store::{BootInstant, LockKind, Name};
use crate::types::FencingToken;

pub(crate) fn url(text: &str) -> Result<FuzzLogin> {
    let target = Address::parse(text)?;
    let shown = format!(
        "{target:?} {} {:?} {}",
        target.way,
        target.way,
        target.is_tls()
    );
    Ok(FuzzLogin {
        user: target.user,
        password: target.password,
        shown,
    })
}

/// All passwords in a URL. Sentinels have one of their own.
pub(crate) fn passwords(text: &str) -> Result<Vec<String>> {
    let target = Address::parse(text)?;
    let other = match target.way {
        ServerAddress::Sentinels(sentinels) => sentinels.password,
        ServerAddress::One(_) | ServerAddress::Cluster(_) => None,
    };
    let both = target.password.into_iter().chain(other);
    Ok(both.filter(|it| !it.is_empty()).collect())
}

/// A socket's path, user and password survive the round trip through a URL.
pub(crate) fn socket(text: &str) {
    // A URL resolves dot segments, also escaped ones.
    if matches!(text, "" | "." | "..") || text.contains('\0') {
        return;
    }
    let word = escaped(text);
    let url = format!("redis+unix:///{word}?user={word}&password={word}&db=3");
    let target = Address::parse(&url).unwrap();
    let path = format!("/{text}").into();
    assert_eq!(target.way, ServerAddress::One(HostAddress::Unix(path)));
    assert_eq!((target.user.as_deref(), target.db), (Some(text), 3));
    assert_eq!(target.password.as_deref(), Some(text));
}

/// The first byte is the length of the pieces. The decoder's output must not depend on it.
pub(crate) fn reply(bytes: &[u8]) {
    let Some((&torn, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = said(&[bytes]);
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(torn).max(1)).collect();
    assert_eq!(said(&pieces), whole);
    for said in whole.0 {
        match said {
            Frame::Answer(Ok(reply)) => read(&reply),
            Frame::Answer(Err(failure)) => assert!(!failure.error().to_string().is_empty()),
            Frame::Push(args) => match driver::understood(args) {
                (Some(Push::Message { channel, .. } | Push::Subscribed(_, channel)), _) => {
                    text(&channel);
                }
                (Some(Push::Unsubscribed(..)) | None, _) => {}
            },
        }
    }
}

/// The decoded messages, and whether junk ended them.
fn said(pieces: &[&[u8]]) -> (Vec<Frame>, bool) {
    let (mut decoder, mut said, mut rest) = (Decoder::default(), Vec::new(), Vec::new());
    for piece in pieces {
        rest.extend_from_slice(piece);
        loop {
            match decoder.next(&rest) {
                Ok((used, one)) => {
                    rest.drain(..used);
                    let Some(one) = one else { break };
                    said.push(one);
                }
                Err(_) => return (said, true),
            }
        }
    }
    (said, false)
}

fn read(reply: &Reply) {
    let asked = seed();
    for range in slot_ranges::read(reply, &asked) {
        assert!(range.first <= range.last && range.last < slots::SLOTS);
    }
    for holder in inspect::holders(reply) {
        drop(keys::owner_client(&holder.owner).map(str::to_owned));
    }
    inspect::client(reply);
    marks::told_time(reply);
    sentinel::details(reply);
    endpoint::is_primary(reply);
    reply.says_replica();
    renew::renewed(reply);
    match answer::AcquireAnswer::read(reply, || "c".to_owned()) {
        Ok(answer::AcquireAnswer::Granted { last, more }) => {
            let first = tokens::first(LockKind::Fenced, last, more, || "c".to_owned());
            let first = first.ok().flatten().map(FencingToken::get);
            assert!(first.is_none_or(|first| first > 0 && first <= last.unsigned_abs()));
        }
        Ok(answer::AcquireAnswer::Held(_)) => {}
        Err(error) => {
            assert!(error.outcome_unknown() || !error.to_string().contains(char::is_control));
        }
    }
    if let Some(word) = reply.text() {
        text(word);
    }
    for part in reply.list().unwrap_or_default() {
        read(part);
    }
}

/// The details of a client with that start time, as the store parses them.
pub(crate) fn client(since: u64) -> Option<ClientInfo> {
    let since = since.to_string();
    let args = ["since", &since, "host", "h", "pid", "7"];
    let args = args.map(|word| Reply::Text(word.into()));
    inspect::client(&Reply::List(args.into()))
}

/// The text of an error, of `INFO`, or of a redirect.
pub(crate) fn text(text: &str) {
    let server_error = ServerError::parse(text);
    let error = server_error.error();
    if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Refused) {
        assert!(!error.outcome_unknown());
    }
    // A code that means "it did not run" maps to `Unavailable`.
    assert!(!server_error.passes() || error.kind() == ErrorKind::Unavailable);
    match server_error.redirection(&seed()) {
        Some(Redirect::Moved(slot, _) | Redirect::Ask(slot, _)) => {
            assert!(slot < slots::SLOTS);
        }
        None => {}
    }
    let heard = BootInstant::from_nanos(7);
    if let Some(server_run) = server_run::read(text, heard) {
        let later = server_run.by(heard + Duration::from_secs(3));
        assert!(later.up >= server_run.by(heard).up);
    }
    replication::has_replicas(text);
    let info = doctor::Info::parse(text);
    doctor::version(&info);
    doctor::mode(&info, false);
    doctor::eviction(&info);
    doctor::role(&info);
}

fn seed() -> HostAddress {
    HostAddress::Tcp {
        host: "seed".to_owned(),
        port: 1,
        tls: true,
    }
}

pub(crate) fn name(name: &Name) {
    let owner = crate::types::OwnerMint::new().fresh();
    let text = name.as_str();
    let ours = [
        keys::channel(name),
        keys::token(name),
        keys::plain_token(name),
        keys::fair_queue(name),
        keys::fair_times(name),
        keys::read_write_channel(name),
        keys::fair_channel(name, owner.text()),
        keys::tombstone(name, owner.text()),
        keys::own_channel(&keys::channel(name)).unwrap_or_default(),
        keys::alive(name),
        keys::unconfirmed(name),
        keys::turns::turn_channel(name, owner.client()),
    ];
    for key in &ours[..7] {
        assert!(key.contains(text), "{key}");
    }
    let mut each = ours.to_vec();
    each.push(text.to_owned());
    each.sort();
    each.dedup();
    assert_eq!(each.len(), 13, "{each:?}");
    assert!(keys::of_fair_channel(&ours[6]).is_some());
    if keys::share_a_slot(name) {
        assert!(
            ours.iter().all(|key| slots::of(key) == slots::of(text)),
            "{ours:?}"
        );
    }
}

/// The pattern that we send matches the same names at the server as it does here.
pub(crate) fn glob(pattern: &str, name: &str) {
    if pattern.is_ascii() && name.is_ascii() {
        let here = crate::store::matches_glob(pattern, name);
        let mut sent = keys::glob(pattern).into_bytes();
        // Adjacent stars equal one star. The simple matcher below takes time exponential in their number.
        sent.dedup_by(|c, before| *c == b'*' && *before == b'*');
        let there = as_the_server(&sent, name.as_bytes());
        assert_eq!(here, there, "{pattern:?} {name:?}");
    }
}

/// The server's `stringmatchlen`, for the patterns that we send: they have no unescaped brackets.
fn as_the_server(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|skip| as_the_server(rest, &name[skip..])),
        [b'?', rest @ ..] => !name.is_empty() && as_the_server(rest, &name[1..]),
        [b'\\', c, rest @ ..] | [c, rest @ ..] => {
            name.first() == Some(c) && as_the_server(rest, &name[1..])
        }
    }
}

/// The time to live of a key for a lease.
pub(crate) fn kept(lease: Duration) -> Duration {
    Duration::from_millis(crate::store::redis::millis(lease))
}
