use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::error::tests::KINDS;

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

/// A scrape says what each metric is.
#[test]
fn every_metric_is_described() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let exported = Exported::new("redis", &[]);
        everything(&exported, LockKind::Mutex, &Name::new("a").unwrap());
        exported.hold_ended(
            LockKind::Mutex,
            &Name::new("a").unwrap(),
            HoldOutcome::Released,
            SHORT,
        );
        let scrape = recorder.handle().render();
        let metrics = |start: &str| {
            let lines = scrape.lines().filter_map(|line| line.strip_prefix(start));
            let names = lines.filter_map(|line| line.split(' ').next());
            names.map(str::to_owned).collect::<BTreeSet<_>>()
        };
        assert!(metrics("# TYPE ").len() >= 9);
        assert_eq!(metrics("# HELP "), metrics("# TYPE "));
    });
}

/// The number of each series of that metric. For a histogram, how many durations it counted.
fn numbers(scrape: &str, metric: &str) -> Vec<u64> {
    let starts = ["", "_count"].map(|end| format!("{metric}{end}{{"));
    let lines = scrape.lines().filter(|line| !line.contains("quantile="));
    let lines = lines.filter(|line| starts.iter().any(|start| line.starts_with(start)));
    let numbers = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap());
    numbers.collect()
}

/// Two combinations with one handle would be counted as one of them.
#[test]
fn each_combination_of_labels_is_counted_by_itself() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let exported = Exported::new("redis", &[]);
        let (kind, name, took) = (LockKind::Mutex, &Name::new("a").unwrap(), SHORT);
        for error in KINDS {
            exported.acquire_ended(kind, name, AcquireEnd::Failed, took, Some(error));
        }
        for end in AcquireEnd::ALL {
            exported.acquire_ended(kind, name, end, took, None);
        }
        for reason in LostReason::ALL {
            exported.hold_ended(kind, name, HoldOutcome::Lost(reason), took);
        }
        exported.hold_ended(kind, name, HoldOutcome::Released, took);
        exported.hold_ended(kind, name, HoldOutcome::Dropped, took);
        for (cause, useful) in WakeCause::ALL
            .into_iter()
            .flat_map(|cause| [(cause, false), (cause, true)])
        {
            exported.woken(kind, name, cause, useful);
        }
        exported.handed_over(kind, name, None);
        for stop in HandOverStop::ALL {
            exported.handed_over(kind, name, Some(stop));
        }
        for end in CleanupEnd::ALL {
            exported.cleaned_up(kind, name, CleanupCause::Cancelled, end);
            exported.cleaned_up(kind, name, CleanupCause::LostReply, end);
            exported.cleaned_up(kind, name, CleanupCause::Unconfirmed, end);
        }
        for request in [
            StoreRequest::Acquire,
            StoreRequest::Renew,
            StoreRequest::Release,
            StoreRequest::Withdraw,
        ] {
            exported.answered(request, took, None);
            for error in KINDS {
                exported.answered(request, took, Some(error));
            }
        }
        let scrape = recorder.handle().render();
        let ends = AcquireEnd::ALL.len() + KINDS.len();
        for (metric, series) in [
            ("tidelock_acquire_duration", ends),
            ("tidelock_losses", LostReason::ALL.len()),
            ("tidelock_wakes", 4),
            ("tidelock_handovers", 1 + HandOverStop::ALL.len()),
            ("tidelock_cleanups", 3 * CleanupEnd::ALL.len()),
            ("db_client_operation_duration", 4 * (1 + KINDS.len())),
        ] {
            assert_eq!(numbers(&scrape, metric), vec![1; series], "{metric}");
        }
        let mut holds = numbers(&scrape, "tidelock_hold_duration");
        holds.sort_unstable();
        assert_eq!(holds, [1, 1, LostReason::ALL.len() as u64]);
    });
}

const SHORT: Duration = Duration::from_millis(3);

#[test]
fn each_kind_of_lock_has_its_own_gauges_in_each_group() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let rule = |group: &str| (format!("{group}:*"), group.to_owned());
        let exported = Exported::new("redis", &["a", "b", "c"].map(rule));
        let names = ["a:1", "b:1", "c:1", "d:1"].map(|name| Name::new(name).unwrap());
        for (kind, name) in LockKind::ALL
            .into_iter()
            .flat_map(|kind| names.iter().map(move |name| (kind, name)))
        {
            for begins in [true, true, false] {
                exported.waits(kind, name, begins);
                exported.holds(kind, name, true);
                exported.holds(kind, name, begins);
            }
            exported.renewed(kind, name, SHORT);
        }
        let scrape = recorder.handle().render();
        let all = LockKind::ALL.len() * names.len();
        for (metric, number) in [
            ("tidelock_waiter_count", 1),
            ("tidelock_hold_count", 4),
            ("tidelock_lease_margin", 1),
        ] {
            assert_eq!(numbers(&scrape, metric), vec![number; all], "{metric}");
        }
    });
}

/// A client that was not given a recorder exports nothing, and a group that no rule names is no group.
#[test]
fn without_rules_no_metric_has_a_group() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let exported = Exported::new("redis", &[]);
        everything(&exported, LockKind::Mutex, &Name::new("a").unwrap());
        assert!(!recorder.handle().render().contains("group="));
        let silent = Exported::default();
        let before = series(&recorder.handle().render());
        everything(&silent, LockKind::Mutex, &Name::new("a").unwrap());
        assert_eq!(series(&recorder.handle().render()), before);
    });
}
