use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::process::is_a_process;
use super::{ServerProcess, port};

/// The limit of one start. It takes a second; only a broken server reaches the limit.
const START: Duration = Duration::from_secs(30);

/// A Prometheus that scrapes one service each second and evaluates alert rules. It lives as long as this value.
#[derive(Debug)]
pub struct Prometheus {
    process: ServerProcess,
    port: u16,
}

impl Prometheus {
    /// Starts a server that scrapes `http://SERVICE/metrics` as the job `service`, with these alert rules.
    ///
    /// # Errors
    /// Fails when it is not installed, refuses the rules, or does not answer.
    pub fn start(service: &str, rules: &Path) -> Result<Self> {
        let mut server = Self {
            process: ServerProcess::new("prometheus")?,
            port: 0,
        };
        let rules = fs::canonicalize(rules).with_context(|| rules.display().to_string())?;
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs: [{{job_name: service, static_configs: [{{targets: ['{service}']}}]}}]\n",
            rules.display()
        );
        fs::write(server.dir().join("prometheus.yml"), config)?;
        port::start_on(port::free, |port| {
            server.port = port;
            server.run()
        })?;
        Ok(server)
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn run(&self) -> Result<()> {
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .arg(format!(
                "--config.file={}",
                self.dir().join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                self.dir().join("data").display()
            ));
        self.process.start(command, START, || {
            TcpStream::connect(("127.0.0.1", self.port))?;
            Ok(())
        })
    }
}

is_a_process!(Prometheus);
