use anyhow::Result;

use super::{EtcdBuilder, EtcdServer};
use crate::servers::{Ground, port};

/// Several members of one cluster.
#[derive(Debug)]
pub struct EtcdCluster(Vec<EtcdServer>);

impl EtcdCluster {
    /// Starts this many members, and waits until all of them answer.
    ///
    /// # Errors
    /// The same as [`EtcdBuilder::start`].
    pub fn start(members: u16) -> Result<Self> {
        let mut peers = Vec::new();
        for n in 0..members {
            peers.push((format!("m{n}"), port::free()?));
        }
        let all: Vec<String> = peers
            .iter()
            .map(|(name, port)| format!("{name}=http://127.0.0.1:{port}"))
            .collect();
        let all = all.join(",");
        let mut servers = Vec::new();
        for (name, port) in peers {
            let config = EtcdBuilder {
                peers: Some((name, port, all.clone())),
                ..EtcdBuilder::default()
            };
            let server = EtcdServer::prepare(config, Ground::default())?;
            // We start them all before we wait: no member is healthy before most of them run.
            server.run()?;
            servers.push(server);
        }
        servers.iter().try_for_each(EtcdServer::wait_ready)?;
        Ok(Self(servers))
    }

    /// All members.
    pub fn members(&self) -> &[EtcdServer] {
        &self.0
    }

    /// `etcd://127.0.0.1:P1,127.0.0.1:P2,…`
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self
            .0
            .iter()
            .map(|server| server.addr().to_string())
            .collect();
        format!("etcd://{}", addrs.join(","))
    }

    /// The current leader.
    ///
    /// # Errors
    /// Fails when there is no leader.
    pub fn leader(&self) -> Result<&EtcdServer> {
        for server in self.0.iter().filter(|server| server.pid().is_ok()) {
            let said = server.admin(&["endpoint", "status", "-w", "fields"])?;
            let field = |name: &str| {
                let lines = said.lines().filter_map(|line| line.split_once(" : "));
                let mut values = lines.filter(|(key, _)| key.trim_matches('"') == name);
                values.next().map(|(_, value)| value.to_owned())
            };
            if field("MemberID").is_some() && field("MemberID") == field("Leader") {
                return Ok(server);
            }
        }
        anyhow::bail!("no member leads")
    }
}
