//! What a server has written down about itself.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use testkit::servers::RedisServer;

/// What the server has written down about itself.
#[derive(Debug, Clone, Copy)]
pub struct Books {
    /// Calls of scripts, and subscriptions.
    pub requests: f64,
    /// Bytes from all clients.
    pub came: f64,
    /// Bytes to all clients.
    pub went: f64,
    /// Microseconds on a processor.
    pub cpu_us: f64,
    /// Bytes of its data, and what goes with them.
    pub memory: f64,
}

impl Books {
    /// Reads them.
    ///
    /// # Errors
    /// When the server does not answer, or not as expected.
    pub fn read(server: &RedisServer) -> Result<Self> {
        let text: String = server.query(&["INFO", "all"])?;
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .collect();
        let number = |field: &str| -> Result<f64> {
            let text = fields.get(field).with_context(|| format!("no {field}"))?;
            Ok(text.parse()?)
        };
        let scripts = [
            "cmdstat_evalsha",
            "cmdstat_eval",
            "cmdstat_subscribe",
            "cmdstat_unsubscribe",
        ];
        let calls = scripts.iter().filter_map(|name| {
            let calls = fields
                .get(name)?
                .strip_prefix("calls=")?
                .split(',')
                .next()?;
            calls.parse::<f64>().ok()
        });
        Ok(Self {
            requests: calls.sum(),
            came: number("total_net_input_bytes")?,
            went: number("total_net_output_bytes")?,
            memory: number("used_memory")?,
            cpu_us: (number("used_cpu_user")? + number("used_cpu_sys")?) * 1e6,
        })
    }
}
