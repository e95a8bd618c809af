//! Names: refused before traffic, or usable.

use crate::error::ErrorKind;
use crate::testing::fixture::{Fixture, unique};

/// Names no store could keep never reach it.
pub async fn bad_names_are_refused_before_traffic(fixture: &Fixture) {
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let huge = "x".repeat(10_000_000);
    for bad in ["", "a\0b", "\0", &"x".repeat(513), &"ü".repeat(257), &huge] {
        for lock in [a.lock(bad), a.fenced_lock(bad)] {
            let error = lock.acquire().await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            assert!(
                error.to_string().len() < 400,
                "a message of reasonable length"
            );
            let error = lock.try_acquire().await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            let error = lock.lock().inspect().await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            let error = lock.lock().force_release().await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidName);
        }
    }
    assert_eq!(plug.requests(), 0);
}

/// An empty name is not made good by a prefix.
pub async fn a_prefix_makes_no_name(fixture: &Fixture) {
    let a = fixture.party_with(fixture.builder().prefix("shop:")).await;
    let error = a.lock("").try_acquire().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    let name = unique("stock");
    let held = a.lock(&name).acquire().await.expect("free");
    let plain = fixture.party().await;
    assert!(plain.lock(&format!("shop:{name}")).is_locked().await);
    held.release().await.expect("held");
}

/// Every good name works: acquired, seen, excluded, renewed, released.
pub async fn every_good_name_works(fixture: &Fixture) {
    let (a, b) = (fixture.party().await, fixture.party().await);
    let id = unique("");
    let long = format!("{}{id}", "x".repeat(512 - id.len()));
    let odd = [
        format!("{id}{{"),
        format!("{id}}}"),
        format!("{id}}}{{"),
        format!("{id}{{}}"),
        format!("{{}}{id}"),
    ];
    let mut names = vec![
        format!("{{tag}}{id}"),
        format!("{id}{{tag}}"),
        format!("{id}{{a}}{{b}}"),
        format!("äöü 漢字 🔒{id}"),
        format!("{id} with spaces\tand\nlines"),
        format!("{id}*?[x]\\'\"%_;--"),
        format!("{id}:redisson_lock__channel:{{x}}"),
        long,
    ];
    for name in odd {
        if fixture.takes_odd_braces() {
            names.push(name);
            continue;
        }
        let refused = a.lock(&name).acquire().await.map(drop);
        let kind = refused.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::InvalidName), "{name:?}");
    }
    let mut all = Vec::new();
    for name in &names {
        all.push((name, a.lock(name).acquire().await.expect("free")));
    }
    for (name, held) in &all {
        let seen = b.lock(name).lock().inspect().await.expect("readable");
        assert_eq!(seen.name, **name);
        assert_eq!(seen.holders[0].owner, held.owner_id().await);
        assert!(
            b.lock(name)
                .try_acquire()
                .await
                .expect("answered")
                .is_none()
        );
    }
    tokio::time::sleep(fixture.lease() * 3 / 2).await;
    for (name, held) in all {
        assert!(held.is_held().await, "{name:?} was renewed");
        held.release().await.expect("held");
        assert!(!b.lock(name).is_locked().await, "{name:?}");
    }
}
