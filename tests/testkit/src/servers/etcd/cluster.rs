use anyhow::{Context, Result};

use super::{EtcdBuilder, EtcdServer, START};
use crate::hosts::Host;
use crate::servers::wait::until;
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
        Self::start_all((0..members).map(|_| Ground::default()).collect())
    }

    /// Starts one member on each of these hosts.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_on(hosts: &[Host]) -> Result<Self> {
        Self::start_all(hosts.iter().map(Ground::on_host).collect())
    }

    fn start_all(grounds: Vec<Ground>) -> Result<Self> {
        let mut peers = Vec::new();
        for (n, ground) in grounds.into_iter().enumerate() {
            peers.push((format!("m{n}"), port::free()?, ground));
        }
        let all: Vec<String> = peers
            .iter()
            .map(|(name, port, ground)| format!("{name}=http://{}:{port}", ground.addr()))
            .collect();
        let all = all.join(",");
        let mut servers = Vec::new();
        for (name, port, ground) in peers {
            let config = EtcdBuilder {
                peers: Some((name, port, all.clone())),
                ..EtcdBuilder::default()
            };
            let server = EtcdServer::prepare(config, ground)?;
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

    /// Waits until all members answer and one leads.
    ///
    /// # Errors
    /// Fails when that takes longer than 30 s.
    pub fn await_ok(&self) -> Result<()> {
        until("members that answer", START, || {
            self.0.iter().try_for_each(EtcdServer::check_health)?;
            self.leader().map(drop)
        })
    }

    /// The current leader.
    ///
    /// # Errors
    /// Fails when there is no leader.
    pub fn leader(&self) -> Result<&EtcdServer> {
        for server in self.0.iter().filter(|server| server.pid().is_ok()) {
            let status = Status::of(server)?;
            if status.field("MemberID").is_some()
                && status.field("MemberID") == status.field("Leader")
            {
                return Ok(server);
            }
        }
        anyhow::bail!("no member leads")
    }

    /// Makes another member the leader, as before maintenance.
    ///
    /// # Errors
    /// Fails when there is no leader, or when it refuses.
    pub fn move_leader(&self) -> Result<()> {
        let leader = self.leader()?;
        let others = self
            .0
            .iter()
            .filter(|member| member.addr() != leader.addr());
        let next = { others }.find(|member| member.pid().is_ok());
        let status = Status::of(next.context("there is no other member")?)?;
        let id: u64 = status.field("MemberID").context("it has no id")?.parse()?;
        leader.admin(&["move-leader", &format!("{id:x}")]).map(drop)
    }
}

/// What `etcdctl endpoint status` says of a member.
struct Status(String);

impl Status {
    fn of(member: &EtcdServer) -> Result<Self> {
        let said = member.admin(&["endpoint", "status", "-w", "fields"])?;
        Ok(Self(said))
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(" : "));
        let field = fields.find(|(key, _)| key.trim_matches('"') == name);
        field.map(|(_, value)| value)
    }
}
