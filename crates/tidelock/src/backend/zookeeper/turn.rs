//! One attempt: a place in the queue, and whether it is the first.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable};
use zookeeper_client as zk;

use super::delay::{self, First, Mark, Way};
use super::entry::{Node, Standing, Watch};
use super::leave::leave;
use super::link::{Link, Session};
use super::names;
use super::{Shared, trouble};
use crate::backend::{Ask, Attempt, Grant, Moment, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::FencingToken;

/// Looks, and asks for a place, until the question is decided: what is seen may be gone when it is asked about.
pub(super) async fn attempt(shared: &Shared, ask: &Ask) -> Result<Attempt> {
    let deadline = shared.link.deadline();
    let waits = !ask.armed && !ask.patience.is_zero();
    let wake = waits.then(|| shared.signals.arm(ask.ticket.owner.text()));
    let link = shared.link_for(&ask.ticket, ask.lease);
    let turn = Turn {
        shared,
        link: &link,
        ask,
        deadline,
        parent: shared.path(&ask.ticket.name),
        prefix: names::prefix(&ask.ticket),
    };
    loop {
        let session = link.session(deadline).await?;
        match turn.step(&session).await? {
            Step::Granted(node) => {
                let bond = Some(session.bond());
                let token = FencingToken::new(node.zxid.unsigned_abs());
                return Ok(Attempt::Acquired(Grant {
                    token: Some(token),
                    bond,
                    ..Grant::default()
                }));
            }
            // Whether it will go on is known by the watch; when the holder's lease ends, nobody else can tell.
            Step::Refused => {
                return Ok(Attempt::Held(Wait {
                    wake,
                    recheck: None,
                }));
            }
            Step::Barred(left) => {
                return Ok(Attempt::Held(Wait {
                    wake,
                    recheck: Some(left),
                }));
            }
            Step::Again => {}
        }
    }
}

struct Turn<'a> {
    shared: &'a Shared,
    link: &'a Arc<Link>,
    ask: &'a Ask,
    deadline: Moment,
    parent: String,
    prefix: String,
}

enum Step {
    Granted(Node),
    Refused,
    /// Nobody stands in its way, but the last hold has ended by itself: nobody has the lock for so long yet.
    Barred(Duration),
    /// Something was different from what had been seen.
    Again,
}

impl Turn<'_> {
    async fn step(&self, session: &Session) -> Result<Step> {
        let sent = self.shared.timers.now();
        let owner = &self.ask.ticket.owner;
        let books = &self.shared.books;
        match books.standing(owner, session.id())? {
            Standing::Nowhere => self.queue(session, sent).await,
            Standing::Unknown(create) => {
                self.find(session, create).await?;
                Ok(Step::Again)
            }
            Standing::At(node) => {
                let name = &self.ask.ticket.name;
                let (nodes, mark) = delay::look(self.shared, session, name, self.deadline).await?;
                self.decide(session, &node, nodes, mark, sent).await
            }
        }
    }

    /// Takes a place, unless it is only asked whether the lock is free and it is not.
    async fn queue(&self, session: &Session, sent: Moment) -> Result<Step> {
        if self.ask.patience.is_zero() {
            let seen = look(self.shared, session, &self.parent, self.deadline).await?;
            let kind = self.ask.ticket.kind;
            let free = |nodes| names::in_the_way(&names::in_order(nodes), kind).is_none();
            match seen.map(free) {
                Some(true) => {}
                Some(false) => {
                    // What stands there may be the place that another attempt of this ticket has taken since, one that was
                    // late: who only asks would be refused by itself.
                    let standing = self
                        .shared
                        .books
                        .standing(&self.ask.ticket.owner, session.id())?;
                    return Ok(match standing {
                        Standing::Nowhere => Step::Refused,
                        Standing::Unknown(_) | Standing::At(_) => Step::Again,
                    });
                }
                None => self.make_parent(session).await?,
            }
        }
        let path = format!("{}/{}", self.parent, self.prefix);
        let (data, rights) = (
            self.shared.note(&self.ask.ticket),
            self.shared.link.rights(),
        );
        let mode = zk::CreateMode::EphemeralSequential.with_acls(rights);
        let (owner, books) = (&self.ask.ticket.owner, &self.shared.books);
        // One trip for all: the list is made after the node.
        let mark = delay::path(self.shared, &self.ask.ticket.name);
        let all = || {
            (
                session.client.create(&path, &data, &mode),
                session.client.list_children(&self.parent),
                session.client.get_data(&mark),
            )
        };
        let ends = self.patience_ends(sent);
        let here = (self.link, session.id());
        let begun = books.create(&self.ask.ticket, here, &self.parent, ends, all)?;
        let Some((create, (created, listed, marked))) = begun else {
            return Ok(Step::Again); // another attempt of the same ticket was quicker
        };
        let answer = self.shared.timers.until(self.deadline, created).await;
        let answer = answer.ok_or_else(|| trouble::late(ErrorKind::OutcomeUnknown))?;
        let node = match answer {
            Ok((stat, number)) => Node {
                name: format!("{}{number}", self.prefix),
                zxid: stat.czxid,
            },
            // Nobody has queued there, or not for long: the server removes empty parents.
            Err(zk::Error::NoNode) => {
                books.gone(owner, create);
                self.make_parent(session).await?;
                return Ok(Step::Again);
            }
            Err(error) => {
                let error = trouble::unwritten(error);
                if !error.outcome_unknown() {
                    books.gone(owner, create);
                }
                return Err(error);
            }
        };
        books.created(owner, create, node.clone());
        let nodes = some(self.until(listed).await?)?.unwrap_or_default();
        let mark = delay::mark(self.until(marked).await?)?;
        let step = self.decide(session, &node, nodes, mark, sent).await?;
        if matches!(step, Step::Refused | Step::Barred(_)) && self.ask.patience.is_zero() {
            // Others were quicker. A place that nobody comes back to would hold up all behind it.
            leave(self.shared, &self.ask.ticket, false).await?;
        }
        Ok(step)
    }

    /// After a reply that was lost: the node is found by its name, or was never made, since whatever was sent before this
    /// question has been done before it is answered.
    async fn find(&self, session: &Session, create: u64) -> Result<()> {
        let (owner, books) = (&self.ask.ticket.owner, &self.shared.books);
        let nodes = look(self.shared, session, &self.parent, self.deadline).await?;
        let own = nodes.unwrap_or_default();
        for name in own
            .into_iter()
            .filter(|node| node.starts_with(&self.prefix))
        {
            let path = format!("{}/{name}", self.parent);
            let stat = self.until(session.client.check_stat(&path)).await?;
            // One of an older session only waits for its end.
            if let Some(stat) = stat
                .map_err(trouble::unread)?
                .filter(|stat| stat.ephemeral_owner == session.id())
            {
                books.created(
                    owner,
                    create,
                    Node {
                        name,
                        zxid: stat.czxid,
                    },
                );
                return Ok(());
            }
        }
        books.gone(owner, create);
        Ok(())
    }

    async fn decide(
        &self,
        session: &Session,
        node: &Node,
        nodes: Vec<String>,
        mark: Option<Mark>,
        sent: Moment,
    ) -> Result<Step> {
        let (owner, books) = (&self.ask.ticket.owner, &self.shared.books);
        let queue = names::in_order(nodes);
        let Some(at) = queue.iter().position(|name| *name == node.name) else {
            books.lost(owner, node);
            return Ok(Step::Again);
        };
        let Some(before) = names::in_the_way(&queue[..at], self.ask.ticket.kind) else {
            return self.come_first(session, node, mark, sent).await;
        };
        let watch = if self.ask.patience.is_zero() {
            None
        } else {
            let path = format!("{}/{before}", self.parent);
            let Some(watch) = self.watch(session, &path).await? else {
                return Ok(Step::Again); // it has just gone
            };
            Some(watch)
        };
        let kept = books.waits(owner, node, self.patience_ends(sent), watch);
        Ok(if kept { Step::Refused } else { Step::Again })
    }

    /// Nobody stands in its way, and it has the lock unless a delay is running.
    async fn come_first(
        &self,
        session: &Session,
        node: &Node,
        mark: Option<Mark>,
        sent: Moment,
    ) -> Result<Step> {
        let (owner, books) = (&self.ask.ticket.owner, &self.shared.books);
        let first = First {
            shared: self.shared,
            session,
            ask: self.ask,
            node,
            deadline: self.deadline,
        };
        match first.pass(mark).await? {
            Way::Open => {}
            Way::Again => return Ok(Step::Again),
            Way::Barred(left) => {
                let mut watch = None;
                if !self.ask.patience.is_zero() {
                    // An operator may end the delay.
                    let path = delay::path(self.shared, &self.ask.ticket.name);
                    watch = self.watch(session, &path).await?;
                    if watch.is_none() {
                        return Ok(Step::Again);
                    }
                }
                let kept = books.waits(owner, node, self.patience_ends(sent), watch);
                return Ok(if kept {
                    Step::Barred(left)
                } else {
                    Step::Again
                });
            }
        }
        session.heard(sent);
        let ends = sent + self.ask.lease;
        let granted = books.grant(owner, node, ends, session.next_sign(ends));
        Ok(if granted {
            Step::Granted(node.clone())
        } else {
            Step::Again
        })
    }

    /// Has the ticket woken when that node goes. `None`: it has gone.
    async fn watch(&self, session: &Session, path: &str) -> Result<Option<Watch>> {
        let answer = self
            .until(session.client.check_and_watch_stat(path))
            .await?;
        let (stat, watcher) = answer.map_err(trouble::unread)?;
        if stat.is_none() {
            return Ok(None);
        }
        let (signals, channel) = (self.shared.signals.clone(), self.ask.ticket.owner.clone());
        let (handle, ended) = AbortHandle::new_pair();
        let wait = async move {
            watcher.changed().await;
            signals.wake_one(channel.text());
        };
        self.shared
            .background
            .spawn(Abortable::new(wait, ended).map(drop));
        Ok(Some(Watch(handle)))
    }

    async fn make_parent(&self, session: &Session) -> Result<()> {
        let mode = zk::CreateMode::Container.with_acls(self.shared.link.rights());
        let answer = self
            .until(session.client.mkdir(&self.parent, &mode))
            .await?;
        answer.map_err(|error| match error {
            zk::Error::NoNode => Error::new(ErrorKind::Unavailable)
                .because("a node above the lock went while it was made"),
            // A parent that may or may not be there harms nobody.
            other => trouble::unread(other),
        })
    }

    /// How long a place is kept for a caller that does not come back to ask: a task that is not run must not hold up all
    /// others for ever.
    fn patience_ends(&self, sent: Moment) -> Moment {
        sent + self.shared.lease * 2 + self.shared.response_timeout
    }

    async fn until<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let answer = self.shared.timers.until(self.deadline, request).await;
        answer.ok_or_else(|| trouble::late(ErrorKind::Unavailable))
    }
}

/// The nodes under a lock as the leader knows them: a server that lags behind would show a lock that has been released.
pub(super) async fn look(
    shared: &Shared,
    session: &Session,
    parent: &str,
    deadline: Moment,
) -> Result<Option<Vec<String>>> {
    Ok(see(shared, session, parent, None, deadline).await?.nodes)
}

/// The same, and behind them, in the same trip, the mark of that path. With others who want to see it too.
pub(super) async fn see(
    shared: &Shared,
    session: &Session,
    parent: &str,
    mark: Option<String>,
    deadline: Moment,
) -> Result<Sight> {
    let (client, path) = (session.client.clone(), parent.to_owned());
    let at = (session.id(), parent.to_owned(), mark.is_some());
    let ask = move || ask(client.clone(), path.clone(), mark.clone());
    let seen = shared.looks.next(&shared.background, at, ask);
    match shared.timers.until(deadline, seen).await.flatten() {
        Some(Ok(sight)) => Ok(Arc::unwrap_or_clone(sight)),
        Some(Err((kind, why))) => Err(Error::new(kind).because(why)),
        None => Err(trouble::late(ErrorKind::Unavailable)),
    }
}

/// What is seen of a queue.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    /// `None`: there is no such node.
    pub(super) nodes: Option<Vec<String>>,
    pub(super) mark: Option<Mark>,
}

/// The lock's node, in that session, with its mark or without.
pub(super) type At = (i64, String, bool);

/// What many are told.
pub(super) type Seen = std::result::Result<Arc<Sight>, (ErrorKind, String)>;

async fn ask(client: zk::Client, parent: String, mark: Option<String>) -> Seen {
    // All are sent before the first is waited for.
    let synced = client.sync(&parent);
    let listed = client.list_children(&parent);
    let marked = mark.as_deref().map(|path| client.get_data(path));
    let all = async {
        match synced.await {
            Ok(()) | Err(zk::Error::NoNode) => {}
            Err(error) => return Err(trouble::unread(error)),
        }
        let nodes = some(listed.await)?;
        let mark = match marked {
            Some(marked) => delay::mark(marked.await)?,
            None => None,
        };
        Ok(Arc::new(Sight { nodes, mark }))
    };
    all.await
        .map_err(|error: Error| (error.kind(), error.detail().unwrap_or_default().to_owned()))
}

/// `None`: there is no such node.
pub(super) fn some<T>(answer: std::result::Result<T, zk::Error>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(trouble::unread(error)),
    }
}
