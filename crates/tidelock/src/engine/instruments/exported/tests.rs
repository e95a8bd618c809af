use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::engine::instruments::store_of;

fn everything(exported: &Exported, kind: LockKind, name: &Name) {
    let took = Duration::from_millis(3);
    for end in AcquireEnd::ALL {
        exported.acquire_ended(kind, name, end, took, Some(ErrorKind::Unavailable));
    }
    exported.holds(kind, name, true);
    exported.hold_ended(kind, name, HoldOutcome::Released, took);
    exported.hold_ended(kind, name, HoldOutcome::Lost(LostReason::Expired), took);
    exported.waits(kind, name, true);
    exported.renewed(kind, name, took);
    exported.woken(kind, name, WakeCause::Message, true);
    exported.handed_over(kind, name, None);
    exported.cleaned_up(kind, name, CleanupCause::LostReply, CleanupEnd::Undone);
    exported.answered(StoreRequest::Acquire, took, None);
}

/// The lines of a scrape that are a series.
fn series(scrape: &str) -> usize {
    let lines = scrape.lines();
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .count()
}

#[test]
fn a_million_names_make_less_than_300_series() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let rules = [("stock:*".to_owned(), "stock".to_owned())];
        let exported = Exported::new("redis", &rules);
        for number in 0..1_000_000 {
            let name = Name::new(format!("order:{number}").as_str()).unwrap();
            if number < 1_000 {
                everything(&exported, LockKind::Mutex, &name);
            } else {
                let end = AcquireEnd::ALL[number % AcquireEnd::ALL.len()];
                let took = Duration::from_millis(1);
                exported.acquire_ended(LockKind::Mutex, &name, end, took, None);
            }
        }
        let scrape = recorder.handle().render();
        assert!(series(&scrape) < 300, "{} series", series(&scrape));
        assert!(!scrape.contains("order:"), "a name became a label");
        assert!(scrape.contains(r#"group="other""#));
    });
}

#[test]
fn groups_are_capped() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let rules: Vec<_> = (0..200)
            .map(|number| (format!("{number}:*"), format!("group-{number}")))
            .collect();
        let exported = Exported::new("redis", &rules);
        for number in 0..200 {
            let name = Name::new(format!("{number}:a").as_str()).unwrap();
            exported.waits(LockKind::Mutex, &name, true);
        }
        let scrape = recorder.handle().render();
        assert_eq!(series(&scrape), MOST_GROUPS + 1);
        let other = r#"tidelock_waiter_count{store="redis",kind="mutex",group="other"} 150"#;
        assert!(scrape.contains(other), "{scrape}");
    });
}

#[test]
fn every_combination_of_labels_has_a_handle_of_its_own() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let exported = Exported::new("etcds", &[]);
        let name = Name::new("a").unwrap();
        for kind in LockKind::ALL {
            everything(&exported, kind, &name);
        }
        let scrape = recorder.handle().render();
        for end in AcquireEnd::ALL {
            let path = end.path().map(|path| format!(r#",path="{path}""#));
            let error = (end == AcquireEnd::Failed).then_some(r#",error_type="unavailable""#);
            for kind in LockKind::ALL {
                let count = format!(
                    r#"tidelock_acquire_duration_count{{store="etcds",kind="{}",outcome="{}"{}{}}} 1"#,
                    kind.as_str(),
                    end.outcome(),
                    path.as_deref().unwrap_or_default(),
                    error.unwrap_or_default(),
                );
                assert!(scrape.contains(&count), "{count} is not in\n{scrape}");
            }
        }
    });
}

#[test]
fn a_store_is_named_as_opentelemetry_names_it() {
    for (url, name) in [
        ("redis+sentinel://a:1/b", "redis"),
        ("rediss://a", "redis"),
        ("postgres://a", "postgresql"),
        ("etcds://a", "etcd"),
        ("sqlite:a.db", "sqlite"),
        ("nonsense", "other"),
    ] {
        assert_eq!(store_of(url), name);
    }
}
