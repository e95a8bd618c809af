//! A host in a URL, with its port.

use std::fmt;
use std::net::Ipv6Addr;

use crate::store::url::refusal::{UrlResult, decode};

/// A host, without the brackets of an IPv6 address, and its port if one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlHost {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

/// `host:port`, with brackets around an IPv6 address.
impl fmt::Display for UrlHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(f, "{open}{}{close}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Parses `host`, `host:port` or `[::1]:port`.
pub(crate) fn host(text: &str) -> UrlResult<UrlHost> {
    if text.contains(|c: char| c.is_whitespace() || "/?#@<>\\^|".contains(c)) {
        return Err("a host is a name or an address, with a port".into());
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or("a ] is missing")?;
        if !port.is_empty() && !port.starts_with(':') {
            return Err("a port is written behind a colon: [::1]:7".into());
        }
        (
            ipv6(&decode(address)?)?,
            port.strip_prefix(':').unwrap_or(port),
        )
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        (decode(host)?, port)
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    // `parse` would accept a sign.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port.parse() {
        _ if port.is_empty() => None,
        Ok(port) if digits && port > 0 => Some(port),
        _ => return Err("a port is a number from 1 to 65535".into()),
    };
    Ok(UrlHost { host, port })
}

/// The usual spelling of an IPv6 address, so that equal addresses are equal texts. A zone (`%eth0`) stays as it is.
fn ipv6(text: &str) -> UrlResult<String> {
    let (address, zone) = text.split_at(text.find('%').unwrap_or(text.len()));
    let address: Ipv6Addr = address
        .parse()
        .map_err(|_| "only an IPv6 address is in brackets")?;
    Ok(format!("{address}{zone}"))
}
