//! A client whose store and settings come from the environment. Each test runs in a process of its own, because the
//! environment belongs to the whole process.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
#[cfg(feature = "redis")]
use std::time::Duration;

use tidelock::store::Env;
use tidelock::{Client, Credentials, Error, ErrorKind};

/// Runs an ignored test in a process of its own with these variables.
pub(crate) fn passes_with(test: &str, variables: &[(&str, &str)]) {
    let variables = variables.iter();
    passes(
        test,
        variables.map(|(name, value)| (*name, OsStr::new(*value))),
    );
}

fn passes<'a>(test: &str, variables: impl IntoIterator<Item = (&'a str, &'a OsStr)>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test]);
    command.env_remove("TIDELOCK_STORE");
    let output = command.envs(variables).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
fn the_environment_names_the_store() {
    let variables = [("TIDELOCK_STORE", "memory:"), ("TIDELOCK_PREFIX", "shop:")];
    passes_with("environment::in_a_shop", &variables);
}

#[tokio::test]
#[ignore = "the_environment_names_the_store runs it"]
async fn in_a_shop() {
    let client = Client::from_env().await.unwrap();
    assert_eq!(client.lock("stock").name(), "shop:stock");
    drop(client.lock("stock").acquire().await.unwrap());
}

/// Redis, as it sends the login in plain text and before it hears anything. The other stores are tested on their servers.
#[cfg(feature = "redis")]
#[test]
fn a_password_in_the_environment_is_for_the_user_of_the_url() {
    let variables = [("TIDELOCK_PASSWORD", "secret")];
    passes_with("environment::with_a_password", &variables);
}

#[cfg(feature = "redis")]
#[tokio::test]
#[ignore = "a_password_in_the_environment_is_for_the_user_of_the_url runs it"]
async fn with_a_password() {
    use tokio::io::AsyncReadExt;

    const LOGIN: &[u8] = b"*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$6\r\nsecret\r\n";

    for login in ["app", "app:old"] {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{login}@{}", server.local_addr().unwrap());
        let settings = Client::builder().from_env().unwrap();
        let heard = async {
            let (mut peer, _) = server.accept().await.unwrap();
            let mut bytes = vec![0; LOGIN.len()];
            peer.read_exact(&mut bytes).await.unwrap();
            bytes
        };
        tokio::select! {
            connected = settings.response_timeout(Duration::from_secs(60)).connect(&url) => {
                panic!("the server has not answered: {connected:?}")
            }
            bytes = heard => assert_eq!(bytes, LOGIN, "{}", String::from_utf8_lossy(&bytes)),
        }
    }
}

#[test]
fn the_environment_sets_the_limits_the_files_and_the_login() {
    let variables = [
        ("TIDELOCK_LEASE_MS", "60000"),
        ("TIDELOCK_RESPONSE_TIMEOUT_MS", "2000"),
        ("TIDELOCK_ACKNOWLEDGE_MS", "4000"),
        ("TIDELOCK_ACKNOWLEDGE", "all"),
        ("TIDELOCK_TLS_CA", "ca.pem"),
        ("TIDELOCK_TLS_CERT", "cert.pem"),
        ("TIDELOCK_TLS_KEY", "key.pem"),
        ("TIDELOCK_USER", "app"),
        ("TIDELOCK_PASSWORD", "secret"),
    ];
    passes_with("environment::with_all_settings", &variables);
}

#[tokio::test]
#[ignore = "the_environment_sets_the_limits_the_files_and_the_login runs it"]
async fn with_all_settings() {
    let settings = Client::builder().from_env().unwrap();
    let opened = settings.connect_to(async |env: &Env| {
        let limits = [env.lease, env.response_timeout, env.acknowledge_within];
        assert_eq!(limits.map(|limit| limit.as_secs()), [60, 2, 4]);
        let files = [&env.tls.ca, &env.tls.cert, &env.tls.key];
        let files = files.map(|file| file.as_deref().and_then(Path::to_str));
        assert_eq!(files, ["ca.pem", "cert.pem", "key.pem"].map(Some));
        let login = env.credentials.as_ref().map(|login| login());
        assert_eq!(login, Some(Credentials::new("app", "secret")));
        Err(Error::new(ErrorKind::Refused))
    });
    assert_eq!(opened.await.unwrap_err().kind(), ErrorKind::Refused);
}

/// The file is read for each login: an operator may change the password while the program runs.
#[test]
fn a_password_in_a_file_is_read_for_each_login() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let variables = [
        ("TIDELOCK_USER", "app"),
        ("TIDELOCK_PASSWORD", "of the variable"),
        ("TIDELOCK_PASSWORD_FILE", file.to_str().unwrap()),
    ];
    passes_with("environment::with_a_password_file", &variables);
}

#[tokio::test]
#[ignore = "a_password_in_a_file_is_read_for_each_login runs it"]
async fn with_a_password_file() {
    let file = std::env::var("TIDELOCK_PASSWORD_FILE").unwrap();
    let settings = Client::builder().from_env().unwrap();
    let opened = settings.connect_to(async |env: &Env| {
        let login = env.credentials.as_ref().unwrap();
        for password in ["old", "new"] {
            std::fs::write(&file, format!("{password}\n")).unwrap();
            assert_eq!(login(), Credentials::new("app", password));
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(login().password, None);
        Err(Error::new(ErrorKind::Refused))
    });
    assert_eq!(opened.await.unwrap_err().kind(), ErrorKind::Refused);
}

/// Each later read of it would find an empty password, or wait for somebody who writes.
#[cfg(unix)]
#[test]
fn a_password_in_a_pipe_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("password");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let variables = [("TIDELOCK_PASSWORD_FILE", pipe.to_str().unwrap())];
    passes_with("environment::with_a_password_pipe", &variables);
}

#[cfg(unix)]
#[tokio::test]
#[ignore = "a_password_in_a_pipe_is_read_once runs it"]
async fn with_a_password_pipe() {
    let pipe = std::env::var("TIDELOCK_PASSWORD_FILE").unwrap();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        for text in ["secret\n", ""] {
            std::fs::write(&pipe, text).unwrap(); // waits for a reader
            let _ = told.recv();
        }
    });
    let settings = Client::builder().from_env().unwrap();
    let opened = settings.connect_to(async |env: &Env| {
        let login = env.credentials.as_ref().unwrap();
        for _ in 0..2 {
            assert_eq!(login().password.as_deref(), Some("secret"));
            let _ = tell.send(());
        }
        Err(Error::new(ErrorKind::Refused))
    });
    assert_eq!(opened.await.unwrap_err().kind(), ErrorKind::Refused);
}

const WRONG: [(&str, &str); 4] = [
    ("TIDELOCK_LEASE_MS", "soon"),
    ("TIDELOCK_RESPONSE_TIMEOUT_MS", "-1"),
    ("TIDELOCK_ACKNOWLEDGE_MS", "1s"),
    ("TIDELOCK_ACKNOWLEDGE", "most"),
];

#[test]
fn a_variable_with_a_wrong_value_is_an_error_that_names_it() {
    for (name, value) in WRONG {
        passes_with("environment::with_a_wrong_value", &[(name, value)]);
    }
}

#[test]
#[ignore = "a_variable_with_a_wrong_value_is_an_error_that_names_it runs it"]
fn with_a_wrong_value() {
    let is_set = |(name, value): &(&str, &str)| std::env::var(name).is_ok_and(|it| it == *value);
    let (name, value) = WRONG.into_iter().find(is_set).unwrap();
    let error = Client::builder().from_env().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    let said = error.to_string();
    assert!(said.contains(name) && said.contains(value), "{said}");
}

#[test]
fn without_a_store_in_the_environment_the_error_names_the_variable() {
    passes_with("environment::without_a_store", &[]);
}

#[tokio::test]
#[ignore = "without_a_store_in_the_environment_the_error_names_the_variable runs it"]
async fn without_a_store() {
    let error = Client::from_env().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    assert!(error.to_string().contains("TIDELOCK_STORE"), "{error}");
}

/// Such a variable does not count as one that is not set: a client without the prefix of the others excludes none of them.
#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf_8_is_an_error_that_names_it() {
    use std::os::unix::ffi::OsStrExt;

    for name in [
        "TIDELOCK_STORE",
        "TIDELOCK_STORES",
        "TIDELOCK_LEASE_MS",
        "TIDELOCK_RESPONSE_TIMEOUT_MS",
        "TIDELOCK_ACKNOWLEDGE",
        "TIDELOCK_ACKNOWLEDGE_MS",
        "TIDELOCK_PREFIX",
        "TIDELOCK_USER",
        "TIDELOCK_PASSWORD",
    ] {
        let value = OsStr::from_bytes(b"secret\xff");
        let test = "environment::with_a_variable_that_is_not_utf_8";
        passes(test, [(name, value)]);
    }
}

#[cfg(unix)]
#[tokio::test]
#[ignore = "a_variable_that_is_not_utf_8_is_an_error_that_names_it runs it"]
async fn with_a_variable_that_is_not_utf_8() {
    let is_wrong = |(_, value): &(_, std::ffi::OsString)| value.as_encoded_bytes() == b"secret\xff";
    let (wrong, _) = std::env::vars_os().find(is_wrong).unwrap();
    let wrong = wrong.into_string().unwrap();
    let error = if wrong == "TIDELOCK_STORES" {
        tidelock::RedLock::from_env_lazy().unwrap_err()
    } else {
        Client::from_env().await.unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{wrong}");
    let said = error.to_string();
    assert!(
        said.contains(&format!("{wrong} is not valid UTF-8")),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
}
