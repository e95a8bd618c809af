//! Doctor: reports server settings that weaken locks.

use std::time::Duration;

use zookeeper_client as zk;

use crate::error::{ErrorKind, Result};
use crate::snapshot::{Finding, Severity};
use crate::store::BootInstant;
use crate::store::doctor::DoctorCheck;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::errors;
use crate::store::zookeeper::shared::Shared;

const RIGHTS: DoctorCheck = DoctorCheck {
    subject: "rights",
    good: "only who may write there can take and free locks",
    severity: Severity::Danger,
    bad: "no lock can be taken or given back",
    advice: "log in as a user who may create, read and delete there: zookeeper://user:password@host",
};

pub(crate) async fn examine(shared: &Shared) -> Result<Vec<Finding>> {
    let deadline = shared.connection.deadline();
    let session = shared.connection.session(deadline).await?;
    let granted = session.client.session_timeout();
    let asked = shared.connection.session_timeout();
    let mut findings = vec![sessions(granted, asked, shared.lease)];
    findings.extend(short(granted));
    findings.extend(servers(shared, &session, deadline).await);
    findings.push(rights(shared, &session, deadline).await?);
    Ok(findings)
}

/// Compares the session timeout that the server grants with the one that we requested.
fn sessions(granted: Duration, asked: Duration, lease: Duration) -> Finding {
    let subject = "session timeout";
    if granted * 3 / 4 < lease {
        return Finding::new(
            Severity::Advice,
            subject,
            format!("{granted:?}, asked for {asked:?}"),
            format!("sessions may end before leases of {lease:?} do: whoever is cut off for as long loses its locks, and is told"),
        )
        .advise("raise maxSessionTimeout on all servers alike (20 ticks unless it is set), or take a shorter lease; until the last server has the new value, set ?session_timeout= in the URL to no more than the old one");
    }
    if granted > asked {
        return Finding::new(
            Severity::Advice,
            subject,
            format!("{granted:?}, asked for {asked:?}"),
            "a holder that has crashed is followed no sooner than this, whatever its lease",
        )
        .advise(
            "lower minSessionTimeout on all servers alike (2 ticks unless it is set), or their tickTime; if that lowers maxSessionTimeout too, restart the clients before, with ?session_timeout= in the URL of no more than the new one",
        );
    }
    Finding::new(
        Severity::Good,
        subject,
        format!("{granted:?}"),
        "a holder that has crashed or is cut off is followed within this time and a tick",
    )
}

/// Five ticks, if the servers tick every 2 s. They do not tell how long their ticks are.
const FIVE_TICKS: Duration = Duration::from_secs(10);

/// A finding if a leader that was replaced may confirm holds of these sessions for too long.
fn short(granted: Duration) -> Option<Finding> {
    let short = Finding::new(
        Severity::Advice,
        "short sessions",
        format!("{granted:?}"),
        "unless tickTime is shorter than 2 s on the servers: a leader that was replaced and does not know it yet may confirm a lock for a moment after another has it",
    );
    let short = short.advise("take a lease of 7.5 s or more, or compare fencing tokens");
    (granted < FIVE_TICKS).then_some(short)
}

/// How many servers vote. `None`: the server does not tell.
async fn servers(
    shared: &Shared,
    session: &ZooKeeperSession,
    deadline: BootInstant,
) -> Option<Finding> {
    let config = shared
        .timers
        .until(deadline, session.client.get_config())
        .await?;
    let text = String::from_utf8(config.ok()?.0).ok()?;
    Some(ensemble(voters(&text)))
}

/// Counts lines such as `server.1=host:2888:3888:participant;2181`. Observers do not vote.
pub(crate) fn voters(config: &str) -> usize {
    let servers = config.lines().filter(|line| line.starts_with("server."));
    servers.filter(|line| !line.contains(":observer")).count()
}

fn ensemble(voters: usize) -> Finding {
    let subject = "servers";
    match voters {
        0 | 1 => Finding::new(
            Severity::Advice,
            subject,
            "one server",
            "while it is down nothing is granted; when it is down for longer than a session, locks are lost",
        )
        .advise("run three or five servers"),
        even if even % 2 == 0 => Finding::new(
            Severity::Advice,
            subject,
            format!("{even} servers that vote"),
            format!("an even number outlasts the failure of no more than {} of them", (even - 1) / 2),
        )
        .advise("run an odd number of them"),
        odd => Finding::new(
            Severity::Good,
            subject,
            format!("{odd} servers that vote"),
            format!("locks outlast the failure of {} of them", odd / 2),
        ),
    }
}

/// Checks the access rights of the base path.
async fn rights(
    shared: &Shared,
    session: &ZooKeeperSession,
    deadline: BootInstant,
) -> Result<Finding> {
    let base = &shared.connection.address().base;
    let closed = || RIGHTS.bad(format!("{base} is closed to this user"));
    let acl = shared
        .timers
        .until(deadline, session.client.get_acl(base))
        .await;
    let acl = match acl.ok_or_else(|| errors::late(ErrorKind::Unavailable))? {
        // A user who may not read the rights may not create nodes there either.
        Err(zk::Error::NoAuth) => return Ok(closed()),
        acl => errors::unless_missing(acl)?,
    };
    let Some((acl, _)) = acl else {
        return Ok(Finding::new(
            Severity::Good,
            RIGHTS.subject,
            base.as_str(),
            "is made with the first lock",
        ));
    };
    let open = acl
        .iter()
        .any(|one| one.scheme() == "world" && one.permission().has(zk::Permission::DELETE));
    if !open {
        let user = shared.connection.user().await?;
        let usable = may_queue(&acl, user.as_deref());
        return Ok(if usable {
            RIGHTS.good(format!("{base} is not open to the world"))
        } else {
            closed()
        });
    }
    Ok(Finding::new(
        Severity::Advice,
        RIGHTS.subject,
        format!("{base} is open to the world"),
        "whoever reaches the servers can take and free locks",
    )
    .advise("give the URL a user and a password (user:password@), and the path to that user"))
}

/// Whether this user may create, read and delete nodes, as far as the rights tell: we cannot verify the password in a
/// digest, and an entry of another scheme counts as ours.
fn may_queue(acl: &[zk::Acl], user: Option<&str>) -> bool {
    let needed = [
        zk::Permission::CREATE,
        zk::Permission::READ,
        zk::Permission::DELETE,
    ];
    let concerns = |one: &&zk::Acl| match one.scheme() {
        "digest" => one.id().split(':').next() == user,
        _ => true,
    };
    needed.into_iter().all(|need| {
        let mut ours = acl.iter().filter(concerns);
        ours.any(|one| one.permission().has(need))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_held_against_what_was_asked_for() {
        let seconds = Duration::from_secs;
        for (granted, asked, lease, severity) in [
            (40, 40, 30, Severity::Good),
            (20, 40, 30, Severity::Advice),
            (40, 4, 3, Severity::Advice),
        ] {
            let finding = sessions(seconds(granted), seconds(asked), seconds(lease));
            assert_eq!(finding.severity, severity, "{finding:?}");
        }
    }

    /// The client does not hear of a session timeout that becomes shorter.
    #[test]
    fn the_advice_makes_no_session_shorter_that_a_client_has() {
        let seconds = Duration::from_secs;
        for (granted, asked, lease) in [(20, 40, 30), (40, 4, 3)] {
            let finding = sessions(seconds(granted), seconds(asked), seconds(lease));
            let advice = finding.advice.unwrap();
            let is_careful = ["all servers alike", "?session_timeout="];
            assert!(
                is_careful.iter().all(|part| advice.contains(part)),
                "{advice}"
            );
        }
    }

    #[test]
    fn a_session_of_less_than_five_ticks_is_named() {
        for (granted, is_short) in [(4, true), (9, true), (10, false), (40, false)] {
            let finding = short(Duration::from_secs(granted));
            assert_eq!(finding.is_some(), is_short, "{granted} s");
        }
    }

    #[test]
    fn a_right_that_is_missing_is_seen() {
        let acl = |permission, scheme: &'static str, id: &'static str| {
            zk::Acl::new_const(permission, scheme, id)
        };
        let ours = acl(zk::Permission::ALL, "digest", "me:x");
        let read = acl(zk::Permission::READ, "world", "anyone");
        assert!(may_queue(&[ours.clone(), read.clone()], Some("me")));
        assert!(!may_queue(&[ours.clone(), read], Some("you")));
        assert!(!may_queue(&[ours], None));
    }

    #[test]
    fn an_ensemble_says_how_many_failures_it_outlasts() {
        for (count, found, failures) in [
            (5, "5 servers that vote", "the failure of 2 of them"),
            (6, "6 servers that vote", "no more than 2 of them"),
            (1, "one server", "locks are lost"),
        ] {
            let finding = ensemble(count);
            assert_eq!(finding.found, found);
            assert!(finding.meaning.contains(failures), "{}", finding.meaning);
        }
    }

    #[test]
    fn voters_are_counted() {
        let config = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888:observer;2181\nversion=0";
        assert_eq!(voters(config), 1);
        assert_eq!(voters(""), 0);
        for (count, severity) in [
            (1, Severity::Advice),
            (3, Severity::Good),
            (4, Severity::Advice),
        ] {
            assert_eq!(ensemble(count).severity, severity);
        }
    }
}
