//! Promises about names: a bad name is refused without traffic, a good one works.

use crate::error::ErrorKind;
use crate::testing::fixture::{Fixture, unique};

/// Invalid names are refused without a request to the store.
pub async fn bad_names_are_refused_before_traffic(fixture: &Fixture) {
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let huge = "x".repeat(10_000_000);
    for bad in ["", "a\0b", "\0", &"x".repeat(513), &"ü".repeat(257), &huge] {
        for lock in [a.lock(bad), a.lock(bad).fenced()] {
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

/// A prefix does not make an empty name valid.
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

/// Every valid name can be acquired, inspected, renewed and released, and excludes other holders.
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
        let state = held.state().await;
        assert!(held.is_held().await, "{name:?} was renewed: {state:?}");
        held.release().await.expect("held");
        assert!(!b.lock(name).is_locked().await, "{name:?}");
    }
}

/// Names that a database, a path, a pattern, a script or a shell could misinterpret. A unique id replaces the
/// `§`.
const NASTY: [&str; 26] = [
    "§'; DROP TABLE tidelock_locks; --",
    "§\\'; DROP TABLE tidelock_locks; #",
    "§\" OR \"\"=\"",
    "§` OR 1=1 /*",
    "§%_%",
    "../§",
    "§/../..",
    "/§/",
    "§//",
    ".§",
    "§%2F..%2f%00",
    "§*",
    "*?[§]",
    "§[a-z]\\*",
    "§$(touch nasty)`touch nasty`",
    "§;touch nasty|cat&&:",
    "--§",
    "§\nEVAL \"return redis.call('FLUSHALL')\" 0\r\n",
    "§\r\nflush_all\r\n",
    "§ 0 0 1\r\nset x",
    "§') return redis.call('FLUSHALL') --",
    "§\u{1}\u{7f}\u{85}\u{2028}\u{202e}\u{feff}",
    "tidelock:client:§",
    "§{}",
    "}§{",
    "{§",
];

/// Each of these names locks only itself, is listed as itself, and can be force-released without an effect on the
/// others.
pub async fn a_nasty_name_is_nothing_but_a_name(fixture: &Fixture) {
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    let id = unique("nasty").replace(':', "-");
    let odd = |name: &str| name.contains('{') || name.contains('}');
    let names = NASTY
        .iter()
        .filter(|name| fixture.takes_odd_braces() || !odd(name));
    let mut names: Vec<String> = names.map(|name| name.replace('§', &id)).collect();
    names.push(id.clone());
    names.sort();
    let mut held = Vec::new();
    for name in &names {
        let guard = a.lock(name).try_acquire().await.expect("answered");
        held.push(guard.unwrap_or_else(|| panic!("{name:?} is taken by another name")));
    }
    // A list may omit names that look like the store's own keys.
    let ours = |name: &String| !name.starts_with("tidelock:");
    let mut listed = b.list(&format!("*{id}*")).limit(100).await.expect("listed");
    listed.sort();
    listed.retain(ours);
    let expected: Vec<&String> = names.iter().filter(|name| ours(name)).collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), expected);
    for (name, guard) in names.iter().zip(held) {
        let seen = b.lock(name).inspect().await.expect("readable");
        assert_eq!((&*seen.name, guard.name()), (&**name, &**name));
        assert_eq!(seen.holders[0].owner, guard.owner_id(), "{name:?}");
        assert!(guard.is_held(), "{name:?}");
        if name.len() % 2 == 0 {
            assert!(
                b.lock(name).force_release().await.expect("answered"),
                "{name:?}"
            );
            // The holder would learn of it at the next renewal. The other names are checked in their own iterations.
            drop(guard);
        } else {
            guard
                .release()
                .await
                .unwrap_or_else(|error| panic!("{name:?}: {error}"));
        }
    }
    for name in &names {
        let seen = b.lock(name).inspect().await.expect("readable");
        assert!(!seen.is_locked(), "{name:?}");
    }
}
