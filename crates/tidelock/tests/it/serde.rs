//! The feature `serde`: readable texts, round trips, and no secrets.

use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidelock::{
    AcquireOptions, CancelToken, Client, ErrorKind, FencingToken, HandOff, Owner, ReplicaAck,
};

#[test]
fn options_are_written_as_a_person_would() {
    let options = AcquireOptions::new()
        .wait(Duration::from_secs(90))
        .expires_after(Duration::from_millis(1500))
        .acknowledge(ReplicaAck::Majority);
    let text = json!({"wait": "1m 30s", "expires_after": "1s 500ms", "acknowledge": "majority"});
    assert_eq!(serde_json::to_value(&options).unwrap(), text);
    assert_eq!(
        serde_json::to_value(AcquireOptions::new()).unwrap(),
        json!({})
    );
    assert_eq!(
        serde_json::to_value(HandOff::OFF).unwrap(),
        json!({"times": 0, "within": "0s"})
    );
    // What lives only in this process is not written.
    let bound = options.owner(&Owner::new()).cancel(&CancelToken::new());
    assert_eq!(serde_json::to_value(bound).unwrap(), text);
}

#[test]
fn a_wrong_option_is_refused_with_its_name() {
    for (text, named) in [
        (r#"{"wiat": "5s"}"#, "wiat"),
        (r#"{"wait": "5 apples"}"#, "write a duration such as 30s"),
        (r#"{"acknowledge": "most"}"#, "most"),
    ] {
        let error = serde_json::from_str::<AcquireOptions>(text).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// A configuration is checked like options from code.
#[tokio::test]
async fn options_from_a_file_are_checked_when_they_are_used() {
    let client = Client::connect("memory:").await.unwrap();
    let both: AcquireOptions =
        serde_json::from_str(r#"{"lease": "10s", "expires_after": "10s"}"#).unwrap();
    let error = client.lock("a").acquire_with(both).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    let hand_off: HandOff = serde_json::from_str(r#"{"times": 4000000000}"#).unwrap();
    let refused = Client::builder()
        .hand_off(hand_off)
        .connect("memory:")
        .await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidOptions);
}

proptest! {
    #[test]
    fn options_and_tokens_come_back_unchanged(
        nanos in any::<u64>(),
        others in proptest::option::of(any::<u64>()),
        times in any::<u32>(),
    ) {
        let duration = Duration::from_nanos(nanos);
        let mut options = AcquireOptions::new().wait(duration).acknowledge(ReplicaAck::All);
        if let Some(nanos) = others {
            options = options.max_hold(Duration::from_nanos(nanos)).lock_delay(duration);
        }
        let text = serde_json::to_string(&options).unwrap();
        let back: AcquireOptions = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(format!("{options:?}"), format!("{back:?}"));
        let hand_off = HandOff::OFF.times(times).within(duration);
        let text = serde_json::to_string(&hand_off).unwrap();
        prop_assert_eq!(serde_json::from_str::<HandOff>(&text).unwrap(), hand_off);
        let token = FencingToken::new(nanos);
        let text = serde_json::to_string(&token).unwrap();
        prop_assert_eq!(&text, &nanos.to_string());
        prop_assert_eq!(serde_json::from_str::<FencingToken>(&text).unwrap(), token);
    }
}

#[tokio::test]
async fn what_operators_see_is_readable_json() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("till").fenced();
    let guard = lock.acquire().await.unwrap();
    let seen = serde_json::to_value(lock.inspect().await.unwrap()).unwrap();
    assert_eq!(seen["name"], "till");
    assert_eq!(seen["token"], guard.token().get());
    assert!(
        seen["expires_in"].as_str().unwrap().starts_with("29s "),
        "{seen}"
    );
    assert_eq!(seen["holders"][0]["mode"], "exclusive");
    assert_eq!(serde_json::to_value(guard.state()).unwrap(), "held");
    let health = serde_json::to_value(client.status()).unwrap();
    assert_eq!(
        (&health["is_connected"], &health["held"]),
        (&json!(true), &json!(1))
    );
    assert!(health["since_last_answer"].is_string(), "{health}");
    guard.release().await.unwrap();
    let stats = serde_json::to_value(client.stats()).unwrap();
    assert_eq!(stats["acquired_directly"], 1);
    assert_eq!(stats["lost"]["expired"], 0, "{stats}");
    assert!(stats["hold"]["bounds"][0].is_string() && stats["hold"]["sum"].is_string());
    let findings = serde_json::to_value(client.diagnose().await.unwrap()).unwrap();
    for finding in findings.as_array().unwrap() {
        assert!(finding["severity"].is_string(), "{finding}");
    }
    let error = client.lock("").acquire().await.unwrap_err();
    assert_eq!(
        serde_json::to_value(error.kind()).unwrap(),
        error.kind().as_str()
    );
}

/// The words in JSON are those of `as_str`, which labels and logs use.
#[test]
fn a_reason_has_one_word_everywhere() {
    use tidelock::LostReason;

    for reason in [
        LostReason::Expired,
        LostReason::Taken,
        LostReason::MaxHold,
        LostReason::WrongType,
    ] {
        assert_eq!(
            serde_json::to_value(reason).unwrap(),
            Value::from(reason.as_str())
        );
    }
    for kind in [
        ErrorKind::TimedOut,
        ErrorKind::OutcomeUnknown,
        ErrorKind::InvalidOptions,
    ] {
        assert_eq!(
            serde_json::to_value(kind).unwrap(),
            Value::from(kind.as_str())
        );
    }
}

/// Logins and settings, which may contain them, cannot be written.
#[test]
fn no_secret_can_be_serialized() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in [
        "credentials.rs",
        "builder.rs",
        "redis/topology.rs",
        "client.rs",
        "fence.rs",
    ] {
        let code = fs::read_to_string(source.join(file)).unwrap();
        assert!(!code.contains("serde"), "{file}");
    }
}
