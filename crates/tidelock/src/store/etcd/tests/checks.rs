//! Checks of the doctor that find nothing, or that fail.

use super::*;
use crate::snapshot::Severity;

#[tokio::test]
async fn a_shortest_lease_that_is_exactly_that_of_the_client_weakens_nothing() {
    let server = ModelServer::start().await;
    let seconds = i64::try_from(LEASE.as_secs()).unwrap();
    server.set(|settings| settings.shortest = seconds);
    let findings = server.client().diagnose().await.unwrap();
    let is_good = |finding: &Finding| finding.severity == Severity::Good;
    assert!(findings.iter().all(is_good), "{findings:?}");
}

/// Otherwise a cluster that cannot serve would be said to lack permissions.
#[tokio::test]
async fn a_check_that_cannot_be_made_is_an_error_and_no_finding() {
    for method in ["Status", "MemberList", "Txn"] {
        let server = ModelServer::start().await;
        server.in_turn(method, &[NO_LEADER]);
        let error = server.client().diagnose().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{method}");
    }
}

/// etcd 3.5.28 and the first versions of 3.6 show it only to users with the role `root`.
#[tokio::test]
async fn a_user_who_may_not_see_the_status_of_the_server_is_let_in() {
    let server = ModelServer::start().await;
    let denied = Turn::Fails(Code::PermissionDenied, "etcdserver: permission denied");
    server.in_turn("Status", &[denied, denied]);
    let store = connect(&server.url(), &env()).await.unwrap();
    let findings = store.front.diagnose().await.unwrap();
    let version = &findings[0];
    assert_eq!(version.subject, "version");
    assert_eq!(version.severity, Severity::Advice);
    assert!(version.found.starts_with("cannot see: "), "{version:?}");
    assert_eq!(server.connections("Status").len(), 2);
    assert!(findings.iter().any(|one| one.subject == "members"));
}
