//! The replication status: the replicas of a server, as `INFO replication` reports them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::Error;
use crate::store::BootInstant;
use crate::store::redis::wire::errors::forbids;
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::Request;

/// How long we trust that a server has no replicas. After this time we check again, because one may have connected.
pub(crate) const NO_REPLICAS_TTL: Duration = Duration::from_secs(5);

/// The last status that one connection has read, and when.
#[derive(Debug, Default)]
pub(crate) struct ReplicationStatus {
    seen: Mutex<Option<(ReplicaView, BootInstant)>>,
    /// Until this moment, in nanoseconds, we trust that the server has no replicas; zero: it has some, or we do not
    /// know. Every request checks this, so it is an atomic and needs no lock.
    alone_until: AtomicU64,
    /// The server has said that it is a replica itself.
    is_replica: AtomicBool,
}

/// The replicas that are connected to a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    /// The replicas that are in sync, by address.
    pub(crate) online: Arc<[Arc<str>]>,
    /// The replicas that still copy the data and cannot acknowledge yet, by address.
    pub(crate) copying: Arc<[Arc<str>]>,
    /// The server's replication id, if it reports one.
    pub(crate) server: Option<Arc<str>>,
}

impl Replicas {
    pub(crate) fn in_sync(&self) -> u32 {
        u32::try_from(self.online.len()).unwrap_or(u32::MAX)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum ReplicaView {
    Replicas(Replicas),
    /// The server forbids `INFO`.
    Forbidden(Arc<Error>),
}

impl ReplicationStatus {
    /// The last status. `None`: not read yet, or the server did not report it.
    pub(crate) fn view(&self) -> Option<(ReplicaView, BootInstant)> {
        self.seen.lock().clone()
    }

    /// Whether a recent check found no replicas. `deadline - limit` is the moment of the request, so this reads no
    /// clock.
    pub(crate) fn is_alone(&self, deadline: BootInstant, limit: Duration) -> bool {
        let until = BootInstant(self.alone_until.load(Ordering::Relaxed));
        until > BootInstant(0) && deadline < until + limit
    }

    /// Whether the server is a replica itself. `false` also if it did not report its role.
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, view: ReplicaView, at: BootInstant) {
        let alone = matches!(&view, ReplicaView::Replicas(replicas) if replicas.count == 0);
        let until = if alone { (at + NO_REPLICAS_TTL).0 } else { 0 };
        let mut seen = self.seen.lock();
        *seen = Some((view, at));
        // Under the lock. Otherwise two concurrent calls could leave the view of one and the moment of the other.
        self.alone_until.store(until, Ordering::Relaxed);
    }

    /// Records a reply to [`question`], and returns what it says. `None`: nothing about replicas.
    pub(crate) fn note(
        &self,
        answer: &Result<Reply, RequestError>,
        at: BootInstant,
    ) -> Option<ReplicaView> {
        let view = match answer {
            Ok(reply) => {
                let info = reply.text().unwrap_or_default();
                self.is_replica.store(is_replica(info), Ordering::SeqCst);
                replicas(info).map(ReplicaView::Replicas)
            }
            Err(RequestError::Server(server_error)) => {
                forbids(server_error).map(|error| ReplicaView::Forbidden(Arc::new(error)))
            }
            Err(RequestError::Broken(_)) => None,
        };
        if let Some(view) = &view {
            self.set(view.clone(), at);
        }
        view
    }
}

pub(crate) fn question() -> Request {
    Request::new("INFO").arg("replication")
}

/// Entry point of the fuzzer, for arbitrary text.
#[cfg(feature = "fuzzing")]
pub(crate) fn has_replicas(info: &str) -> bool {
    replicas(info).is_some_and(|replicas| replicas.in_sync() > 0)
}

fn is_replica(info: &str) -> bool {
    info.lines()
        .any(|line| matches!(line, "role:slave" | "role:replica"))
}

fn replicas(info: &str) -> Option<Replicas> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    let connections: u32 = field("connected_slaves:")?.trim().parse().ok()?;
    // From the first request of a copy until its second one, the server lists the second channel alone. Then that one counts: a replica
    // that was left out would lower the majority.
    let lines = |of: fn(&str) -> bool| info.lines().filter(|line| of(line)).count();
    let second = lines(is_second_channel).min(lines(is_main_channel));
    Some(Replicas {
        count: connections.saturating_sub(second.try_into().unwrap_or(u32::MAX)),
        online: addresses(info, true),
        copying: addresses(info, false),
        server: field("master_replid:").map(|id| Arc::from(id.trim())),
    })
}

/// Whether the line is the second connection of a replica. With `dual-channel-replication-enabled`, Valkey 8 and later lists and counts
/// both connections of a replica that copies the data set. Counted twice, it would raise the majority, and every acquire would fail until
/// the copy has ended.
fn is_second_channel(line: &str) -> bool {
    line.starts_with("slave") && line.trim_end().ends_with(",type=rdb-channel")
}

fn is_main_channel(line: &str) -> bool {
    line.starts_with("slave") && line.trim_end().ends_with(",type=main-channel")
}

/// The addresses in lines such as `slave0:ip=…,port=…,state=online,…`.
fn addresses(info: &str, in_sync: bool) -> Arc<[Arc<str>]> {
    let connections = info.lines().filter(|line| !is_second_channel(line));
    let replicas = connections.filter_map(|line| {
        let (_, replica) = line.strip_prefix("slave")?.split_once(':')?;
        replica.split_once(",state=")
    });
    replicas
        .filter(|(_, rest)| rest.starts_with("online,") == in_sync)
        .map(|(addr, _)| Arc::from(addr.replacen("ip=", "", 1).replacen(",port=", ":", 1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::errors::ServerError;

    #[test]
    fn replicas_are_counted_by_the_primary() {
        let info = "role:master\r\nconnected_slaves:2\r\nslave0:ip=h,port=1,state=online,offset=1,lag=0\r\nslave1:ip=h,port=2,state=wait_bgsave,offset=0,lag=0\r\nmaster_replid:ab12\r\n";
        let seen = replicas(info).unwrap();
        assert_eq!((seen.count, seen.in_sync()), (2, 1));
        assert_eq!(&*seen.online[0], "h:1");
        assert_eq!(&*seen.copying[0], "h:2");
        assert_eq!(seen.server.as_deref(), Some("ab12"));
        let unnamed = replicas("connected_slaves:0\r\n").unwrap();
        assert_eq!((unnamed.count, unnamed.server), (0, None));
        assert_eq!(replicas("# Replication\r\nrole:master\r\n"), None);
    }

    /// As Valkey 9 tells it while a replica copies.
    #[test]
    fn a_replica_that_copies_over_two_connections_counts_once() {
        let info = "role:master\r\nconnected_slaves:3\r\n\
            slave0:ip=h,port=1,state=online,offset=1,lag=0,type=replica\r\n\
            slave1:ip=h,port=2,state=wait_bgsave,offset=0,lag=0,type=rdb-channel\r\n\
            slave2:ip=h,port=2,state=bg_transfer,offset=0,lag=0,type=main-channel\r\n";
        let seen = replicas(info).unwrap();
        assert_eq!((seen.count, seen.in_sync()), (2, 1));
        assert_eq!((&*seen.online[0], seen.copying.len()), ("h:1", 1));
        assert_eq!(&*seen.copying[0], "h:2");
        let first = "role:master\r\nconnected_slaves:1\r\n\
            slave0:ip=h,port=2,state=wait_bgsave,offset=0,lag=0,type=rdb-channel\r\n";
        assert_eq!(replicas(first).unwrap().count, 1);
    }

    #[test]
    fn a_server_counts_as_alone_for_a_while_after_a_look() {
        let (status, limit) = (ReplicationStatus::default(), Duration::from_secs(3));
        let looked = BootInstant(1 << 40);
        let is_alone = |after: Duration| status.is_alone(looked + after + limit, limit);
        let nano = Duration::from_nanos(1);
        assert!(!is_alone(Duration::ZERO), "nobody has looked");
        let just_booted = BootInstant(1);
        assert!(!status.is_alone(just_booted, limit), "nobody has looked");
        for (info, alone) in [
            ("connected_slaves:0\r\n", true),
            ("connected_slaves:1\r\n", false),
        ] {
            let view = ReplicaView::Replicas(replicas(info).unwrap());
            status.set(view, looked);
            assert_eq!(is_alone(Duration::ZERO), alone, "{info}");
            assert_eq!(
                is_alone(NO_REPLICAS_TTL.saturating_sub(nano)),
                alone,
                "{info}"
            );
            assert!(!is_alone(NO_REPLICAS_TTL), "{info}");
        }
    }

    /// The status in words, and when it was read.
    fn read(status: &ReplicationStatus) -> Option<(String, u64)> {
        status.view().map(|(view, at)| match view {
            ReplicaView::Replicas(replicas) => (format!("{} replicas", replicas.count), at.0),
            ReplicaView::Forbidden(_) => ("forbidden".to_owned(), at.0),
        })
    }

    #[test]
    fn an_answer_that_says_nothing_of_replicas_leaves_the_last_status() {
        let told = |text: &str| Ok(Reply::Text(text.as_bytes().to_vec()));
        let refused = |text: &str| Err(RequestError::Server(ServerError::parse(text)));
        let status = ReplicationStatus::default();
        assert_eq!(read(&status), None);
        for (at, answer, says_something, known, is_replica) in [
            (
                1,
                told("role:slave\r\nconnected_slaves:2\r\n"),
                true,
                ("2 replicas", 1),
                true,
            ),
            (
                2,
                Err(RequestError::Broken("closed".to_owned())),
                false,
                ("2 replicas", 1),
                true,
            ),
            (
                3,
                refused("ERR something new"),
                false,
                ("2 replicas", 1),
                true,
            ),
            (4, told("OK"), false, ("2 replicas", 1), false),
            (
                5,
                refused("NOPERM no permissions"),
                true,
                ("forbidden", 5),
                false,
            ),
        ] {
            let view = status.note(&answer, BootInstant(at));
            assert_eq!(view.is_some(), says_something, "{answer:?}");
            let (words, read_at) = known;
            assert_eq!(read(&status), Some((words.to_owned(), read_at)));
            assert_eq!(status.is_replica(), is_replica, "{answer:?}");
        }
    }

    #[test]
    fn a_server_says_whether_it_is_a_replica() {
        assert!(is_replica("role:slave\r\nmaster_host:h\r\n"));
        assert!(!is_replica("role:master\r\nconnected_slaves:0\r\n"));
        assert!(!is_replica(""));
    }
}
