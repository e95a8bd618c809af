use std::path::Path;

use super::*;
use crate::store::memory;

const SECOND: Duration = Duration::from_secs(1);

fn configured() -> ClientBuilder {
    Client::builder()
        .lease(SECOND * 60)
        .response_timeout(SECOND * 2)
        .connect_within(SECOND * 9)
        .drift(0.02, SECOND)
        .hand_off(HandOff::default().times(7))
        .prefix("shop:")
        .credentials(Credentials::new("locks", "secret"))
        .tls_ca("ca.pem")
        .tls_identity("cert.pem", "key.pem")
        .create(false)
        .acknowledge(ReplicaAck::All)
        .acknowledge_within(SECOND * 4)
        .slow_acquire(SECOND * 5)
        .publish_process_info(false)
        .program("till")
        .program_version("1.9")
        .os_user("clerk")
}

#[tokio::test]
async fn each_setting_reaches_the_store_or_the_client() {
    let client = configured().connect_to(async |env: &Env| {
        assert_eq!(
            (env.lease, env.response_timeout, env.acknowledge_within),
            (SECOND * 60, SECOND * 2, SECOND * 4)
        );
        assert!(!env.create);
        let files = [&env.tls.ca, &env.tls.cert, &env.tls.key];
        let files = files.map(|file| file.as_deref().and_then(Path::to_str));
        let expected = ["ca.pem", "cert.pem", "key.pem"].map(Some);
        assert_eq!(files, expected);
        let login = env.credentials.as_ref().map(|login| login());
        assert_eq!(login, Some(Credentials::new("locks", "secret")));
        memory::open("configured", memory::CAPABILITIES, None, env)
    });
    let client = client.await.unwrap();
    let settings = &client.core().settings;
    assert_eq!(
        (settings.lease, settings.response_timeout),
        (SECOND * 60, SECOND * 2)
    );
    assert_eq!(
        (settings.connect_within, settings.slow_acquire),
        (SECOND * 9, SECOND * 5)
    );
    let (share, fixed) = (0.02, SECOND);
    assert_eq!(settings.drift, Drift { share, fixed });
    assert_eq!(settings.acknowledge, ReplicaAck::All);
    assert_eq!(client.lock("stock").name(), "shop:stock");
    let own = client.core().process_info.own();
    assert_eq!(
        (&*own.program, own.user.as_deref()),
        ("till", Some("clerk"))
    );
}

#[test]
fn a_later_setting_keeps_the_earlier_ones() {
    let builder = configured();
    assert_eq!(builder.hand_off, HandOff::default().times(7));
    assert!(!builder.publish_process_info);
    assert_eq!(builder.program_version.as_deref(), Some("1.9"));
    #[cfg(feature = "metrics")]
    {
        let grouped = configured().metric_groups([("order:*", "orders")]);
        let groups = [("order:*".to_owned(), "orders".to_owned())];
        assert_eq!(
            (&*grouped.prefix, &*grouped.labels.groups),
            ("shop:", &groups[..])
        );
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let (least, less) = (Duration::from_millis(1), Duration::from_micros(999));
    let new = Client::builder;
    for good in [
        new().response_timeout(least).acknowledge_within(least),
        new().connect_within(least),
        new().connect_within(Duration::ZERO),
        new().drift(0.0, Duration::ZERO).lease(least),
        new().drift(0.499, Duration::ZERO),
    ] {
        assert!(good.check().is_ok(), "{good:?}");
    }
    for (at, bad) in [
        new().lease(less),
        new().response_timeout(less),
        new().acknowledge_within(less),
        new().connect_within(less),
        new().connect_within(Duration::MAX),
        new().drift(0.5, Duration::ZERO),
        new().drift(-0.001, Duration::ZERO),
        new().drift(0.0, SECOND * 30),
        new().hand_off(HandOff::default().times(u32::MAX)),
    ]
    .into_iter()
    .enumerate()
    {
        let error = bad.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{at}");
    }
}
