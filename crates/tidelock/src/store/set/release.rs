//! Releases or withdraws a lock of a set: asks every member, and reports every failure.

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::store::set::errors::of_parts;
use crate::store::set::in_doubt::MemberDoubt;
use crate::store::set::shared::{Rule, Shared, Side};
use crate::store::{Released, Ticket};
use crate::types::{Escaped, LostReason};

/// Releases or withdraws a ticket at every member. A repeated call asks only the members that have not answered.
pub(crate) async fn end(
    set: &Shared,
    side: Side,
    ticket: &Ticket,
    withdraw: bool,
) -> Result<Released> {
    let parts = set.members.len();
    let mut marks = set.in_doubt_log.begin_end(ticket, parts, set.timers.now());
    // A member that answered every request gets a plain release. Only a member with an unanswered request needs a
    // withdrawal, whose tombstone stops the late request. If no doubt is recorded, a withdrawal goes to every member.
    let doubts_known = marks.iter().any(|mark| mark.doubt);
    let open = |part: &usize| {
        let twin = set.members[*part].is_twin();
        !marks[*part].over && (!twin || withdraw)
    };
    let asked = (0..parts).filter(open).map(|part| {
        let how = marks[part].doubt || (withdraw && !doubts_known);
        async move { (part, how, ask_one(set, side, part, ticket, how).await) }
    });
    let mut failed = Vec::new();
    for (part, how, answer) in join_all(asked).await {
        match note(&mut marks[part], answer) {
            Ok(()) => {}
            Err(error) => failed.push((part, how, error)),
        }
    }
    let outcome = match &set.rule {
        // The ticket of a hold may be in doubt at a member, so its release is a withdrawal. A part that is missing then was
        // lost. A part that is missing from a ticket that never became a hold may never have been acquired.
        Rule::All => all(
            set,
            &marks,
            failed,
            withdraw && !set.in_doubt_log.was_granted(ticket),
        ),
        Rule::Majority(_) => majority(set, ticket, &marks, failed),
    };
    set.in_doubt_log.end(ticket, &marks, is_done(&outcome));
    outcome
}

type Failed = Vec<(usize, bool, Error)>;

/// Releases the parts that an attempt took without success. If a member does not answer, the ticket is in doubt
/// there.
pub(crate) async fn give_back(set: &Shared, ticket: &Ticket, parts: &[usize]) {
    let asked = parts.iter().map(|part| async move {
        let answer = ask_one(set, Side::Front, *part, ticket, false).await;
        (*part, answer)
    });
    for (part, answer) in join_all(asked).await {
        if let Err(error) = answer {
            tracing::debug!(lock = %ticket.name, %error, "a lock of a member could not be released; withdrawing it in the background");
            doubt(set, ticket, part);
        }
    }
}

/// Records that a request of the ticket may still take effect at that member.
pub(crate) fn doubt(set: &Shared, ticket: &Ticket, part: usize) {
    let (parts, now) = (set.members.len(), set.timers.now());
    set.in_doubt_log.doubt(ticket, part, parts, now);
}

async fn ask_one(
    set: &Shared,
    side: Side,
    part: usize,
    ticket: &Ticket,
    withdraw: bool,
) -> Result<Released> {
    let own = set.members[part].ticket(ticket);
    let store = set.member(part, side).clone();
    let call = Box::pin(async move {
        if withdraw {
            store.withdraw(&own).await
        } else {
            store.release(&own).await
        }
    });
    match set.rule {
        // The member bounds its own requests.
        Rule::All => call.await,
        Rule::Majority(_) => set.bounded(call).await,
    }
}

fn note(mark: &mut MemberDoubt, answer: Result<Released>) -> Result<()> {
    match answer {
        Ok(Released::Freed | Released::Awaited(_)) => mark.freed = true,
        Ok(Released::NotHeld) => mark.perhaps = mark.tried,
        Ok(Released::WrongType) => mark.wrong_type = true,
        Err(error) if error.kind() == ErrorKind::WrongType => {
            mark.perhaps = mark.tried;
            mark.wrong_type = !mark.tried;
        }
        // A set of its own that has lost a part. It has answered, and the other members may still need retries.
        Err(error) if error.kind() == ErrorKind::Lost => {
            mark.wrong_type = error.lost_reason() == Some(LostReason::WrongType);
        }
        Err(error) => {
            mark.tried |= error.outcome_unknown();
            return Err(error);
        }
    }
    mark.over = true;
    Ok(())
}

/// `undone`: the ticket never became a hold.
fn all(set: &Shared, marks: &[MemberDoubt], failed: Failed, undone: bool) -> Result<Released> {
    if !failed.is_empty() {
        return Err(unfinished(set, failed));
    }
    let own = || (0..marks.len()).filter(|part| !set.members[*part].is_twin());
    let gone = |part: &usize| !marks[*part].freed && !marks[*part].perhaps;
    let missing: Vec<usize> = own().filter(gone).collect();
    let freed = own().any(|part| marks[part].freed);
    if missing.is_empty() || undone && freed {
        return Ok(Released::Freed);
    }
    let wrong_type = marks.iter().any(|mark| mark.wrong_type);
    if undone || !freed {
        return Ok(not_held(wrong_type));
    }
    let reason = if wrong_type {
        LostReason::WrongType
    } else {
        LostReason::Taken
    };
    let names: Vec<&str> = missing
        .iter()
        .map(|part| &*set.members[*part].label)
        .collect();
    Err(Error::lost(reason).because(format!(
        "no longer held: {}; the others were released",
        names.join(", ")
    )))
}

fn majority(
    set: &Shared,
    ticket: &Ticket,
    marks: &[MemberDoubt],
    failed: Failed,
) -> Result<Released> {
    let freed = marks
        .iter()
        .filter(|mark| mark.freed || mark.perhaps)
        .count();
    if marks.len() - failed.len() < set.needed() {
        return Err(unfinished(set, failed));
    }
    // A majority has answered, so others can take the lock. The caller does not wait for the rest; the janitor
    // retries there.
    let held = freed + failed.len() >= set.needed();
    for (part, withdraw, error) in failed {
        let member = &set.members[part];
        tracing::debug!(lock = %ticket.name, member = %Escaped(&member.label), %error, "the member did not answer the release; retrying in the background");
        set.clean_up(part, member.ticket(ticket), withdraw);
    }
    Ok(if held {
        Released::Freed
    } else {
        not_held(marks.iter().any(|mark| mark.wrong_type))
    })
}

fn not_held(wrong_type: bool) -> Released {
    if wrong_type {
        Released::WrongType
    } else {
        Released::NotHeld
    }
}

/// Some have not answered. Others have been freed, so it surely has taken effect in part. It is retryable if a retry can
/// free one more of them; otherwise an error of one member would leave the others held until their leases end.
fn unfinished(set: &Shared, failed: Failed) -> Error {
    let retryable = failed.iter().any(|(_, _, error)| error.is_retryable());
    let kind = match failed.first() {
        Some((_, _, error)) if !retryable => error.kind(),
        _ => ErrorKind::OutcomeUnknown,
    };
    let failed = failed.into_iter().map(|(part, _, error)| (part, error));
    of_parts(set, kind, failed.collect())
}

/// The caller will not repeat the call.
fn is_done(outcome: &Result<Released>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => !error.is_retryable(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Awaited;
    #[cfg(feature = "testing")]
    use crate::store::set::tests::scripted::{Scripted, all_of, majority_of, quorum, ticket};

    /// The flags `freed`, `perhaps`, `wrong_type` and `over` of a member after this answer. `tried`: an earlier release got no
    /// answer.
    fn noted(tried: bool, answer: Result<Released>) -> [bool; 4] {
        let mut mark = MemberDoubt {
            tried,
            ..MemberDoubt::default()
        };
        let is_over = note(&mut mark, answer).is_ok();
        assert_eq!(mark.over, is_over);
        [mark.freed, mark.perhaps, mark.wrong_type, mark.over]
    }

    #[test]
    fn only_a_release_that_was_repeated_may_find_nothing() {
        let awaited = || Ok(Released::Awaited(Awaited::default()));
        let wrong_type = || Err(Error::new(ErrorKind::WrongType));
        for tried in [false, true] {
            let noted = |answer| noted(tried, answer);
            assert_eq!(noted(Ok(Released::Freed)), [true, false, false, true]);
            assert_eq!(noted(awaited()), [true, false, false, true]);
            assert_eq!(noted(Ok(Released::NotHeld)), [false, tried, false, true]);
            let beside = noted(Ok(Released::WrongType));
            assert_eq!(beside, [false, false, true, true]);
            assert_eq!(noted(wrong_type()), [false, tried, !tried, true]);
            for (reason, beside) in [(LostReason::Taken, false), (LostReason::WrongType, true)] {
                let lost = noted(Err(Error::lost(reason)));
                assert_eq!(lost, [false, false, beside, true]);
            }
            let silent = noted(Err(Error::new(ErrorKind::Unavailable)));
            assert_eq!(silent, [false; 4]);
        }
    }

    #[test]
    fn a_release_without_an_answer_may_have_taken_effect() {
        let mut mark = MemberDoubt::default();
        let mut fails = |kind| {
            note(&mut mark, Err(Error::new(kind))).unwrap_err();
            mark.tried
        };
        assert!(!fails(ErrorKind::Unavailable), "it was not sent");
        assert!(fails(ErrorKind::OutcomeUnknown));
        assert!(fails(ErrorKind::Unavailable), "the one before counts");
    }

    #[test]
    fn a_release_is_repeated_if_that_can_help() {
        assert!(is_done(&Ok(Released::NotHeld)));
        assert!(is_done(&Err(Error::lost(LostReason::Taken))));
        assert!(!is_done(&Err(Error::new(ErrorKind::OutcomeUnknown))));
    }

    /// A withdrawal costs a store more than a release, and leaves a mark. It is needed only where a request of the ticket may
    /// still take effect.
    #[cfg(feature = "testing")]
    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_withdrawn_where_it_is_in_doubt() {
        for (withdraw, in_doubt, how) in [
            (false, None, [false, false]),
            (true, None, [true, true]),
            (true, Some(1), [false, true]),
            (false, Some(0), [true, false]),
        ] {
            let members = [Scripted::default(), Scripted::default()];
            let (set, ticket) = (all_of(&members.each_ref()), ticket());
            if let Some(part) = in_doubt {
                doubt(&set, &ticket, part);
            }
            let ended = end(&set, Side::Front, &ticket, withdraw).await;
            assert!(matches!(ended, Ok(Released::Freed)), "{ended:?}");
            for (member, how) in members.iter().zip(how) {
                assert_eq!(member.ended(), [how], "{withdraw} {in_doubt:?}");
            }
        }
    }

    /// A member that has answered may have given the lock to somebody else by now.
    #[cfg(feature = "testing")]
    #[tokio::test(start_paused = true)]
    async fn a_repeated_release_asks_those_that_have_not_answered() {
        let members = [
            Scripted::default(),
            Scripted::default().ends(Err(Error::new(ErrorKind::Unavailable))),
        ];
        let (set, ticket) = (all_of(&members.each_ref()), ticket());
        for asked in [[1, 1], [1, 2]] {
            let ended = end(&set, Side::Front, &ticket, false).await;
            assert_eq!(ended.is_ok(), asked == [1, 2], "{ended:?}");
            assert_eq!(members.each_ref().map(|it| it.ended().len()), asked);
        }
    }

    /// The ticket of a hold may be in doubt, so its release is a withdrawal. A missing part is a loss all the same.
    #[cfg(feature = "testing")]
    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_missing_is_a_loss_only_of_a_hold() {
        for (withdraw, granted, lost) in [
            (false, false, true),
            (true, false, false),
            (true, true, true),
        ] {
            let members = [
                Scripted::default(),
                Scripted::default().ends(Ok(Released::NotHeld)),
            ];
            let (set, ticket) = (all_of(&members.each_ref()), ticket());
            if withdraw {
                doubt(&set, &ticket, 0);
            }
            if granted {
                set.in_doubt_log.granted(&ticket);
            }
            let ended = end(&set, Side::Front, &ticket, withdraw).await;
            assert_eq!(ended.is_err(), lost, "{withdraw} {granted} {ended:?}");
        }
    }

    #[cfg(feature = "testing")]
    #[tokio::test(start_paused = true)]
    async fn a_release_without_a_majority_is_unfinished() {
        let silent = || Scripted::default().ends(Err(Error::new(ErrorKind::OutcomeUnknown)));
        for (count, is_done) in [(1, true), (2, false)] {
            let mut members = [(); 3].map(|()| Scripted::default());
            members[..count].fill_with(silent);
            let set = majority_of(quorum(), &members.each_ref());
            let ended = end(&set, Side::Front, &ticket(), false).await;
            assert_eq!(ended.is_ok(), is_done, "{ended:?}");
        }
    }
}
