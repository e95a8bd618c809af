//! Connects a client from flags and environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidelock::{Client, ClientBuilder, Credentials};

use crate::args::{Password, StoreArgs};
use crate::exit::{Failure, Outcome, say};
use crate::{left_out, secret, settings};

/// Connects to the store given by the flags and the environment. Creates it if it does not exist.
pub(crate) async fn connect(args: &StoreArgs) -> Outcome<Client> {
    make_default(args)?;
    connect_by(args, builder(args)?).await
}

/// Like [`connect`], for a command that holds a lock: operators see this program and its user as the holder. Retries for
/// `limit` while the store cannot be reached or accepts no client.
pub(crate) async fn connect_as(
    program: &str,
    args: &StoreArgs,
    limit: Duration,
) -> Outcome<Client> {
    make_default(args)?;
    let builder = builder(args)?.connect_within(limit);
    connect_by(args, builder.program(program).os_user(user())).await
}

/// The name of the user who runs this process, or the number of a user without a name.
#[cfg(unix)]
fn user() -> String {
    let number = nix::unistd::Uid::effective();
    let known = nix::unistd::User::from_uid(number).ok().flatten();
    known.map_or_else(|| number.to_string(), |user| user.name)
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_else(|_| "an unknown user".to_owned())
}

/// Whether a pattern can find locks in this store. PostgreSQL's advisory locks are numbers made from names.
pub(crate) fn refuse_to_list(args: &StoreArgs) -> Outcome<()> {
    let url = url(args)?;
    let options = url.split_once('?').map_or("", |(_, options)| options);
    let is_session = |option: &str| {
        let option = percent_encoding::percent_decode_str(option);
        option.decode_utf8_lossy() == "locks=session"
    };
    if options.split('&').any(is_session) {
        return Err(Failure::usage(
            "locks=session cannot be listed: the server has no names of these locks; name one: tidelock show NAME",
        ));
    }
    Ok(())
}

/// Like [`connect`], but publishes no details in the store.
pub(crate) async fn connect_silently(args: &StoreArgs) -> Outcome<Client> {
    make_default(args)?;
    connect_by(args, builder(args)?.publish_process_info(false)).await
}

/// Connects for commands that acquire no lock; a missing store is an error. With a wrong path they would otherwise
/// create an empty store and report every lock in it as free.
pub(crate) async fn connect_to_look(args: &StoreArgs) -> Outcome<Client> {
    connect_by(
        args,
        builder(args)?.publish_process_info(false).create(false),
    )
    .await
}

async fn connect_by(args: &StoreArgs, builder: ClientBuilder) -> Outcome<Client> {
    let url = url(args)?;
    if url.starts_with("memory:") {
        // Each process would have its own store, with locks that exclude nobody.
        return Err(Failure::usage(
            "memory: lives within one process, so nothing here could share it; use sqlite:PATH or redis://",
        ));
    }
    builder.connect(&url).await.map_err(|error| {
        let mut failure = Failure::from(error);
        failure.message = left_out::explained(secret::hidden(&failure.message, &url));
        failure
    })
}

/// Returns the URL of the store: from the flag, the environment, or the default file in the user's state folder.
pub(crate) fn url(args: &StoreArgs) -> Outcome<String> {
    if let Some(url) = &args.store {
        return Ok(url.clone());
    }
    Ok(format!(
        "sqlite:{}",
        default_folder()?.join("locks.db").display()
    ))
}

/// Creates the folder of the default store. No other folder is ever created.
fn make_default(args: &StoreArgs) -> Outcome<()> {
    if args.store.is_some() {
        return Ok(());
    }
    let folder = default_folder()?;
    std::fs::create_dir_all(&folder).map_err(|error| {
        Failure::usage(format!(
            "cannot create the folder {} of the default store: {error}; set another store with --store",
            folder.display()
        ))
    })
}

/// Passes the store to a child process of ours. The URL goes through the environment: it may contain a password, and
/// any user can read a command line.
pub(crate) fn hand_down(args: &StoreArgs, to: &mut tokio::process::Command) -> Outcome<()> {
    to.env("TIDELOCK_STORE", url(args)?);
    let lease = args
        .lease
        .map(|lease| humantime::format_duration(lease).to_string());
    let text = [
        ("--lease", lease.as_ref()),
        ("--prefix", args.prefix.as_ref()),
        ("--user", args.user.as_ref()),
    ];
    for (flag, value) in text {
        if let Some(value) = value {
            // One argument with `=`: a value may begin with `-`.
            to.arg(format!("{flag}={value}"));
        }
    }
    // What was in a pipe cannot be read again.
    let mut password_file = &args.password_file;
    if let Some(Password(password)) = &args.password {
        password_file = &None;
        to.env(settings::PASSWORD, password)
            .env_remove("TIDELOCK_PASSWORD_FILE");
    }
    let paths = [
        ("--password-file", password_file),
        ("--tls-ca", &args.tls_ca),
        ("--tls-cert", &args.tls_cert),
        ("--tls-key", &args.tls_key),
    ];
    for (flag, value) in paths {
        if let Some(value) = value {
            let mut word = OsString::from(format!("{flag}="));
            word.push(value);
            to.arg(word);
        }
    }
    Ok(())
}

/// The folder depends on the user alone. A cron job and a login shell have different environments, and with two folders
/// for one user both could hold the same lock.
fn default_folder() -> Outcome<PathBuf> {
    state_of_user()
        .map(|state| state.join("tidelock"))
        .ok_or_else(|| {
            Failure::usage(
                "no store: neither --store nor TIDELOCK_STORE nor a configuration file names one, and the system knows no home folder of this user",
            )
        })
}

#[cfg(unix)]
fn state_of_user() -> Option<PathBuf> {
    home_of_user().map(|home| home.join(".local/state"))
}

/// Reads the home folder from the system's user database and ignores `HOME`, `XDG_STATE_HOME` and `XDG_CONFIG_HOME`.
#[cfg(unix)]
fn home_of_user() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    let home = user.ok()??.dir;
    home.is_absolute().then_some(home)
}

/// The configuration files of the user and of the machine. Like the default store they depend on the user alone.
#[cfg(unix)]
pub(crate) fn configuration_files() -> Vec<PathBuf> {
    let of_user = home_of_user().map(|home| home.join(".config/tidelock.toml"));
    of_user
        .into_iter()
        .chain([PathBuf::from("/etc/tidelock.toml")])
        .collect()
}

#[cfg(not(unix))]
pub(crate) fn configuration_files() -> Vec<PathBuf> {
    let folder = state_of_user();
    folder
        .map(|folder| folder.join("tidelock.toml"))
        .into_iter()
        .collect()
}

#[cfg(not(unix))]
fn state_of_user() -> Option<PathBuf> {
    let folder = std::env::var_os("LOCALAPPDATA").map(PathBuf::from)?;
    folder.is_absolute().then_some(folder)
}

fn builder(args: &StoreArgs) -> Outcome<ClientBuilder> {
    let mut builder = Client::builder().from_env()?;
    if let Some(lease) = args.lease {
        builder = builder.lease(lease);
    }
    if let Some(prefix) = &args.prefix {
        builder = builder.prefix(prefix);
    }
    if let Some(ca) = &args.tls_ca {
        builder = builder.tls_ca(ca);
    }
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        builder = builder.tls_identity(cert, key);
    }
    credentials(builder, args)
}

/// Merges the credentials. The flags already include the user and the password file of the environment; the builder has
/// the password of the environment, but not the user of the flags.
fn credentials(builder: ClientBuilder, args: &StoreArgs) -> Outcome<ClientBuilder> {
    let mut known = Credentials::default();
    known.user.clone_from(&args.user);
    if let Some(Password(password)) = &args.password {
        known.password = Some(password.clone());
        return Ok(builder.credentials(known));
    }
    if let Some(file) = args.password_file.clone() {
        // We open the file once here, so that a wrong path is reported as such and not as a wrong password.
        std::fs::File::open(&file).map_err(|error| unreadable(&file, &error))?;
        // We read the file at every connect, because the password may rotate.
        return Ok(builder.credentials_from(move || {
            let mut known = known.clone();
            known.password = std::fs::read_to_string(&file)
                .ok()
                .map(|text| text.trim_end().to_owned());
            known
        }));
    }
    if known.user.is_some() {
        known.password = settings::variable(settings::PASSWORD)?;
        return Ok(builder.credentials(known));
    }
    Ok(builder)
}

/// Reads the password file if it is a pipe, as that of `--password-file <(command)`. Each later read of it would find nothing, and each
/// reconnect would send an empty password.
///
/// Call it before signals are caught: nobody may write into a named pipe, and Ctrl-C must end the wait for it.
pub(crate) fn read_password_of_pipe(args: &mut StoreArgs) -> Outcome<()> {
    let Some(file) = &args.password_file else {
        return Ok(());
    };
    let is_file = std::fs::metadata(file).is_ok_and(|file| file.is_file());
    // One that is missing is reported by the command that needs it.
    if is_file || !file.exists() {
        return Ok(());
    }
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    args.password = Some(Password(text.trim_end().to_owned()));
    Ok(())
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!(
        "cannot read the password file {}: {error}",
        file.display()
    ))
}

/// The prefix of every lock name. A variable that cannot be read was refused when the settings were completed.
pub(crate) fn prefix(args: &StoreArgs) -> String {
    args.prefix
        .clone()
        .or_else(|| std::env::var("TIDELOCK_PREFIX").ok())
        .unwrap_or_default()
}

/// Says which of these names begin with the prefix, as each name does that a command prints. The prefix is added a second
/// time, and the name is that of a lock that nobody uses.
pub(crate) fn tell_of_second_prefix(args: &StoreArgs, names: &[&str]) {
    let prefix = prefix(args);
    if prefix.is_empty() {
        return;
    }
    for name in names.iter().filter(|name| name.starts_with(&prefix)) {
        say(format!(
            "{prefix}{name}: the prefix {prefix} is added to the name; for the lock {name} leave it out, or give --prefix="
        ));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn a_password_in_a_pipe_is_read_once_and_one_in_a_file_at_each_connect() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, file, missing] =
            ["pipe", "file", "missing"].map(|name| folder.path().join(name));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        std::fs::write(&file, "secret").unwrap();
        let written = pipe.clone();
        // The write waits for the reader.
        std::thread::spawn(move || std::fs::write(written, "secret\n").unwrap());
        for (path, password) in [(pipe, Some("secret")), (file, None), (missing, None)] {
            let path = path.to_str().unwrap();
            let cli = Cli::try_parse_from(["tidelock", "--password-file", path, "ls"]).unwrap();
            let mut args = cli.store;
            read_password_of_pipe(&mut args).unwrap();
            let read = args.password.as_ref().map(|Password(text)| &**text);
            assert_eq!(read, password, "{path}");
            assert!(!format!("{args:?}").contains("secret"));
        }
    }
}
