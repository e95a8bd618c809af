use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::admin::{Login, OPERATOR};
use super::member::{Membership, Part};
use super::{Certs, Flavour, RedisServer, Tls};
use crate::process::FakeClock;

/// What a server is started with. Made by [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
#[allow(clippy::struct_excessive_bools, reason = "options, not a state")]
pub struct RedisBuilder {
    flavour: Option<Flavour>,
    args: Vec<String>,
    tls: Option<Tls>,
    acl: Option<String>,
    password: Option<String>,
    appendonly: bool,
    debug_commands: bool,
    fake_clock: bool,
    ipv6: bool,
    disk: Option<u64>,
    pub(super) membership: Membership,
}

impl RedisBuilder {
    /// Which server; without this, [`Flavour::from_env`].
    pub fn flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = Some(flavour);
        self
    }

    /// More arguments of the server's command line; they win over those set here.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Speaks TLS, and only TLS, on its port.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Lines of an access list (`user default off`, `user app on >secret ~* &* +@all`). A user for
    /// [`RedisServer::admin`] is added to them.
    pub fn acl(mut self, lines: &str) -> Self {
        self.acl = Some(lines.to_owned());
        self
    }

    /// Asks everybody for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Writes every change to disk before it is answered, so that a `restart` finds it.
    pub fn appendonly(mut self, yes: bool) -> Self {
        self.appendonly = yes;
        self
    }

    /// Allows `DEBUG`.
    pub fn debug_commands(mut self, yes: bool) -> Self {
        self.debug_commands = yes;
        self
    }

    /// Runs it under a wall clock that [`RedisServer::shift_clock`] moves.
    pub fn fake_clock(mut self, yes: bool) -> Self {
        self.fake_clock = yes;
        self
    }

    /// Listens on `::1` instead of `127.0.0.1`.
    pub fn ipv6(mut self, yes: bool) -> Self {
        self.ipv6 = yes;
        self
    }

    /// Keeps its data on a disk of its own of so many bytes, see [`RedisServer::disk`]. Each start has a new, empty one.
    /// Needs a system that lets a user mount something in a namespace of their own.
    pub fn disk(mut self, bytes: u64) -> Self {
        self.disk = Some(bytes);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// When its program is missing, cannot do what is asked for, or does not get ready; with what it said.
    pub fn start(self) -> Result<RedisServer> {
        RedisServer::launch(&self)
    }

    pub(super) fn which(&self) -> Result<Flavour> {
        let flavour = self.flavour.map_or_else(Flavour::from_env, Ok)?;
        ensure!(
            self.tls.is_none() || flavour.has_tls(),
            "the {} here has no TLS",
            flavour.name()
        );
        ensure!(
            !self.fake_clock || flavour.has_fake_clock(),
            "{} hangs under a fake clock: take Valkey9 or Redis62",
            flavour.name()
        );
        Ok(flavour)
    }

    /// Where it listens.
    pub(super) fn host(&self) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        }
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Who may do everything: the operator of the access list, or whoever knows the password.
    pub(super) fn login(&self) -> Option<Login<'_>> {
        match (&self.acl, &self.password) {
            (Some(_), _) => Some((Some(OPERATOR), OPERATOR)),
            (None, Some(password)) => Some((None, password)),
            (None, None) => None,
        }
    }

    /// The same flavour, host and TLS, and nothing else of it.
    pub(super) fn bare(&self) -> Self {
        Self {
            flavour: self.flavour,
            tls: self.tls,
            ipv6: self.ipv6,
            ..Self::default()
        }
    }

    pub(super) fn put_first(&mut self, args: &[&str]) {
        self.args
            .splice(0..0, args.iter().map(|&arg| arg.to_owned()));
    }

    pub(super) fn open_password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(super) fn make_certs(&self, dir: &Path) -> Result<Option<Certs>> {
        if let Some(shared) = &self.membership.certs {
            return Ok(Some(shared.clone()));
        }
        self.tls.map(|tls| Certs::create(dir, tls.cert)).transpose()
    }

    pub(super) fn make_clock(&self, dir: &Path) -> Result<Option<FakeClock>> {
        self.fake_clock.then(|| FakeClock::new(dir)).transpose()
    }

    pub(super) fn write_acl(&self, dir: &Path) -> Result<()> {
        let Some(lines) = &self.acl else {
            return Ok(());
        };
        let operator = format!("user {OPERATOR} on >{OPERATOR} ~* &* +@all");
        fs::write(
            dir.join("users.acl"),
            format!("{}\n{operator}\n", lines.trim_end()),
        )
        .context("the access list")
    }

    pub(super) fn command(
        &self,
        flavour: Flavour,
        dir: &Path,
        port: u16,
        certs: Option<&Certs>,
    ) -> Result<Command> {
        let mut command = match self.disk {
            None => Command::new(flavour.program()?),
            Some(bytes) => on_a_disk(bytes, &dir.join(DISK), &flavour.program()?)?,
        };
        if self.membership.conf.is_some() {
            command.arg(dir.join("conf"));
        }
        if self.membership.part == Part::Sentinel {
            command.arg("--sentinel");
        }
        let plain = if certs.is_some() { 0 } else { port };
        let host = self.host().to_string();
        command.args(["--bind", &host, "--save", "", "--loglevel", "notice"]);
        command.args([
            "--port",
            &plain.to_string(),
            "--appendonly",
            if self.appendonly { "yes" } else { "no" },
        ]);
        command
            .arg("--dir")
            .arg(self.disk.map_or_else(|| dir.to_owned(), |_| dir.join(DISK)))
            .arg("--unixsocket")
            .arg(dir.join("socket"));
        if self.appendonly {
            command.args(["--appendfsync", "always"]);
        }
        if let (Some(certs), Some(tls)) = (certs, self.tls) {
            let clients = if tls.client_certs { "yes" } else { "no" };
            command.args([
                "--tls-port",
                &port.to_string(),
                "--tls-auth-clients",
                clients,
            ]);
            command
                .arg("--tls-cert-file")
                .arg(&certs.server)
                .arg("--tls-key-file")
                .arg(&certs.server_key);
            command.arg("--tls-ca-cert-file").arg(&certs.ca);
        }
        if self.acl.is_some() {
            command.arg("--aclfile").arg(dir.join("users.acl"));
        }
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        // Redis 6.2 always allows DEBUG, and does not know the option.
        if self.debug_commands && flavour != Flavour::Redis62 {
            command.args(["--enable-debug-command", "yes"]);
        }
        command.args(&self.args);
        Ok(command)
    }
}

/// Where a small disk is mounted, for the server only.
pub(super) const DISK: &str = "disk";

/// A program in a namespace in which a small disk is mounted.
fn on_a_disk(bytes: u64, at: &Path, program: &Path) -> Result<Command> {
    fs::create_dir_all(at)?;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg(format!(
        "mount -t tmpfs -o size={bytes} none '{}' && exec \"$0\" \"$@\"",
        at.display()
    ));
    command.arg(program);
    Ok(command)
}
