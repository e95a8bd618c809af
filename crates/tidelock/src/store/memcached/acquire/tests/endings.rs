//! The end of a hold: by a release, by a withdrawal, and by an operator.

use super::*;
use crate::snapshot::Holder;

#[tokio::test]
async fn a_release_deletes_the_item_of_its_owner_and_no_other() {
    for (items, deleted, released, changes) in [
        (&[Own(12)][..], &[DONE][..], Ok(Released::Freed), 1),
        (&[Own(12)], &[CHANGED, DONE], Ok(Released::Freed), 2),
        (&[Own(12), Other(12)], &[CHANGED], Ok(Released::NotHeld), 1),
        (&[Own(12), Nobody], &["NF\r\n"], Ok(Released::NotHeld), 1),
        (&[Nobody], &[DONE], Ok(Released::NotHeld), 0),
        (&[Other(12)], &[DONE], Ok(Released::NotHeld), 0),
        (&[OwnOther], &[DONE], Ok(Released::NotHeld), 0),
        (&[Foreign], &[DONE], Ok(Released::NotHeld), 0),
        (&[Own(12)], &[CHANGED], Err(ErrorKind::Unavailable), 5),
        (&[Own(12)], &[NO_MEMORY], Err(ErrorKind::Unavailable), 1),
        (&[Own(12)], &[HANG_UP], Err(ErrorKind::OutcomeUnknown), 1),
        (&[Own(12)], &["NS\r\n"], Err(ErrorKind::OutcomeUnknown), 1),
    ] {
        let scene = Scene::new(items).await;
        scene.server.answers("md stock", deleted);
        let ended = scene.store.front.release(&scene.own).await;
        let ended = ended.map_err(|error| error.kind());
        assert_eq!(ended, released, "{items:?}, {deleted:?}");
        assert_eq!(scene.changes(), (0, changes), "{items:?}, {deleted:?}");
        for deletes in scene.server.heard("md") {
            assert_eq!(deletes, "md stock C7");
        }
    }
}

/// A server that has restarted counts its CAS numbers from one again, so the number may be that of another's item.
#[tokio::test]
async fn an_item_that_was_read_on_a_lost_connection_is_neither_deleted_nor_stored() {
    let scene = Scene::new(&[Cut]).await;
    let released = scene.store.front.release(&scene.own).await;
    released.unwrap_err();
    assert!(matches!(scene.renews().await, Renewed::Failed(_)));
    scene.attempts().await.unwrap_err();
    assert_eq!(scene.changes(), (0, 0));
}

/// Each first item is read before the tombstone is written, and the next one after it.
#[tokio::test]
async fn a_withdrawal_tells_whether_its_ticket_held_the_lock_and_that_no_request_can_take_it() {
    let unknown = Err(ErrorKind::OutcomeUnknown);
    for (items, marked, deleted, withdrawn) in [
        (&[Own(12)][..], DONE, DONE, Ok(Released::Freed)),
        // A waiter has deleted the void item in between.
        (&[Own(12), Nobody], DONE, DONE, Ok(Released::Freed)),
        // A late request of the ticket arrived in between.
        (&[Nobody, Own(12)], DONE, DONE, Ok(Released::Freed)),
        (&[Nobody], DONE, DONE, Ok(Released::NotHeld)),
        (&[Other(12)], DONE, DONE, Ok(Released::NotHeld)),
        (&[OwnOther], DONE, DONE, Ok(Released::NotHeld)),
        (&[Own(12)], NO_MEMORY, DONE, unknown),
        (&[Nobody], NO_MEMORY, DONE, unknown),
        (&[Own(12)], HANG_UP, DONE, unknown),
        (&[Own(12)], DONE, NO_MEMORY, unknown),
        (&[Own(12)], DONE, HANG_UP, unknown),
        (&[Own(12)], DONE, CHANGED, unknown),
    ] {
        let scene = Scene::new(items).await;
        scene.server.answers("ms tidelock:withdrawn:", &[marked]);
        scene.server.answers("md stock", &[deleted]);
        let ended = scene.store.front.withdraw(&scene.own).await;
        let ended = ended.map_err(|error| error.kind());
        assert_eq!(ended, withdrawn, "{items:?}, {marked:?}, {deleted:?}");
    }
}

/// From the tombstone on, a late attempt of this owner has no effect.
#[tokio::test]
async fn a_withdrawal_writes_its_tombstone_before_it_deletes() {
    let scene = Scene::new(&[Own(12)]).await;
    let released = scene.store.front.withdraw(&scene.own).await.unwrap();
    assert_eq!(released, Released::Freed);
    let tombstone = format!("ms {}", keys::tombstone(scene.own.owner.text()));
    let expected = ["mg stock", &*tombstone, "mg stock", "md stock"];
    assert_eq!(scene.server.commands(), expected);
    let kept = scene.server.heard(&tombstone).remove(0);
    assert!(kept.contains(" T302 "), "five minutes: {kept}");
}

/// The operator has looked at the lock before: nobody, this ticket or the other one held it, or he has not looked.
#[tokio::test]
async fn a_force_release_frees_the_holder_that_was_seen_and_no_other() {
    for (items, seen, is_void, freed, deletes) in [
        (&[Own(12)][..], None, false, Ok(true), 1),
        (&[Foreign], None, false, Ok(true), 1),
        (&[Nobody], None, false, Ok(false), 0),
        (&[Own(12)], None, true, Ok(false), 1),
        (&[Own(12)], Some(Own(12)), false, Ok(true), 1),
        (&[Own(12)], Some(Own(12)), true, Ok(false), 0),
        (&[Own(12)], Some(Other(12)), false, Ok(false), 0),
        (&[Own(12)], Some(Nobody), false, Ok(false), 0),
        (&[Foreign], Some(Foreign), false, Ok(true), 1),
        (&[Foreign], Some(Own(12)), false, Ok(false), 0),
    ] {
        let scene = Scene::new(items).await;
        if is_void {
            scene.withdraws(&scene.own);
        }
        let seen = seen.map(|holds| {
            let owner = match holds {
                Own(_) => Some(scene.own.owner.text()),
                Other(_) => Some(scene.other.owner.text()),
                Foreign => Some("hello"),
                Nobody | OwnOther | Cut => None,
            };
            let mut snapshot = Snapshot::free("stock");
            snapshot
                .holders
                .extend(owner.map(|owner| Holder::new(owner, 1)));
            snapshot
        });
        let front = &scene.store.front;
        let forced = front.force_release(&scene.own.name, seen.as_ref()).await;
        let forced = forced.map_err(|error| error.kind());
        assert_eq!(forced, freed, "{items:?}, {seen:?}, {is_void}");
        assert_eq!(scene.changes(), (0, deletes), "{items:?}, {seen:?}");
    }
}

#[tokio::test]
async fn a_force_release_that_finds_the_item_changed_decides_again() {
    for (items, freed, deletes) in [
        (&[Own(12), Own(30)][..], Ok(true), 2),
        (&[Own(12), Nobody], Ok(false), 1),
    ] {
        let scene = Scene::new(items).await;
        scene.server.answers("md stock", &[CHANGED, DONE]);
        let forced = scene.store.front.force_release(&scene.own.name, None).await;
        assert_eq!(forced.map_err(|error| error.kind()), freed, "{items:?}");
        assert_eq!(scene.changes(), (0, deletes), "{items:?}");
    }
    let scene = Scene::new(&[Own(12)]).await;
    scene.server.answers("md stock", &[CHANGED]);
    let forced = scene.store.front.force_release(&scene.own.name, None).await;
    assert_eq!(forced.unwrap_err().kind(), ErrorKind::Unavailable);
}
