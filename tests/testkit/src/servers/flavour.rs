use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The server program. The default is Debian's Redis 7.0, or the flavour in `TIDELOCK_FLAVOUR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// The oldest supported server. This build has no TLS; its clock can be faked.
    Redis62,
    /// The distribution's `redis-server`.
    Redis7,
    /// Redis 8, unpacked next to the distribution's packages.
    Redis8,
    /// Valkey 9. This build has no TLS; its clock can be faked.
    Valkey9,
}

impl Flavour {
    /// All flavours.
    pub const ALL: [Self; 4] = [Self::Redis62, Self::Redis7, Self::Redis8, Self::Valkey9];

    /// The name in `TIDELOCK_FLAVOUR` and in the directory of the installed server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis62 => "redis62",
            Self::Redis7 => "redis7",
            Self::Redis8 => "redis8",
            Self::Valkey9 => "valkey9",
        }
    }

    /// The flavour in `TIDELOCK_FLAVOUR`, else Redis 7.
    ///
    /// # Errors
    /// Fails when the variable contains an unknown name.
    pub fn from_env() -> Result<Self> {
        let Some(name) = env::var_os("TIDELOCK_FLAVOUR") else {
            return Ok(Self::Redis7);
        };
        let known = Self::ALL.into_iter().find(|flavour| name == flavour.name());
        known.with_context(|| {
            format!(
                "TIDELOCK_FLAVOUR={} is none of redis62, redis7, redis8, valkey9",
                name.display()
            )
        })
    }

    /// Whether the program was built with TLS.
    pub fn has_tls(self) -> bool {
        matches!(self, Self::Redis7 | Self::Redis8)
    }

    /// Whether the program runs under a [`FakeClock`](crate::process::FakeClock). With jemalloc it does not: jemalloc
    /// and libfaketime deadlock.
    pub fn has_fake_clock(self) -> bool {
        matches!(self, Self::Redis62 | Self::Valkey9)
    }

    /// The path of its program: `TIDELOCK_REDIS7` (or `…_VALKEY9`, and so on), else the directory of `cargo xtask
    /// servers`, else, for Redis 7, `redis-server` on the search path.
    ///
    /// # Errors
    /// Fails when there is none.
    pub fn program(self) -> Result<PathBuf> {
        let variable = format!("TIDELOCK_{}", self.name().to_uppercase());
        if let Some(path) = env::var_os(&variable) {
            return Ok(path.into());
        }
        let installed = workspace()
            .join("target/servers")
            .join(self.name())
            .join("server");
        if installed.is_file() {
            return Ok(installed);
        }
        if self == Self::Redis7
            && let Some(path) = on_path("redis-server")
        {
            return Ok(path);
        }
        let full = if matches!(self, Self::Redis62 | Self::Redis8) {
            " --full"
        } else {
            ""
        };
        bail!(
            "no {} server here: run `cargo xtask servers{full}`, or set {variable} to its program",
            self.name()
        )
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let dirs = env::var_os("PATH")?;
    env::split_paths(&dirs)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}
