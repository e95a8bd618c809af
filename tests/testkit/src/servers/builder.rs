use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::admin::{Login, OPERATOR};
use super::member::{Membership, Part};
use super::{Certs, Flavour, RedisServer, Tls};
use crate::hosts::Host;
use crate::process::FakeClock;

/// The settings of a server. Made by [`RedisServer::builder`].
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
    host: Option<Host>,
    pub(super) membership: Membership,
}

impl RedisBuilder {
    /// The flavour; the default is [`Flavour::from_env`].
    pub fn flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = Some(flavour);
        self
    }

    /// Additional arguments of the server's command line; they override those of the builder.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Makes the port accept only TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Lines of an access list (`user default off`, `user app on >secret ~* &* +@all`). The builder adds a user for
    /// [`RedisServer::admin`].
    pub fn acl(mut self, lines: &str) -> Self {
        self.acl = Some(lines.to_owned());
        self
    }

    /// Requires this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Writes every change to disk before the reply, so that the data survives a `restart`.
    pub fn appendonly(mut self, yes: bool) -> Self {
        self.appendonly = yes;
        self
    }

    /// Allows `DEBUG`.
    pub fn debug_commands(mut self, yes: bool) -> Self {
        self.debug_commands = yes;
        self
    }

    /// Runs the server under a wall clock that [`RedisServer::shift_clock`] moves.
    pub fn fake_clock(mut self, yes: bool) -> Self {
        self.fake_clock = yes;
        self
    }

    /// Listens on `::1` instead of `127.0.0.1`.
    pub fn ipv6(mut self, yes: bool) -> Self {
        self.ipv6 = yes;
        self
    }

    /// Runs the server on this host, where it listens on the host's address.
    pub fn on_host(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// Puts the data on a separate disk of this many bytes, see [`RedisServer::disk`]. Each start gets a new, empty
    /// one. The system must let a user mount a file system in a namespace.
    pub fn disk(mut self, bytes: u64) -> Self {
        self.disk = Some(bytes);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// Fails when the program is missing, lacks a feature, or does not become ready; the error contains its output.
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

    /// The server's address.
    pub(super) fn addr(&self) -> IpAddr {
        if let Some(host) = &self.host {
            host.addr().into()
        } else if self.ipv6 {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        }
    }

    /// The host that it runs on, if it is not this machine.
    pub(super) fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The login with all rights: the operator of the access list, or the password.
    pub(super) fn login(&self) -> Option<Login<'_>> {
        match (&self.acl, &self.password) {
            (Some(_), _) => Some((Some(OPERATOR), OPERATOR)),
            (None, Some(password)) => Some((None, password)),
            (None, None) => None,
        }
    }

    /// A builder with the same flavour, host and TLS, and no other setting.
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
        let program = flavour.program()?;
        let mut command = match (self.disk, &self.host) {
            (None, None) => Command::new(program),
            (None, Some(host)) => host.command(program),
            (Some(bytes), None) => on_a_disk(bytes, &dir.join(DISK), &program)?,
            (Some(_), Some(_)) => bail!("a server has a host or a disk of its own, not both"),
        };
        if self.membership.conf.is_some() {
            command.arg(dir.join("conf"));
        }
        if self.membership.part == Part::Sentinel {
            command.arg("--sentinel");
        }
        let plain = if certs.is_some() { 0 } else { port };
        let host = self.addr().to_string();
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
        if self.host.is_some() {
            // Without a password the server would answer its own host only.
            command.args(["--protected-mode", "no"]);
        }
        if self.appendonly {
            command.args(["--appendfsync", "always"]);
        }
        if let (Some(certs), Some(tls)) = (certs, self.tls) {
            add_tls(&mut command, tls, certs, port);
        }
        if self.acl.is_some() {
            command.arg("--aclfile").arg(dir.join("users.acl"));
        }
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        // Redis 6.2 always allows DEBUG, and rejects the option.
        if self.debug_commands && flavour != Flavour::Redis62 {
            command.args(["--enable-debug-command", "yes"]);
        }
        command.args(&self.args);
        Ok(command)
    }
}

fn add_tls(command: &mut Command, tls: Tls, certs: &Certs, port: u16) {
    let clients = if tls.client_certs { "yes" } else { "no" };
    command
        .args(["--tls-port", &port.to_string()])
        .args(["--tls-auth-clients", clients]);
    command
        .arg("--tls-cert-file")
        .arg(&certs.server)
        .arg("--tls-key-file")
        .arg(&certs.server_key);
    command.arg("--tls-ca-cert-file").arg(&certs.ca);
}

/// The mount point of a small disk, visible only to the server.
pub(super) const DISK: &str = "disk";

/// A program in a namespace with a mounted small disk.
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
