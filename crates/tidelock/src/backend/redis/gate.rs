//! The way in: address, user, password, and what to say when the server does not open.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::conn::{Closed, Conn, Ears, Login, Request};
use super::errors::unsent;
use super::reply::Trouble;
use super::url::Target;
use super::wire;
use crate::Credentials;
use crate::backend::{Timers, TlsFiles};
use crate::error::{Error, ErrorKind, Result};

/// Where to connect, and as whom.
pub(super) struct Gate {
    pub(super) target: Target,
    pub(super) credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    pub(super) tls: TlsFiles,
    pub(super) timers: Timers,
    pub(super) limit: Duration,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Gate {
    /// Connects on the runtime this is called on, within the limit. With `pushes`, for subscriptions.
    pub(super) async fn enter(&self, pushes: Option<Ears>) -> Result<Conn> {
        if let Some(result) = self.timers.limit(self.limit, self.knock(pushes)).await {
            return result;
        }
        // A plain-text server takes the beginning of TLS for a command and waits for its end.
        let hint = if self.target.is_tls() {
            "; if the port speaks plain text, write redis:// instead of rediss://"
        } else {
            ""
        };
        Err(unsent(format_args!(
            "{}: no connection within {:?}{hint}",
            self.target.place, self.limit
        )))
    }

    async fn knock(&self, pushes: Option<Ears>) -> Result<Conn> {
        let stream = wire::dial(&self.target.place, &self.tls).await?;
        let conn = Conn::open(stream, &self.login(), pushes)
            .await
            .map_err(|closed| self.turned_away(closed))?;
        self.greet(&conn).await?;
        Ok(conn)
    }

    /// Asked for at each connect: passwords are rotated while clients run.
    fn login(&self) -> Login {
        let (user, password) = match &self.credentials {
            Some(ask) => {
                let given = ask();
                (given.user, given.password)
            }
            None => (self.target.user.clone(), self.target.password.clone()),
        };
        Login {
            db: self.target.db,
            user,
            password,
        }
    }

    /// A server that wants a password says so only when asked for something; so does one that is still loading.
    async fn greet(&self, conn: &Conn) -> Result<()> {
        match conn.ask(&Request::new("PING")).await {
            Ok(_) => Ok(()),
            Err(Trouble::Complaint(complaint)) => {
                let error = complaint.error();
                // Logged in, only not allowed to ping.
                if error.kind() == ErrorKind::Refused && !complaint.ends_session() {
                    return Ok(());
                }
                Err(if error.outcome_unknown() {
                    unsent(error.detail().unwrap_or_default())
                } else {
                    error
                })
            }
            Err(Trouble::Broken(why)) => Err(unsent(format_args!("{}: {why}", self.target.place))),
        }
    }

    fn turned_away(&self, closed: Closed) -> Error {
        let place = &self.target.place;
        match closed {
            Closed::Stranger(why) => Error::new(ErrorKind::Refused).because(format!(
                "{place}: authentication failed: check user and password ({why})"
            )),
            Closed::Ended(why) => {
                let hint = if self.target.is_tls() {
                    "if the server wants a client certificate, set `tls_identity`"
                } else {
                    "if the port speaks TLS, write rediss:// instead of redis://"
                };
                unsent(format_args!(
                    "{place}: the server ended the connection during the greeting; {hint} ({why})"
                ))
            }
            Closed::Complaint(complaint) => {
                let error = complaint.error();
                if error.outcome_unknown() {
                    unsent(format_args!(
                        "{place}: {}",
                        error.detail().unwrap_or_default()
                    ))
                } else {
                    error
                }
            }
            Closed::Other(why) => unsent(format_args!(
                "{place}: the server refused the greeting, perhaps the database {}: {why}",
                self.target.db
            )),
        }
    }
}
