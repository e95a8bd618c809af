//! Fuzz checks: invariants of MySQL URLs, and of names in statements.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::Duration;

use crate::error::Result;
use crate::store::Name;
use crate::store::fuzz::FuzzLogin;
use crate::store::mysql::address::Address;
use crate::store::mysql::sql;

pub(crate) fn url(text: &str) -> Result<FuzzLogin> {
    let address = Address::parse(text)?;
    let shown = format!("{address} {address:?} {:?}", address.server);
    Ok(FuzzLogin {
        user: address.user,
        password: address.password,
        shown,
    })
}

/// A name enters a statement only as hexadecimal digits.
pub(crate) fn name(name: &Name) {
    let literal = sql::hex(name.as_str());
    let digits = literal
        .strip_prefix("x'")
        .and_then(|it| it.strip_suffix('\''));
    let digits = digits.expect("a literal");
    assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let bytes = digits.as_bytes().chunks(2).map(|two| {
        u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16).expect("digits")
    });
    assert_eq!(bytes.collect::<Vec<_>>(), name.as_str().as_bytes());
}

/// How long a row stands that was written for this lease.
pub(crate) fn kept(lease: Duration) -> Duration {
    Duration::from_micros(sql::micros(lease))
}
