//! How often a viewer looks at the store, so that it is never a load.

use std::time::Duration;

use tidelock::Client;
use tokio::time::Instant;

use crate::exit::{Failure, Outcome};
use crate::top::acquire_times::LastMinute;
use crate::top::budget::Budget;
use crate::top::look::look;
use crate::top::picture::Picture;
use crate::top::scan::Scan;
use crate::top::{Asked, SHORTEST};

/// Looks at one store, one picture after the other.
#[derive(Debug)]
pub(crate) struct Looks<'a> {
    client: &'a Client,
    prefix: &'a str,
    budget: Budget,
    acquire_times: LastMinute,
    /// `None`: the processes are not asked to tell every second.
    asked: Option<Asked>,
    /// Lists the locks that no process tells of. `None`: nobody has asked for it.
    scan: Option<Scan>,
    /// Why they could not be asked the first time.
    pub(crate) refused: Option<tidelock::Error>,
}

impl<'a> Looks<'a> {
    pub(crate) fn new(client: &'a Client, prefix: &'a str, every: Duration) -> Self {
        let every = every.max(SHORTEST);
        Self {
            client,
            prefix,
            budget: Budget::new(every),
            acquire_times: LastMinute::default(),
            asked: Some(Asked::default()),
            scan: None,
            refused: None,
        }
    }

    /// Also lists the locks that no process tells of, a few with each look.
    pub(crate) fn scanning(mut self, every: Duration) -> Self {
        self.scan = Some(Scan::new(self.prefix, every.max(SHORTEST)));
        self
    }

    /// For one look: asks no process to tell more often, and measures nothing.
    pub(crate) fn quiet(mut self) -> Self {
        self.asked = None;
        self.scan = self.scan.map(Scan::whole);
        self
    }

    /// The client that looks.
    #[cfg(feature = "web")]
    pub(crate) fn client(&self) -> &'a Client {
        self.client
    }

    /// Looks once. Also returns when to look again.
    pub(crate) async fn look(&mut self) -> (Outcome<Picture>, Instant) {
        if self.budget.is_ping_due(Instant::now())
            && let Err((failed, next)) = self.ping().await
        {
            return (Err(failed), next);
        }
        if let Some(asked) = &mut self.asked {
            // Without the right to ask, the processes tell every ten seconds.
            self.refused = asked.again(self.client).await.err();
        }
        let trip = match &self.asked {
            Some(_) => self.trip().await,
            None => Duration::ZERO,
        };
        let begun = Instant::now();
        let seen = self.see().await;
        let ended = Instant::now();
        match seen {
            Ok(mut picture) => {
                let (share, pause) = self.budget.seen(ended - begun, trip);
                picture.share = self.asked.as_ref().map(|_| share);
                (Ok(picture), begun + pause)
            }
            Err(failed) => {
                let next = self.budget.failed(&failed, begun, ended, trip);
                (Err(failed), next)
            }
        }
    }

    async fn see(&mut self) -> Outcome<Picture> {
        let mut picture = look(self.client, self.prefix, &mut self.acquire_times).await?;
        if let Some(scan) = &mut self.scan {
            scan.go_on(self.client, &mut picture).await;
        }
        Ok(picture)
    }

    /// Asks a store that has failed whether it answers. An error says why it is not looked at now, and until when.
    async fn ping(&mut self) -> Result<(), (Failure, Instant)> {
        let answered = self.client.ping().await;
        self.budget.pinged(answered, Instant::now())
    }

    /// How long a request takes that is next to no work. Zero if it fails: the look says why.
    async fn trip(&self) -> Duration {
        let begun = Instant::now();
        let answered = self.client.ping().await;
        answered.map_or(Duration::ZERO, |()| begun.elapsed())
    }
}
