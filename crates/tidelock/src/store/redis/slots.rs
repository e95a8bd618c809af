//! The slots of a cluster: computes the slot of a key, and parses redirections.

use crate::store::redis::address::HostAddress;
use crate::store::redis::keys;

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key: the hash of its hash tag, or else of the whole key.
pub(crate) fn of(key: &str) -> u16 {
    crc16(keys::hashed(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, which clusters use. Bit by bit: keys are short, and each request hashes one.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// The address of a node. An empty host means the host of the node we queried.
pub(crate) fn node_address(host: &str, port: u16, asked: &HostAddress) -> HostAddress {
    let (own, tls) = match asked {
        HostAddress::Tcp { host, tls, .. } => (host.as_str(), *tls),
        HostAddress::Unix(_) => ("localhost", false),
    };
    let host = if host.is_empty() { own } else { host };
    HostAddress::Tcp {
        host: host.to_owned(),
        port,
        tls,
    }
}

/// Parses a redirection: `slot host:port`, with an IPv6 address without brackets.
pub(crate) fn redirection(text: &str, asked: &HostAddress) -> Option<(u16, HostAddress)> {
    let (slot, address) = text.trim().split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host == "?" { "" } else { host };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, node_address(host, port.parse().ok()?, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::tcp;

    fn tls(host: &str, port: u16) -> HostAddress {
        tcp(host, port, true)
    }

    #[test]
    fn slots_are_those_of_the_server() {
        // The values that `CLUSTER KEYSLOT` returns.
        for (key, slot) in [
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}:bar", 12182),
            ("", 0),
            ("{}foo", 9500),
            ("foo{bar", 15278),
            ("schlüssel", 7677),
        ] {
            assert_eq!(of(key), slot, "{key}");
        }
    }

    #[test]
    fn redirections_are_followed_from_where_they_came() {
        let asked = tls("seed", 1);
        for (said, slot, address) in [
            ("3999 10.0.0.2:6381", 3999, tls("10.0.0.2", 6381)),
            ("0 :7", 0, tls("seed", 7)),
            ("1 ?:7", 1, tls("seed", 7)),
            ("2 fe80::1:7", 2, tls("fe80::1", 7)),
            ("2 node-3.shop:7", 2, tls("node-3.shop", 7)),
            ("16383 [fe80::1]:7", 16383, tls("fe80::1", 7)),
        ] {
            assert_eq!(redirection(said, &asked), Some((slot, address)), "{said}");
        }
        for nonsense in ["", "x a:1", "1 a", "1 a:x", "16384 a:1", "99999 a:1"] {
            assert_eq!(redirection(nonsense, &asked), None, "{nonsense}");
        }
    }
}
