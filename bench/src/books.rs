//! A server's own counters, from `INFO`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use testkit::servers::RedisServer;

/// The server's counters at one moment. Callers subtract two readings.
#[derive(Debug, Clone, Copy)]
pub struct Books {
    /// Script calls, subscribes and unsubscribes.
    pub requests: f64,
    /// Bytes received from all clients.
    pub came: f64,
    /// Bytes sent to all clients.
    pub went: f64,
    /// Processor time, in microseconds.
    pub cpu_us: f64,
    /// Memory in use, in bytes (`used_memory`).
    pub memory: f64,
}

impl Books {
    /// Reads the counters.
    ///
    /// # Errors
    /// The server does not answer, or a field is missing or malformed.
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
