use proptest::prelude::*;

use super::*;

fn process(host: &str, name: &str, user: &str, number: u64) -> Process {
    let mut process = Process::unknown("u");
    process.info = ClientInfo::new(host, 7, host, since_epoch(5)).run_by(Some(user));
    process.version = Some(host.to_owned());
    process.written = since_epoch(1000);
    process.latency = Duration::from_micros(412);
    (process.held, process.waiting, process.lost) = (number, number, number);
    (process.acquired, process.timed_out, process.failed) = (number, number, number);
    process.acquire_times = [(500, false), (300_000_000, false), (300_000_000, true)]
        .map(|(micros, is_longer)| WaitBucket {
            bound: Duration::from_micros(micros),
            is_longer,
            calls: number,
        })
        .to_vec();
    process.holds = vec![ProcessHold {
        name: name.to_owned(),
        kind: "mutex".to_owned(),
        token: Some(FencingToken::new(number)),
        held_for: Duration::from_millis(12_400),
    }];
    process.waits = vec![ProcessWait {
        name: name.to_owned(),
        kind: "fair".to_owned(),
        waiters: number,
        longest: Duration::from_millis(9),
    }];
    process.elections = [Some(number), None]
        .map(|term| ProcessElection {
            name: name.to_owned(),
            identity: user.to_owned(),
            term,
            lasted: Duration::from_millis(11),
        })
        .to_vec();
    process.jobs = vec![ProcessJob {
        name: name.to_owned(),
        slot: host.to_owned(),
        state: "done".to_owned(),
        attempt: number,
        token: Some(FencingToken::new(number)),
        lasted: Duration::from_millis(13),
    }];
    process
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(host in ".*", name in ".{1,200}", user in ".*", number: u64) {
        let process = process(&host, &name, &user, number);
        let line = to_line(&process);
        prop_assert!(!line.contains(char::is_control));
        prop_assert_eq!(from_line("u", &line, process.written), Some(process));
    }

    #[test]
    fn no_record_panics(line in ".*", value in ".*") {
        let now = since_epoch(u64::MAX);
        let _ = from_line("u", &line, now);
        let _ = from_line("u", &format!("{VERSION} {line}"), now);
        let _ = from_line("u", &format!("{VERSION} hold={value} written={value}"), now);
        let _ = from_line("u", &format!("{VERSION} hold=m,,18446744073709551615,x wait={value}"), now);
        let _ = from_line("u", &format!("{VERSION} election={value} written={value}"), now);
        let _ = from_line("u", &format!("{VERSION} acquire_times={value}"), now);
        let _ = from_line("u", &format!("{VERSION} job=done,,18446744073709551615,{value}"), now);
    }
}

#[test]
fn a_record_has_a_bounded_number_of_holds_and_a_bounded_length() {
    let mut big = process("h", &" ".repeat(512), "u", 1);
    big.holds = vec![big.holds[0].clone(); MOST_LISTED];
    big.jobs = vec![big.jobs[0].clone(); MOST_LISTED];
    let line = to_line(&big);
    assert!(line.len() <= LONGEST, "{}", line.len());
    let seen = from_line("u", &line, big.written).unwrap();
    assert!((1..MOST_LISTED).contains(&seen.holds.len()));
    let many = format!(
        "{VERSION}{}",
        " hold=mutex,,1,x wait=mutex,1,1,x election=waits,,1,a,x job=done,1,1,1,s,x".repeat(500)
    );
    let seen = from_line("u", &many, UNIX_EPOCH).unwrap();
    assert_eq!((seen.holds.len(), seen.waits.len()), (20, 20));
    assert_eq!((seen.elections.len(), seen.jobs.len()), (20, 20));
    let many = format!("{VERSION} acquire_times=1:1{}", ",1:1".repeat(500));
    let seen = from_line("u", &many, UNIX_EPOCH).unwrap();
    assert_eq!(seen.acquire_times.len(), 20);
    let long = format!("{VERSION} host={}", "x".repeat(LONGEST_READ));
    assert_eq!(from_line("u", &long, UNIX_EPOCH), None);
}

#[test]
fn a_record_grows_older_by_the_clock_of_the_store() {
    let line = to_line(&process("h", "n", "u", 1));
    let seen = from_line("u", &line, since_epoch(31_000)).unwrap();
    assert_eq!(seen.age, Duration::from_secs(30));
    assert!(!seen.is_gone());
    assert_eq!(seen.holds[0].held_for, Duration::from_millis(42_400));
    assert!(
        from_line("u", &line, since_epoch(31_001))
            .unwrap()
            .is_gone()
    );
    let early = from_line("u", &line, since_epoch(0)).unwrap();
    assert_eq!(early.age, Duration::ZERO, "a clock that was set back");
}

/// The text of the page on the wire protocol, which other programs read and write.
#[test]
fn further_words_are_passed_over_by_an_earlier_version() {
    let mut process = process("h", "bill,ing", "web-3", 7);
    process.jobs[0].slot = "a,b 1".to_owned();
    let line = to_line(&process);
    for word in [
        " election=leads,7,11,web-3,bill,ing ",
        " election=waits,,11,web-3,bill,ing ",
        " job=done,7,13,7,a%252cb%201,bill,ing",
        " acquire_times=500:7,300000000:7,300000000+:7 ",
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    // It knows these keys only, and reads each word as a key and an encoded value.
    for word in line.split(' ').skip(1) {
        let (_, value) = word.split_once('=').unwrap();
        assert!(percent::decode(value).is_some(), "{word}");
    }
    let earlier = "process1 host=a pid=7 held=1 hold=mutex,,5,x wait=mutex,1,5,y";
    let seen = from_line("u", earlier, UNIX_EPOCH).unwrap();
    assert_eq!((seen.elections.len(), seen.jobs.len()), (0, 0));
    assert_eq!((seen.holds.len(), seen.waits.len()), (1, 1));
    assert_eq!(seen.acquire_times, []);
}

#[test]
fn words_of_a_later_version_are_passed_over() {
    let seen = from_line("u", "process1 host=a pid=7 colour=red", UNIX_EPOCH).unwrap();
    assert_eq!((seen.info.pid, seen.version), (7, None));
    assert_eq!(from_line("u", "process2 host=a", UNIX_EPOCH), None);
}
