//! The command line that shows a lock again.

use std::ffi::OsStr;

use crate::args::StoreArgs;
use crate::{secret, shell, store};

/// Writes `tidelock show …` for the locks of one store.
#[derive(Debug, Default)]
pub(super) struct ShowCommand {
    /// `--store=…` and so on, without a password. `None`: one cannot be written.
    flags: Option<Vec<String>>,
    prefix: String,
}

impl ShowCommand {
    pub(super) fn new(args: &StoreArgs) -> Self {
        Self {
            flags: flags(args),
            prefix: store::prefix(args),
        }
    }

    /// For the lock of this name, which includes the prefix. `None`: a text in it has characters that a shell or a
    /// terminal would not leave as they are.
    pub(super) fn of(&self, name: &str) -> Option<String> {
        let mut words = vec!["tidelock".to_owned()];
        words.extend(self.flags.clone()?);
        // The prefix may be in the environment of the shell, so one that is not of the name has to be taken away.
        let own = match name.strip_prefix(&self.prefix) {
            Some(own) if self.prefix.is_empty() => own,
            Some(own) => {
                words.push(format!("--prefix={}", self.prefix));
                own
            }
            None => {
                words.push("--prefix=".to_owned());
                name
            }
        };
        words.extend(["show".to_owned(), "--".to_owned(), own.to_owned()]);
        shell::line_of(&words)
    }
}

fn flags(args: &StoreArgs) -> Option<Vec<String>> {
    let mut flags = Vec::new();
    if let Some(url) = &args.store {
        // It leads to the same store. Who pastes it gives the password another way.
        flags.push(format!("--store={}", secret::shown(url)));
    }
    let others = [
        ("--config", args.config.as_ref().map(|it| it.as_os_str())),
        ("--user", args.user.as_ref().map(OsStr::new)),
        (
            "--password-file",
            args.password_file.as_ref().map(|it| it.as_os_str()),
        ),
        ("--tls-ca", args.tls_ca.as_ref().map(|it| it.as_os_str())),
        (
            "--tls-cert",
            args.tls_cert.as_ref().map(|it| it.as_os_str()),
        ),
        ("--tls-key", args.tls_key.as_ref().map(|it| it.as_os_str())),
    ];
    for (flag, value) in others {
        if let Some(value) = value {
            flags.push(format!("{flag}={}", value.to_str()?));
        }
    }
    Some(flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn command(args: &[&str], name: &str) -> Option<String> {
        let args = [&["tidelock", "top"], args].concat();
        let cli = Cli::try_parse_from(args).unwrap();
        let command = ShowCommand::new(&cli.store);
        command.of(name)
    }

    #[test]
    fn the_command_names_the_store_and_quotes_the_name() {
        let args = ["--store", "redis://cache-1?locks=plain", "--prefix=shop:"];
        assert_eq!(
            command(&args, "shop:it's; reboot").unwrap(),
            r"tidelock '--store=redis://cache-1?locks=plain' --prefix=shop: show -- 'it'\''s; reboot'"
        );
        assert_eq!(
            command(&args, "cart:7").unwrap(),
            "tidelock '--store=redis://cache-1?locks=plain' --prefix= show -- cart:7"
        );
    }

    #[test]
    fn the_command_names_no_password() {
        let args = ["--store", "redis://app:hush@cache-1/2", "--user=app"];
        let command = command(&args, "stock:42").unwrap();
        assert!(!command.contains("hush"), "{command}");
        assert!(
            command.ends_with(" --user=app show -- stock:42"),
            "{command}"
        );
    }

    #[test]
    fn a_name_that_a_terminal_would_obey_gets_no_command() {
        let args = ["--store", "sqlite:locks.db"];
        assert_eq!(command(&args, "a\u{1b}[31m"), None);
        assert_eq!(command(&args, "a\nb"), None);
        assert!(command(&args, "-x").unwrap().ends_with(" show -- -x"));
    }
}
