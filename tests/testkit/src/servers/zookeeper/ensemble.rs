use anyhow::{Context, Result};

use super::ZooKeeperServer;
use crate::hosts::Host;
use crate::servers::{Ground, port};

/// Several members of one ensemble. A member that reaches no majority for a second serves no client.
#[derive(Debug)]
pub struct ZooKeeperEnsemble(Vec<ZooKeeperServer>);

impl ZooKeeperEnsemble {
    /// Starts this many members, and waits until all of them serve.
    ///
    /// # Errors
    /// The same as [`ZooKeeperServer::start`].
    pub fn start(members: usize) -> Result<Self> {
        Self::start_all((0..members).map(|_| Ground::default()).collect())
    }

    /// Starts one member on each of these hosts, and waits until all of them serve.
    ///
    /// # Errors
    /// The same as [`ZooKeeperServer::start`].
    pub fn start_on(hosts: &[Host]) -> Result<Self> {
        Self::start_all(hosts.iter().map(Ground::on_host).collect())
    }

    fn start_all(grounds: Vec<Ground>) -> Result<Self> {
        let mut lines = String::from("initLimit=100\nsyncLimit=10\n");
        for (n, ground) in grounds.iter().enumerate() {
            let (quorum, election) = (port::free()?, port::free()?);
            let line = format!("server.{}={}:{quorum}:{election}\n", n + 1, ground.addr());
            lines.push_str(&line);
        }
        let mut servers = Vec::new();
        for (n, ground) in grounds.into_iter().enumerate() {
            let mut server = ZooKeeperServer::prepare(ground, &lines)?;
            server.member = Some(n + 1);
            server.port = port::free()?;
            server.configure()?;
            // We start them all before we wait: no member serves before most of them run.
            server.process.spawn(server.command())?;
            servers.push(server);
        }
        servers.iter().try_for_each(ZooKeeperServer::wait_ready)?;
        Ok(Self(servers))
    }

    /// All members.
    pub fn members(&self) -> &[ZooKeeperServer] {
        &self.0
    }

    /// `zookeeper://HOST:P1,HOST2:P2,…`
    pub fn url(&self) -> String {
        let addrs = self.0.iter().map(|server| server.addr().to_string());
        format!("zookeeper://{}", addrs.collect::<Vec<_>>().join(","))
    }

    /// Waits until all members serve.
    ///
    /// # Errors
    /// Fails when that takes longer than 30 s.
    pub fn await_ok(&self) -> Result<()> {
        let mut servers = self.0.iter();
        servers.try_for_each(ZooKeeperServer::wait_ready)
    }

    /// The current leader.
    ///
    /// # Errors
    /// Fails when there is no leader.
    pub fn leader(&self) -> Result<&ZooKeeperServer> {
        let mut servers = self.0.iter();
        let leads = |server: &&ZooKeeperServer| {
            let said = server.say("srvr");
            said.is_ok_and(|said| said.contains("Mode: leader"))
        };
        servers.find(leads).context("no member leads")
    }
}
