//! Tests of the mark that an attempt writes under the lock.

use super::*;
use crate::Client;
use crate::once::Slot;

const SLOT: &str = "today";

async fn attempt(job: &OnceJob) -> OnceAttempt {
    match job.begin().await {
        Ok(Begun::Attempt(attempt)) => attempt,
        other => panic!("{other:?}"),
    }
}

/// A call that is dropped may have sent its mark and released its lock before the next one. The next one must not take
/// that mark for one of a later holder.
#[tokio::test]
async fn a_mark_that_comes_late_is_no_loss() {
    let client = Client::connect("memory:a_mark_that_comes_late_is_no_loss")
        .await
        .unwrap();
    let job = client.once("report").slot(Slot::id(SLOT));
    let job = job.wait(std::time::Duration::from_secs(20));
    let name = job.lock.checked_name().unwrap();
    let register = job.register(&name).unwrap();
    // For the next one there was no mark when it read.
    drop(attempt(&job).await);
    let guard = job.acquire().await.unwrap().unwrap();
    let write = || {
        let (slot, started) = (SLOT.to_owned(), SystemTime::UNIX_EPOCH);
        job.write_running(&register, &guard, slot, started, None)
    };
    let running = write().await.unwrap().unwrap();
    assert_eq!(
        (running.mark.attempt, running.mark.token),
        (2, guard.token())
    );
    // The mark of a later holder shows that the lock was lost.
    assert!(client.lock("report").force_release().await.unwrap());
    let later = attempt(&job).await;
    let error = write().await.map(drop).unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
    later.succeed().await.unwrap();
}

/// A holder that was declared dead may read the mark of its successor before it hears of its loss. It must not replace
/// that mark: otherwise the slot would be run a second time.
#[tokio::test]
async fn the_mark_of_a_later_holder_is_not_replaced() {
    let client = Client::connect("memory:the_mark_of_a_later_holder_is_not_replaced")
        .await
        .unwrap();
    let job = client.once("report").slot(Slot::id(SLOT));
    let name = job.lock.checked_name().unwrap();
    let register = job.register(&name).unwrap();
    let guard = job.acquire().await.unwrap().unwrap();
    assert!(client.lock("report").force_release().await.unwrap());
    let later = attempt(&job).await;
    let before = register.read(SLOT).await.unwrap();
    assert!(before.is_some(), "the later holder has written its mark");
    let (slot, started) = (SLOT.to_owned(), SystemTime::UNIX_EPOCH);
    let written = job.write_running(&register, &guard, slot, started, before);
    let error = written.await.map(drop).unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
    later.succeed().await.unwrap();
    let next = job.begin().await.unwrap();
    assert!(matches!(next, Begun::Done(_)), "{next:?}");
}

/// The store was replaced by an empty one: the later holder has a smaller token.
#[tokio::test]
async fn the_mark_of_a_later_holder_with_a_smaller_token_is_not_replaced() {
    let name = "the_mark_of_a_later_holder_with_a_smaller_token_is_not_replaced";
    let client = Client::connect(&format!("memory:{name}")).await.unwrap();
    let job = client.once("report").slot(Slot::id(SLOT));
    let name = job.lock.checked_name().unwrap();
    let register = job.register(&name).unwrap();
    job.acquire()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    let guard = job.acquire().await.unwrap().unwrap();
    assert!(client.lock("report").force_release().await.unwrap());
    let of_later = Mark {
        slot: SLOT.to_owned(),
        state: MarkState::Running,
        attempt: 1,
        token: FencingToken::new(guard.token().get() - 1),
        owner: "another".to_owned(),
        process: job.lock.context.core.process_info.own(),
        started: SystemTime::UNIX_EPOCH,
        ended: None,
        error: None,
    };
    let before = register.replace(None, of_later).await.unwrap();
    let (slot, started) = (SLOT.to_owned(), SystemTime::UNIX_EPOCH);
    let written = job.write_running(&register, &guard, slot, started, before);
    let error = written.await.map(drop).unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
}

/// The counter of the tokens may have begun again. A holder that has a smaller token than the mark asks the store whether
/// it holds the lock.
#[tokio::test]
async fn a_mark_of_an_earlier_holder_with_a_larger_token_is_replaced() {
    let client =
        Client::connect("memory:a_mark_of_an_earlier_holder_with_a_larger_token_is_replaced")
            .await
            .unwrap();
    let job = client.once("report").slot(Slot::id(SLOT));
    let name = job.lock.checked_name().unwrap();
    let register = job.register(&name).unwrap();
    let crashed = Mark {
        slot: SLOT.to_owned(),
        state: MarkState::Running,
        attempt: 1,
        token: FencingToken::new(100),
        owner: "another".to_owned(),
        process: job.lock.context.core.process_info.own(),
        started: SystemTime::UNIX_EPOCH,
        ended: None,
        error: None,
    };
    assert!(register.replace(None, crashed).await.unwrap().is_some());
    let next = attempt(&job).await;
    assert_eq!(next.run().attempt(), 2);
    assert!(next.run().token() < FencingToken::new(100));
    next.succeed().await.unwrap();
    let last = job.begin().await.unwrap();
    assert!(matches!(last, Begun::Done(_)), "{last:?}");
}

/// The mark of a crontab line is kept until its next time. So a run may take longer than `keep`, but not longer than the
/// mark is kept.
#[cfg(feature = "cron")]
#[tokio::test]
async fn a_run_of_a_crontab_line_is_compared_with_its_slot() {
    use std::time::Duration;

    let client = Client::connect("memory:a_run_of_a_crontab_line_is_compared_with_its_slot")
        .await
        .unwrap();
    let second = Duration::from_secs(1);
    let monthly = || {
        let job = client.once("report").keep(second);
        job.slot(Slot::cron("0 3 1 * *", "UTC"))
    };
    let ran = attempt(&monthly().max_run(second * 2)).await;
    ran.succeed().await.unwrap();
    let longer = second * 3600 * 24 * 40;
    let error = monthly().max_run(longer).begin().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("mark is kept"), "{error}");
}

/// After a loss another process may run the slot. After any other end of the request nobody knows.
#[tokio::test]
async fn an_end_that_the_store_has_not_confirmed_is_in_doubt() {
    let client = Client::connect("memory:").await.unwrap();
    let job = client.once("report").slot(Slot::id(SLOT));
    let running = attempt(&job).await.running;
    assert!(check_end(Ok(Ok(Some(running)))).is_ok());
    let lost = check_end(Ok(Ok(None))).unwrap_err();
    assert_eq!(lost.lost_reason(), Some(LostReason::Taken));
    for kind in [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown] {
        let unanswered = check_end(Ok(Err(Error::new(kind)))).unwrap_err();
        assert_eq!(unanswered.kind(), ErrorKind::OutcomeUnknown);
        assert!(std::error::Error::source(&unanswered).is_some());
    }
    let lost = check_end(Err(Error::lost(LostReason::Expired))).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown);
    assert!(lost.to_string().contains("may be run again"), "{lost}");
}
