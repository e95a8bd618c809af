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
use crate::core::rt;
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
        let conn = Conn::open(stream, &self.login().await?, pushes)
            .await
            .map_err(|closed| self.turned_away(closed))?;
        self.greet(&conn).await?;
        Ok(conn)
    }

    /// Asked for at each connect: passwords are rotated while clients run. On another thread: a source may read a file or
    /// ask a server, and this one may be the steward's.
    async fn login(&self) -> Result<Login> {
        let (user, password) = match self.credentials.clone() {
            Some(ask) => {
                let given = rt::blocking(move || ask())
                    .await
                    .ok_or_else(|| unsent("the source of the credentials panicked"))?;
                (given.user, given.password)
            }
            None => (self.target.user.clone(), self.target.password.clone()),
        };
        Ok(Login {
            db: self.target.db,
            user,
            password,
        })
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::backend::{Background, Clock};

    /// What a source of credentials takes its time for must not hold up renewals and deadlines.
    #[tokio::test]
    async fn credentials_are_asked_for_on_a_thread_of_their_own() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (background, stop) = Background::start(Clock::Boot).unwrap();
        let timers = Timers::new(Clock::Boot);
        background.spawn(timers.clone().drive());
        let asked: Arc<Mutex<Vec<std::thread::ThreadId>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let gate = Gate {
            target: Target::parse(&format!("redis://{}", mute.local_addr().unwrap())).unwrap(),
            credentials: Some(Arc::new(move || {
                seen.lock().unwrap().push(std::thread::current().id());
                Credentials::default()
            })),
            tls: TlsFiles::default(),
            timers,
            limit: Duration::from_millis(300),
        };
        let steward = background.run(async move {
            assert!(gate.enter(None).await.is_err());
            std::thread::current().id()
        });
        let steward = steward.await.unwrap();
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 1);
        assert_ne!(asked[0], steward);
        drop(stop);
    }
}
