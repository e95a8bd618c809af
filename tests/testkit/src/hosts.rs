//! Several hosts on one machine: each is a network namespace with its own address, and a switch in a namespace of its
//! own connects them. Nothing here touches the machine's own network.
//!
//! The switch drops what a [`Partition`] names, by the pair of ports that a frame comes from and goes to. So one table
//! describes the whole network at any moment, it is replaced in one step, and ARP is cut with everything else.

mod host;
mod namespace;
mod partition;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use host::Host;
use namespace::{Namespace, run};
pub use partition::Partition;

/// A network of hosts. It ends with this value; processes on its hosts must end before.
#[derive(Debug)]
pub struct Network {
    switch: Namespace,
    /// The last part of the last address that was given out.
    given: AtomicU8,
    /// The ports that are slowed down.
    slow: Mutex<Vec<String>>,
}

impl Network {
    /// A network without hosts.
    ///
    /// # Errors
    /// Fails without root's rights, or when the kernel or the machine lacks what it needs.
    pub fn new() -> Result<Self> {
        let switch = Namespace::new()?;
        run(switch.ip(&["link", "add", "switch", "type", "bridge"]))?;
        run(switch.ip(&["link", "set", "switch", "up"]))?;
        Ok(Self {
            switch,
            given: AtomicU8::new(0),
            slow: Mutex::default(),
        })
    }

    /// Why this machine cannot have such networks. `None`: it can.
    pub fn refusal() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("only root can make network namespaces".to_owned());
        }
        let attempt = || {
            let network = Self::new()?;
            let hosts = [network.host()?, network.host()?];
            network.cut(&Partition::between(&hosts[..1], &hosts[1..]))
        };
        let failed = attempt().err();
        failed.map(|error| format!("this machine makes no network of namespaces: {error:#}"))
    }

    /// Whether a test must be left out because this machine cannot have such networks. It says so, also where the output
    /// of a test that passes is not shown.
    ///
    /// # Errors
    /// Fails instead where `CI` is set: there the machine must be able to.
    pub fn left_out(what: &str) -> Result<bool> {
        let Some(why) = Self::refusal() else {
            return Ok(false);
        };
        ensure!(std::env::var_os("CI").is_none(), "{why}");
        // Not by `eprintln`, which the test harness keeps for itself.
        writeln!(std::io::stderr(), "LEFT OUT: {what}: {why}")?;
        Ok(true)
    }

    /// Adds a host that reaches all the others.
    ///
    /// # Errors
    /// Fails when the kernel refuses, or when there are 250 hosts already.
    pub fn host(&self) -> Result<Host> {
        let number = self.given.fetch_add(1, Ordering::SeqCst) + 1;
        ensure!(number <= 250, "the network is full");
        let addr = Ipv4Addr::new(10, 77, 0, number);
        let port = format!("port{number}");
        let inside = Namespace::new()?;
        let ends = [
            "link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns",
        ];
        run(inside.ip(&[&ends[..], &[self.switch.name()]].concat()))?;
        run(self
            .switch
            .ip(&["link", "set", &port, "master", "switch", "up"]))?;
        run(inside.ip(&["addr", "add", &format!("{addr}/24"), "dev", "eth0"]))?;
        run(inside.ip(&["link", "set", "eth0", "up"]))?;
        run(inside.ip(&["link", "set", "lo", "up"]))?;
        Ok(Host::new(inside, addr, port))
    }

    /// Adds this many hosts.
    ///
    /// # Errors
    /// The same as [`host`](Self::host).
    pub fn hosts(&self, count: usize) -> Result<Vec<Host>> {
        (0..count).map(|_| self.host()).collect()
    }

    /// From now on the switch silently drops what this partition names, and nothing else.
    ///
    /// # Errors
    /// Fails when the kernel refuses.
    pub fn cut(&self, partition: &Partition) -> Result<()> {
        let mut nft = self.switch.command("nft");
        nft.args(["-f", "-"]).stdin(Stdio::piped());
        let mut child = nft.spawn().context("starting nft")?;
        let mut stdin = child.stdin.take().context("its stdin")?;
        stdin.write_all(partition.rules().as_bytes())?;
        drop(stdin);
        let status = child.wait()?;
        ensure!(status.success(), "nft: {status}");
        Ok(())
    }

    /// Everything passes again.
    ///
    /// # Errors
    /// Fails when the kernel refuses.
    pub fn heal(&self) -> Result<()> {
        self.cut(&Partition::default())?;
        let slow: Vec<String> = self.slowed().drain(..).collect();
        slow.iter()
            .try_for_each(|port| self.tc(&["qdisc", "del", "dev", port, "root"]))
    }

    /// Slows down everything that goes to this host, until [`heal`](Self::heal): by this delay where the kernel can
    /// delay packets, and otherwise by a line of [`SLOW_LINE`] kbit/s, on which packets wait for each other.
    ///
    /// # Errors
    /// Fails when the kernel refuses.
    pub fn slow_down(&self, host: &Host, by: Duration) -> Result<()> {
        let root = ["qdisc", "replace", "dev", host.port(), "root"];
        if Self::delays() {
            let delay = format!("{}ms", by.as_millis());
            self.tc(&[&root[..], &["netem", "delay", &delay, "limit", "10000"]].concat())?;
        } else {
            let rate = format!("{SLOW_LINE}kbit");
            let line = ["tbf", "rate", &rate, "burst", "1600", "latency", "1s"];
            self.tc(&[&root[..], &line].concat())?;
        }
        self.slowed().push(host.port().to_owned());
        Ok(())
    }

    /// Whether the kernel can delay packets (`tc netem`).
    pub fn delays() -> bool {
        static DELAYS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        let attempt = || {
            let network = Self::new()?;
            let host = network.host()?;
            network.tc(&[
                "qdisc",
                "add",
                "dev",
                host.port(),
                "root",
                "netem",
                "delay",
                "1ms",
            ])
        };
        *DELAYS.get_or_init(|| attempt().is_ok())
    }

    fn tc(&self, args: &[&str]) -> Result<()> {
        let mut tc = self.switch.command("tc");
        tc.args(args);
        run(tc)
    }

    fn slowed(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        let slow = self.slow.lock();
        slow.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The rate of a slow line in kbit/s: some packets a second of all that a busy client sends.
pub const SLOW_LINE: u32 = 200;
