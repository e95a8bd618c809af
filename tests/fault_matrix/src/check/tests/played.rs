//! Runs of real clients, on a store with a bug or with a worker that breaks a promise.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::process::boot_time;
use tidelock::Client;
use tidelock::store::{Env, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{LEASE, caught, terms};
use crate::acquisition::Histories;
use crate::broken::{Flaw, with};
use crate::check::{Breach, Promise, all, leaks};
use crate::history::{Reader, Recorder};
use crate::notes::{Harm, Notes, Span};
use crate::worker::{Library, Lie, Manner, Plan, tasks};

/// The event in the middle of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    /// All locks are freed, including held ones.
    Forced,
}

async fn client(store: String, flaw: Option<Flaw>) -> Client {
    let open = async move |env: &Env| -> tidelock::Result<Store> {
        let store = tidelock::testing::open(&store, env).await?;
        Ok(match flaw {
            Some(flaw) => with(store, env, flaw),
            None => store,
        })
    };
    let settings = Client::builder().lease(LEASE);
    settings.connect_to(open).await.unwrap()
}

/// Runs three clients on one store with that bug for a second and a half, and returns the breaches.
async fn run(name: &str, flaw: Option<Flaw>, lie: Lie, event: Event) -> Vec<Breach> {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("memory:{name}");
    let (stopper, stop) = watch::channel(false);
    let (_manners, manner) = watch::channel(Manner::Usual);
    let (mut clients, mut running, mut files) = (Vec::new(), JoinSet::new(), Vec::new());
    for process in 1..4 {
        let file = dir.path().join(process.to_string());
        let recorder = Recorder::create(&file).unwrap();
        let client = client(store.clone(), flaw).await;
        let plan = plan(process, &store, &file, name);
        for mut task in tasks(&plan, 0, &recorder, &stop, &manner, |role, name, id| {
            role.lock(&client, name, id, true)
        }) {
            task.lie = lie;
            running.spawn(task.run());
        }
        clients.push(client);
        files.push((process, file));
    }
    let bystander = client(store, None).await;
    tokio::time::sleep(LEASE).await;
    let mut notes = Notes::default();
    if event == Event::Forced {
        notes.harms.push(force_all(&bystander).await);
    }
    tokio::time::sleep(LEASE * 2).await;
    notes.ended = boot_time();
    stopper.send_replace(true);
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    for client in clients {
        client.close(Duration::ZERO).await;
    }
    tokio::time::sleep(LEASE).await;
    let mut found = leaks(&bystander.list("*").limit(100).await.unwrap());
    let mut terms = terms();
    if event == Event::Forced {
        (terms.keeps, terms.typical_wake) = (false, None);
    }
    let read: Vec<(u32, Reader)> = files.into_iter().map(read).collect();
    let read = read
        .iter()
        .map(|(process, reader)| (*process, &*reader.lines));
    let history = Histories::of(read);
    assert!(history.granted().count() > 4, "too little happened");
    found.extend(all(&history, &notes, &terms));
    found
}

fn plan(process: u32, store: &str, file: &Path, name: &str) -> Plan {
    Plan {
        process,
        store: vec![store.to_owned()],
        secret: None,
        file: file.to_owned(),
        lease_ms: LEASE.as_millis().try_into().unwrap(),
        name: name.to_owned(),
        seed: 7,
        no_tokens: false,
        clients: 1,
        crowd: 0,
        holders: 0,
        all_replicas: false,
        restart_guard: false,
        library: Library::Tidelock,
        lie: Lie::None,
    }
}

/// Frees every lock by force.
async fn force_all(bystander: &Client) -> Harm {
    let from = boot_time();
    for held in bystander.list("*").limit(100).await.unwrap() {
        bystander.lock(&held).force_release().await.unwrap();
    }
    let to = boot_time();
    Harm {
        when: Span { from, to },
        name: None,
        tokens: false,
        sure: true,
    }
}

fn read((process, file): (u32, PathBuf)) -> (u32, Reader) {
    let mut reader = Reader::open(&file).unwrap();
    reader.refresh().unwrap();
    (process, reader)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_works_is_not_accused() {
    let found = run("honest", None, Lie::None, Event::Nothing).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_was_told_is_no_breach() {
    let found = run("told", None, Lie::None, Event::Forced).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_lets_everybody_in_is_caught() {
    let flaw = Some(Flaw::LetsEverybodyIn);
    let found = run("open", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Exclusion);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_token_is_caught() {
    let flaw = Some(Flaw::OldTokens);
    let found = run("tokens", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Tokens);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_wakes_nobody_is_caught() {
    let flaw = Some(Flaw::FreesForAnybody);
    let found = run("deaf", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Wake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_ignores_losses_is_caught() {
    let found = run("liar", None, Lie::IgnoresLosses, Event::Forced).await;
    caught(&found, Promise::Loss);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_believed_for_nothing_is_caught() {
    let flaw = Some(Flaw::ConfirmsEverything);
    let found = run("credulous", flaw, Lie::None, Event::Forced).await;
    caught(&found, Promise::Loss);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remains_are_caught() {
    let flaw = Some(Flaw::KeepsEverything);
    let found = run("leaky", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Leaks);
}
