//! A client whose store and settings come from the environment. Each test runs in a process of its own, because the
//! environment belongs to the whole process.

use std::ffi::OsStr;
use std::process::Command;
#[cfg(feature = "redis")]
use std::time::Duration;

use tidelock::{Client, ErrorKind};

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
