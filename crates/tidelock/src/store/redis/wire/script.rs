//! A Lua script, which a request names by its hash.

use std::sync::LazyLock;

/// A script. We call it by its hash, and send its text if the server does not have it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: &'static str,
    sha: LazyLock<String>,
}

impl Script {
    /// `hash` computes the hash of the source on first use.
    pub(crate) const fn new(source: &'static str, hash: fn() -> String) -> Self {
        Self {
            source,
            sha: LazyLock::new(hash),
        }
    }

    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

/// The hash by which a server knows a script.
pub(crate) fn sha1(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
