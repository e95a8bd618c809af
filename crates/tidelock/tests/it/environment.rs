//! A client whose store and settings come from the environment. Each test runs in a process of its own, because the
//! environment belongs to the whole process.

use std::process::Command;

use tidelock::{Client, ErrorKind};

/// Runs an ignored test in a process of its own with these variables.
pub(crate) fn passes_with(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test]);
    command.env_remove("TIDELOCK_STORE");
    let output = command.envs(variables.iter().copied()).output().unwrap();
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
