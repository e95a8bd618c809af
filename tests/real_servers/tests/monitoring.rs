//! The files in `monitoring/`, with a real Prometheus.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::eventually;
use testkit::process::Spawned;
use testkit::servers::{Prometheus, RedisServer, free_port};

/// A scrape each second, and rates over some scrapes.
const SOON: Duration = Duration::from_secs(60);

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring")
}

fn promtool(args: &[&str]) -> Result<String> {
    let output = Command::new("promtool")
        .args(args)
        .current_dir(monitoring())
        .output()
        .context("promtool, of the package prometheus")?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "promtool {args:?}: {text}");
    Ok(text)
}

#[test]
#[ignore = "needs Prometheus: `cargo xtask full` installs it and runs this"]
fn each_alert_fires_in_its_case_only() -> Result<()> {
    promtool(&["check", "rules", "alerts.yml"])?;
    promtool(&["test", "rules", "alerts.test.yml"]).map(drop)
}

/// Every panel of the dashboard and every alert rule, with the variables that Grafana fills in.
fn queries() -> Result<Vec<String>> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(monitoring().join("grafana.json"))?)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<String> = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str())
        .map(|query| {
            let filled = ["$job", "$store", "$group"]
                .iter()
                .fold(query.to_owned(), |query, name| query.replace(name, ".*"));
            filled
                .replace("$__rate_interval", "5s")
                .replace("$__range", "1m")
        })
        .collect();
    ensure!(queries.len() >= 20, "{queries:?}");
    Ok(queries)
}

/// Losses, errors and clean-ups: a healthy service has no such series.
fn is_of_trouble(query: &str) -> bool {
    [
        "tidelock_losses",
        "error_type!=",
        "tidelock_cleanups",
        "lease_margin",
    ]
    .iter()
    .any(|name| query.contains(name))
}

#[test]
#[ignore = "needs Prometheus: `cargo xtask full` installs it and runs this"]
fn prometheus_scrapes_the_example_and_each_panel_has_data() -> Result<()> {
    let redis = RedisServer::start()?;
    let build = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "tidelock", "--example", "metrics"])
        .status()?;
    ensure!(build.success(), "the example is not built");
    let deps = std::env::current_exe()?;
    let folder = deps.parent().and_then(Path::parent).context("a folder")?;
    // The second process is not scraped: the first waits for its releases, and is woken by messages.
    let mut services = Vec::new();
    for _ in 0..2 {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut service = Command::new(folder.join("examples/metrics"));
        service.args([&redis.url(), &address]);
        let mut service = Spawned::start(service)?;
        service.wait_line("http://", SOON)?;
        services.push((address, service));
    }
    let prometheus = Prometheus::start(&services[0].0, &monitoring().join("alerts.yml"))?;
    for query in queries()? {
        let mut said = String::new();
        let seen = eventually(SOON, &query, || {
            said = promtool(&["query", "instant", &prometheus.url(), &query])?;
            Ok(said.contains("=>") || is_of_trouble(&query))
        });
        seen.with_context(|| said.clone())?;
    }
    let firing = promtool(&[
        "query",
        "instant",
        &prometheus.url(),
        "ALERTS{alertstate=\"firing\"}",
    ])?;
    ensure!(
        !firing.contains("=>"),
        "a healthy service has alarms: {firing}"
    );
    Ok(())
}
