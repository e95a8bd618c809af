//! Which hosts this server answers for.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::uri::Authority;

/// A page of another site can make its own name point at this machine, and would then read ours as a page of that name
/// (DNS rebinding). An address cannot be made to point elsewhere, so each address is known; ports may be forwarded.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// `others`: the names besides `localhost`.
    pub(super) fn new(others: Vec<String>) -> Self {
        Self(others)
    }

    /// Whether requests for this host are answered. `host`: a name or an address, with or without a port.
    pub(super) fn knows(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        // `user@host`, which no browser sends.
        if host.contains('@') {
            return false;
        }
        let name = authority.host();
        if let Some(name) = name.strip_prefix('[') {
            let address = name.strip_suffix(']').unwrap_or(name);
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let mut known = self.0.iter().map(String::as_str).chain(["localhost"]);
        name.parse::<Ipv4Addr>().is_ok() || known.any(|known| known.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_named_hosts_are_known() {
        let hosts = Hosts::new(vec!["locks.internal".to_owned()]);
        for known in [
            "localhost",
            "localhost:7780",
            "LOCALHOST:1",
            "127.0.0.1",
            "127.0.0.1:7780",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:7780",
            "locks.internal",
            "Locks.Internal:443",
        ] {
            assert!(hosts.knows(known), "{known}");
        }
        for unknown in [
            "",
            ":7780",
            "evil.example",
            "evil.example:7780",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil@localhost",
            "evil.example@127.0.0.1",
            "[evil.example]",
            "[::1",
            "localhost/",
            "localhost, evil.example",
            "x.locks.internal",
            "0x7f000001",
        ] {
            assert!(!hosts.knows(unknown), "{unknown}");
        }
    }
}
