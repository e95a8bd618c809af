//! Doctor: reports server settings that weaken locks.

use std::collections::HashMap;

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::mysql::connection::Pool;
use crate::store::mysql::queue_sql::{SIDES, WAITERS};
use crate::store::mysql::raw_connection::{TextRow, text};

const VERSION: DoctorCheck = DoctorCheck {
    subject: "version",
    good: "it has what locks need",
    severity: Severity::Danger,
    bad: "older than what tidelock is tested with",
    advice: "use MySQL 8.0, MariaDB 10.6, or later",
};

const WRITES: DoctorCheck = DoctorCheck {
    subject: "writes",
    good: "locks can be taken",
    severity: Severity::Danger,
    bad: "it is a replica, or set so: no lock can be taken, renewed or released here",
    advice: "connect to the primary",
};

const DURABILITY: DoctorCheck = DoctorCheck {
    subject: "durability",
    good: "a grant and its token are on the disk before they are reported",
    severity: Severity::Advice,
    bad: "a crash of the machine forgets the last second: a lock that was granted then can be granted again",
    advice: "set innodb_flush_log_at_trx_commit = 1",
};

const LOGGED_CHANGES: DoctorCheck = DoctorCheck {
    subject: "binary log format",
    good: "it takes the changes of locks",
    severity: Severity::Danger,
    bad: "InnoDB refuses every change of a READ COMMITTED transaction under this format: no lock can be taken, renewed or released here",
    advice: "set binlog_format = ROW or MIXED",
};

const QUEUES: DoctorCheck = DoctorCheck {
    subject: "fair and read-write locks",
    good: "waiters are served in order of arrival",
    severity: Severity::Advice,
    bad: "a table of their queues is missing or out of reach; the first of these locks makes it, if its user may. Other locks need none",
    advice: "let a user with the right to create tables make it, and grant SELECT, INSERT, UPDATE and DELETE on it; the error of a waiter has the statement",
};

const NODES: DoctorCheck = DoctorCheck {
    subject: "cluster",
    good: "one node takes the writes, and hands them on to the others",
    severity: Severity::Advice,
    bad: "several nodes take writes. A lock that is taken on two of them at once is refused to one. But a node that is behind does not know a hold yet, so its holder may be told of a loss; each node ends leases by its own clock; and a fence holds up grants on its own node only",
    advice: "send all locks, and the transactions with fences, to one node, and to another one only while that is down",
};

/// Changes nothing, and needs the rights that these locks need.
const QUEUE: &str = "UPDATE tidelock_waiters SET alive = alive WHERE id = ''; DELETE FROM tidelock_waiters WHERE id = ''; \
    INSERT INTO tidelock_waiters SELECT * FROM tidelock_waiters WHERE id = ''; \
    UPDATE tidelock_sides SET ends = ends WHERE id = ''; DELETE FROM tidelock_sides WHERE id = ''; \
    INSERT INTO tidelock_sides SELECT * FROM tidelock_sides WHERE id = ''";

pub(crate) const READ_SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('version', 'innodb_flush_log_at_trx_commit', 'read_only', 'wsrep_on', 'sync_binlog', 'log_bin', 'binlog_format', \
    'group_replication_group_name', 'group_replication_single_primary_mode')";
pub(crate) const ENGINES: &str = "SELECT table_name, COALESCE(engine, '') FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name LIKE 'tidelock\\_%'";

/// Judges the rows of `READ_SETTINGS` and of `ENGINES`.
pub(crate) fn findings(
    pool: &Pool,
    settings: &[TextRow],
    engines: &[TextRow],
) -> Result<Vec<Finding>> {
    let mut found = HashMap::new();
    for row in settings {
        found.insert(text(row, 0)?.to_lowercase(), text(row, 1)?);
    }
    let value = |name: &str| found.get(name).map_or("", String::as_str);
    let mut findings = vec![
        Finding::new(
            Severity::Good,
            "reach",
            format!("{pool:?}"),
            "shared by every process that reaches this database",
        ),
        version(value("version")),
        writes(value("read_only")),
        durability(value("innodb_flush_log_at_trx_commit")),
    ];
    findings.extend(logged_changes(value("log_bin"), value("binlog_format")));
    findings.extend(binlog(value("log_bin"), value("sync_binlog")));
    findings.extend(nodes(
        value("wsrep_on"),
        value("group_replication_group_name"),
        value("group_replication_single_primary_mode"),
    ));
    for row in engines {
        findings.extend(engine(&text(row, 0)?, &text(row, 1)?));
    }
    Ok(findings)
}

/// Whether this user can use the tables of the queue. `None`: the server did not tell, and other findings say why.
pub(crate) async fn queue(pool: &Pool) -> Option<Finding> {
    let tables = format!("{WAITERS}, {SIDES}");
    match pool.ask(QUEUE.to_owned(), pool.deadline()).await {
        Ok(_) => Some(QUEUES.good(tables)),
        Err(failure) if failure.is_no_table() || failure.is_denied() => Some(QUEUES.bad(tables)),
        Err(_) => None,
    }
}

fn version(version: &str) -> Finding {
    let mut numbers = version
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let number: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let least = if version.contains("MariaDB") {
        (10, 6)
    } else {
        (8, 0)
    };
    VERSION.judge(number >= least, version)
}

fn writes(read_only: &str) -> Finding {
    match read_only {
        "OFF" | "0" => WRITES.good("it takes changes"),
        other => WRITES.bad(format!("read_only = {other}")),
    }
}

fn durability(flush: &str) -> Finding {
    let found = format!("innodb_flush_log_at_trx_commit = {flush}");
    DURABILITY.judge(flush == "1", found)
}

/// `None`: the server writes no binary log, or has one format only.
fn logged_changes(on: &str, format: &str) -> Option<Finding> {
    let refuses = format.eq_ignore_ascii_case("STATEMENT");
    let found = format!("binlog_format = {format}");
    (is_on(on) && !format.is_empty()).then(|| LOGGED_CHANGES.judge(!refuses, found))
}

fn binlog(on: &str, sync: &str) -> Option<Finding> {
    (is_on(on) && sync != "1").then(|| {
        Finding::new(
            Severity::Advice,
            "binary log",
            format!("sync_binlog = {sync}"),
            "after a crash replicas and this server may disagree about who holds a lock",
        )
        .advise("set sync_binlog = 1")
    })
}

/// `None`: the server belongs to no group of nodes.
fn nodes(galera: &str, group: &str, one_primary: &str) -> Option<Finding> {
    if is_on(galera) {
        return Some(NODES.bad("Galera"));
    }
    let found = "Group Replication";
    (!group.is_empty()).then(|| NODES.judge(is_on(one_primary), found))
}

fn is_on(value: &str) -> bool {
    matches!(value, "ON" | "1")
}

fn engine(table: &str, engine: &str) -> Option<Finding> {
    (!engine.eq_ignore_ascii_case("innodb")).then(|| {
        Finding::new(
            Severity::Danger,
            "engine",
            format!("{table} is {engine}"),
            "the row locks and transactions that exclusion rests on are InnoDB's",
        )
        .advise(format!("ALTER TABLE {table} ENGINE = InnoDB"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::store::mysql::tests::server::{ScriptedServer, denied, no_table};
    use crate::store::mysql::tests::{env, pool, pool_at, row};

    #[test]
    fn several_nodes_that_take_writes_are_no_good_news() {
        let severity = |galera, group, one_primary| {
            let found = nodes(galera, group, one_primary);
            found.map(|finding| finding.severity)
        };
        let group = "8f2a1c3e-0d4b-4a5f-9c6d-7e8f9a0b1c2d";
        assert_eq!(severity("ON", "", ""), Some(Severity::Advice));
        assert_eq!(severity("", group, "OFF"), Some(Severity::Advice));
        assert_eq!(severity("", group, "ON"), Some(Severity::Good));
        // A MariaDB that could be a node of Galera, and a MySQL that could be one of a group.
        assert_eq!(severity("OFF", "", ""), None);
        assert_eq!(severity("", "", "ON"), None);
    }

    #[test]
    fn a_binary_log_that_takes_no_change_of_a_lock_is_a_danger() {
        let severity = |on, format| logged_changes(on, format).map(|finding| finding.severity);
        assert_eq!(severity("ON", "STATEMENT"), Some(Severity::Danger));
        assert_eq!(severity("ON", "MIXED"), Some(Severity::Good));
        assert_eq!(severity("ON", "ROW"), Some(Severity::Good));
        assert_eq!(severity("OFF", "STATEMENT"), None);
        assert_eq!(severity("ON", ""), None);
    }

    #[test]
    fn only_a_server_that_tidelock_is_tested_with_is_good() {
        for (text, severity) in [
            ("8.0.35", Severity::Good),
            ("8.4.0-log", Severity::Good),
            ("9.1.0", Severity::Good),
            ("7.9.9", Severity::Danger),
            ("5.7.44-log", Severity::Danger),
            ("10.6.12-MariaDB", Severity::Good),
            ("11.4.2-MariaDB-ubu2404", Severity::Good),
            ("10.5.9-MariaDB", Severity::Danger),
            ("8.9.9-MariaDB", Severity::Danger),
            ("unknown", Severity::Danger),
        ] {
            assert_eq!(version(text).severity, severity, "{text}");
        }
    }

    #[test]
    fn a_server_that_takes_no_changes_or_may_forget_them_is_no_good_news() {
        for (value, severity) in [
            ("OFF", Severity::Good),
            ("0", Severity::Good),
            ("ON", Severity::Danger),
            ("1", Severity::Danger),
            ("", Severity::Danger),
        ] {
            assert_eq!(writes(value).severity, severity, "{value}");
        }
        for (value, severity) in [
            ("1", Severity::Good),
            ("0", Severity::Advice),
            ("2", Severity::Advice),
        ] {
            assert_eq!(durability(value).severity, severity, "{value}");
        }
        assert!(binlog("ON", "1").is_none() && binlog("OFF", "0").is_none());
        for on in ["ON", "1"] {
            assert_eq!(binlog(on, "0").unwrap().severity, Severity::Advice);
        }
        assert!(engine("tidelock_locks", "InnoDB").is_none());
        let other = engine("tidelock_locks", "MyISAM").unwrap();
        assert_eq!(other.severity, Severity::Danger);
        let advice = other.advice.unwrap();
        assert_eq!(advice, "ALTER TABLE tidelock_locks ENGINE = InnoDB");
    }

    /// The subject and the severity of each finding about a server with these settings and engines.
    fn subjects(settings: &[&str], engines: &[&str]) -> Vec<(String, Severity)> {
        let (env, _) = env();
        let rows = |all: &[&str]| all.iter().map(|words| row(words)).collect::<Vec<_>>();
        let found = findings(&pool(&env), &rows(settings), &rows(engines)).unwrap();
        let found = found.into_iter();
        found.map(|one| (one.subject, one.severity)).collect()
    }

    #[tokio::test]
    async fn every_weak_setting_of_a_server_is_found() {
        use Severity::{Advice, Danger, Good};

        let weak = [
            "VERSION 5.7.1",
            "read_only ON",
            "innodb_flush_log_at_trx_commit 2",
            "log_bin ON",
            "binlog_format STATEMENT",
            "sync_binlog 0",
            "wsrep_on ON",
        ];
        let expected = [
            ("reach", Good),
            ("version", Danger),
            ("writes", Danger),
            ("durability", Advice),
            ("binary log format", Danger),
            ("binary log", Advice),
            ("cluster", Advice),
            ("engine", Danger),
        ];
        let engines = ["tidelock_locks MyISAM", "tidelock_sides InnoDB"];
        let expected = expected.map(|(subject, severity)| (subject.to_owned(), severity));
        assert_eq!(subjects(&weak, &engines), expected);
        let good = [
            "version 8.0.35",
            "read_only OFF",
            "innodb_flush_log_at_trx_commit 1",
        ];
        let found = subjects(&good, &engines[1..]);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|(_, severity)| *severity == Good));
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_says_nothing_of_the_queues() {
        let (env, opened) = env();
        assert_eq!(queue(&pool(&env)).await, None);
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_queues_are_judged_by_whether_this_user_can_use_their_tables() {
        for (answer, severity) in [
            ("OK", Some(Severity::Good)),
            (&no_table(WAITERS), Some(Severity::Advice)),
            (&denied(SIDES), Some(Severity::Advice)),
            ("ERR 1205 Lock wait timeout", None),
            ("ERR 1290 The server is running with --read-only", None),
        ] {
            let server = ScriptedServer::start().await;
            server.answers("UPDATE tidelock_waiters", &[answer]);
            let found = queue(&pool_at(&server)).await;
            let seen = found.map(|finding| finding.severity);
            assert_eq!(seen, severity, "{answer}");
        }
    }
}
