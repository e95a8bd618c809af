//! Tests of the pipeline without a driver.

use super::*;

/// A request that is queued between the last look of the driver and its sleep would not be sent.
#[test]
fn a_driver_does_not_sleep_while_it_has_something_to_send() {
    let (pipeline, waker) = (Pipeline::default(), Waker::noop());
    assert!(pipeline.sleep(waker, false), "nothing is queued");
    let _asked = pipeline.send(&Request::new("PING")).unwrap();
    assert!(!pipeline.sleep(waker, false));
    assert!(pipeline.sleep(waker, true), "an earlier write is blocked");
    pipeline.finish("it is over");
    for sending in [false, true] {
        assert!(!pipeline.sleep(waker, sending), "nobody would wake it");
    }
}

#[test]
fn requests_are_taken_together_once_there_are_enough() {
    let (pipeline, mut bytes, mut expected) = (Pipeline::default(), Vec::new(), Vec::new());
    assert_eq!(pipeline.batch_hint(&mut bytes, 0), BatchHint::Nothing);
    let request = Request::new("GET").arg("a").asking(true);
    let _first = pipeline.send(&request).unwrap();
    assert_eq!(pipeline.batch_hint(&mut bytes, 2), BatchHint::Few);
    assert!(bytes.is_empty());
    let _second = pipeline.send(&request).unwrap();
    assert_eq!(pipeline.batch_hint(&mut bytes, 2), BatchHint::Taken);
    for _ in 0..2 {
        Request::new("ASKING").write(&mut expected);
        request.write(&mut expected);
    }
    assert_eq!(String::from_utf8(bytes), String::from_utf8(expected));
    let mut rest = Vec::new();
    assert_eq!(pipeline.batch_hint(&mut rest, 0), BatchHint::Nothing);
}

/// A connection that has broken is cut as well, which says less.
#[test]
fn the_first_reason_for_the_end_of_a_connection_is_the_one_that_is_told() {
    let pipeline = Pipeline::default();
    assert!(!pipeline.is_over());
    pipeline.finish("the server has closed it");
    pipeline.cut();
    assert!(pipeline.is_over());
    match pipeline.send(&Request::new("PING")) {
        Err(RequestError::Broken(why)) => assert!(why.contains("the server has"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// Otherwise a connection on which every caller leaves early would be used for as long as TCP keeps it.
#[test]
fn a_request_whose_caller_has_left_is_overdue_from_its_deadline_until_it_is_answered() {
    let (pipeline, request) = (Pipeline::default(), Request::new("PING"));
    let (early, late) = (BootInstant(7), BootInstant(9));
    let overdue_at = |at| pipeline.is_overdue(|| BootInstant(at));
    let answers = |count: usize| {
        let mut received = Vec::new();
        received.resize_with(count, || ReceivedReply::Answer(Ok(Reply::Nil)));
        pipeline
            .deliver(&mut received, &mut VecDeque::new())
            .unwrap();
    };
    let stays = pipeline.send(&request).unwrap().until(early);
    assert!(!overdue_at(8), "its caller is there");
    drop(pipeline.send(&request).unwrap());
    assert!(!overdue_at(8), "its caller has no deadline");
    drop(pipeline.send(&request).unwrap().until(early));
    drop(pipeline.send(&request).unwrap().until(late));
    assert!(!overdue_at(6));
    assert!(overdue_at(7) && overdue_at(8), "the oldest one counts");
    answers(2);
    assert!(overdue_at(8));
    answers(1);
    assert!(!overdue_at(8), "that one is answered");
    drop(stays);
    answers(1);
    let answered = pipeline.send(&request).unwrap().until(early);
    answers(1);
    drop(answered);
    assert!(!overdue_at(8), "it had its reply when its caller left");
    drop(pipeline.send(&request).unwrap().until(late));
    assert!(!overdue_at(8) && overdue_at(9));
}
