//! Settings from configuration files, and which value of each setting is in force.
//!
//! A flag wins over a variable of the environment, that over the file of the user, and that over the file of the
//! machine. No file is looked for in the working directory: a cron job and a login shell start in different ones, and
//! with different settings both could hold the same lock.

use std::env::VarError;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::args::{self, StoreArgs};
use crate::exit::{Failure, Outcome};
use crate::{secret, store};

/// A setting, as a file names it, and its variable. Its flag has the name of the file.
const SETTINGS: [(&str, &str); 8] = [
    ("store", "TIDELOCK_STORE"),
    ("lease", "TIDELOCK_LEASE_MS"),
    ("prefix", "TIDELOCK_PREFIX"),
    ("user", "TIDELOCK_USER"),
    ("password-file", "TIDELOCK_PASSWORD_FILE"),
    ("tls-ca", "TIDELOCK_TLS_CA"),
    ("tls-cert", "TIDELOCK_TLS_CERT"),
    ("tls-key", "TIDELOCK_TLS_KEY"),
];

/// The variables of [`SETTINGS`] whose values are texts. The others are paths, which may have any bytes.
const TEXTS: [&str; 4] = [
    "TIDELOCK_STORE",
    "TIDELOCK_LEASE_MS",
    "TIDELOCK_PREFIX",
    "TIDELOCK_USER",
];

/// The settings that are no login.
const OF_EVERY_STORE: [&str; 3] = ["store", "lease", "prefix"];

pub(crate) const PASSWORD: &str = "TIDELOCK_PASSWORD";

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Flag(&'static str),
    Variable(&'static str),
    File(PathBuf, usize),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The configuration files of this process.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Each file, and whether it exists.
    pub(crate) places: Vec<(PathBuf, bool)>,
    settings: Vec<Setting>,
}

/// Fills in what neither a flag nor a variable says.
pub(crate) fn complete(args: &mut StoreArgs) -> Outcome<()> {
    let files = Files::read(args.config.as_deref())?;
    for setting in in_force(args, &files)? {
        if matches!(setting.source, Source::File(..)) {
            set(args, setting)?;
        }
    }
    Ok(())
}

impl Files {
    /// Reads the file that the user names, or else the files of the user and of the machine.
    ///
    /// A file that exists and cannot be read is an error. Without it the locks would silently be in another store.
    pub(crate) fn read(named: Option<&Path>) -> Outcome<Self> {
        let mut files = Self::default();
        let default = store::configuration_files();
        let paths = named.map_or(default, |file| vec![file.to_owned()]);
        for path in paths {
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => Some(text),
                Err(error) if named.is_none() && is_absent(&error) => None,
                Err(error) => {
                    let path = path.display();
                    let why = format!("cannot read the configuration file {path}: {error}");
                    return Err(Failure::usage(why));
                }
            };
            files.add(parse(text.as_deref().unwrap_or_default(), &path)?);
            files.places.push((path, text.is_some()));
        }
        Ok(files)
    }

    /// Adds the settings of a weaker file. Its login is for its own store: it must not be sent to the server that a stronger
    /// file names.
    fn add(&mut self, weaker: Vec<Setting>) {
        let store = |settings: &[Setting]| {
            let store = settings.iter().find(|it| it.name == "store");
            store.map(|store| secret::shown(&store.value))
        };
        let (ours, theirs) = (store(&self.settings), store(&weaker));
        let is_of_another = ours.is_some() && theirs.is_some() && ours != theirs;
        for setting in weaker {
            let is_login = !OF_EVERY_STORE.contains(&setting.name);
            if self.find(setting.name).is_none() && !(is_login && is_of_another) {
                self.settings.push(setting);
            }
        }
    }

    fn find(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|it| it.name == name)
    }

    /// The files' value of this setting, if it applies beside these arguments.
    fn value(&self, name: &str, args: &StoreArgs) -> Option<&Setting> {
        let setting = self.find(name)?;
        let applies = match name {
            _ if OF_EVERY_STORE.contains(&name) => true,
            _ if !self.has_store_of(args) => false,
            "password-file" => std::env::var_os(PASSWORD).is_none(),
            // A certificate and its key belong together.
            "tls-cert" | "tls-key" => ["tls-cert", "tls-key"]
                .iter()
                .all(|name| given(args, name).is_none()),
            _ => true,
        };
        applies.then_some(setting)
    }

    /// Whether the store in force is the one that the files name. The login of the files must not be sent to another
    /// server. A nested `tidelock` gets the URL without its password; that is the same store.
    fn has_store_of(&self, args: &StoreArgs) -> bool {
        self.find("store").is_some_and(|of_files| {
            let named = args.store.as_deref().unwrap_or(&of_files.value);
            secret::shown(named) == secret::shown(&of_files.value)
        })
    }
}

/// A home folder such as `/dev/null` has no files either.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The value of a variable. `None`: it is not set.
pub(crate) fn variable(name: &str) -> Outcome<Option<String>> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        // As in the library: it must not count as one that is not set, and may be a password.
        Err(VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not valid UTF-8"))),
    }
}

/// Refuses a variable of [`TEXTS`] that is not UTF-8.
pub(crate) fn check_texts() -> Outcome<()> {
    for name in TEXTS {
        variable(name)?;
    }
    Ok(())
}

/// The value in force of each setting that has one, and its source.
pub(crate) fn in_force(args: &StoreArgs, files: &Files) -> Outcome<Vec<Setting>> {
    check_texts()?;
    let with_source = SETTINGS.iter().filter_map(|&(name, variable)| {
        let given = given(args, name).map(|(value, source)| Setting {
            name,
            value,
            source: source.unwrap_or(Source::Variable(variable)),
        });
        given.or_else(|| files.value(name, args).cloned())
    });
    Ok(with_source.collect())
}

/// The value of a flag or of a variable. `None` as its source: the variable of the setting.
fn given(args: &StoreArgs, name: &str) -> Option<(String, Option<Source>)> {
    let &(name, variable) = SETTINGS.iter().find(|(known, _)| *known == name)?;
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let parsed = match name {
        "store" => args.store.clone(),
        "lease" => args
            .lease
            .map(|lease| humantime::format_duration(lease).to_string()),
        "prefix" => args.prefix.clone(),
        "user" => args.user.clone(),
        "password-file" => path(&args.password_file),
        "tls-ca" => path(&args.tls_ca),
        "tls-cert" => path(&args.tls_cert),
        _ => path(&args.tls_key),
    };
    let in_environment =
        std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
    match (parsed, in_environment) {
        // The parser has already merged some of the variables.
        (Some(value), Some(same)) if value == same => Some((value, None)),
        (Some(value), _) => Some((value, Some(Source::Flag(name)))),
        (None, Some(value)) if name == "lease" => Some((format!("{value}ms"), None)),
        (None, Some(value)) => Some((value, None)),
        (None, None) => None,
    }
}

fn set(args: &mut StoreArgs, setting: Setting) -> Outcome<()> {
    let path = PathBuf::from(&setting.value);
    match setting.name {
        "store" => args.store = Some(setting.value),
        "lease" => args.lease = Some(args::duration(&setting.value).map_err(Failure::usage)?),
        "prefix" => args.prefix = Some(setting.value),
        "user" => args.user = Some(setting.value),
        "password-file" => args.password_file = Some(path),
        "tls-ca" => args.tls_ca = Some(path),
        "tls-cert" => args.tls_cert = Some(path),
        _ => args.tls_key = Some(path),
    }
    Ok(())
}

/// The settings of a file. Errors name the file and the line, and never quote a value: it may contain a password.
fn parse(text: &str, path: &Path) -> Outcome<Vec<Setting>> {
    let line_of = |at: usize| 1 + text[..at].matches('\n').count();
    let wrong =
        |line: usize, why: &str| Failure::usage(format!("{}:{line}: {why}", path.display()));
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        wrong(line, error.message())
    })?;
    let mut settings = Vec::new();
    for (key, value) in table.into_inner() {
        let line = line_of(key.span().start);
        let key = key.into_inner();
        let name = known(&key).map_err(|why| wrong(line, &why))?;
        let DeValue::String(value) = value.into_inner() else {
            return Err(wrong(line, &format!("{name} must be a text in quotes")));
        };
        check(name, &value).map_err(|why| wrong(line, &format!("{name}: {why}")))?;
        settings.push(Setting {
            name,
            value: value.into_owned(),
            source: Source::File(path.to_owned(), line),
        });
    }
    let line_with = |name| settings.iter().find(|it: &&Setting| it.name == name);
    match (line_with("tls-cert"), line_with("tls-key")) {
        (Some(alone), None) | (None, Some(alone)) => Err(Failure::usage(format!(
            "{}: tls-cert and tls-key belong together; the file has only {}",
            alone.source, alone.name
        ))),
        _ => Ok(settings),
    }
}

fn known(key: &str) -> Result<&'static str, String> {
    if let Some((name, _)) = SETTINGS.iter().find(|(name, _)| *name == key) {
        return Ok(name);
    }
    if key == "password" {
        let instead = "put it into a file that only you can read, and name that with password-file";
        return Err(format!("no password may be here: {instead}"));
    }
    let names = SETTINGS.map(|(name, _)| name).join(", ");
    Err(format!("unknown setting {key:?}; there are: {names}"))
}

/// What is wrong with a value of a file, without the value.
fn check(name: &str, value: &str) -> Result<(), String> {
    let is_absolute = |path: &str| Path::new(path).is_absolute();
    let relative = "must be an absolute path: a relative one depends on the folder in which a command is started";
    match name {
        "prefix" => Ok(()),
        _ if value.is_empty() => Err("has no value".to_owned()),
        "lease" => args::duration(value).map(drop),
        "store" => match value.strip_prefix("sqlite:") {
            None | Some("machine") => Ok(()),
            Some(path) if path.starts_with("~/") || is_absolute(path) => Ok(()),
            Some(_) => Err(relative.to_owned()),
        },
        "password-file" | "tls-ca" | "tls-cert" | "tls-key" if !is_absolute(value) => {
            Err(relative.to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(text: &str) -> String {
        parse(text, Path::new("/etc/tidelock.toml"))
            .unwrap_err()
            .message
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for (text, told) in [
            (
                "lease = \"30s\"\nstor = \"x\"\n",
                "2: unknown setting \"stor\"; there are: store, lease",
            ),
            ("\n[redis]\nstore = \"x\"\n", "2: unknown setting \"redis\""),
            ("# a\nlease = 30", "2: lease must be a text in quotes"),
            ("lease = \"soon\"", "1: lease: "),
            ("store = \"\"", "1: store: has no value"),
            (
                "store = \"sqlite:locks.db\"",
                "1: store: must be an absolute path",
            ),
            (
                "password-file = \"~/secret\"",
                "1: password-file: must be an absolute path",
            ),
            (
                "tls-ca = \"/ca\"\ntls-key = \"/key\"",
                "2: tls-cert and tls-key belong together",
            ),
            ("prefix = \"a\"\nprefix = \"b\"", "2: "),
            ("prefix = \"a\"\nstore = redis://h", "2: "),
            ("prefix = \"a\n", "1: "),
        ] {
            let said = said_of(text);
            let told = format!("/etc/tidelock.toml:{told}");
            assert!(said.starts_with(&told), "{text:?}: {said}");
        }
    }

    #[test]
    fn an_error_quotes_no_value() {
        for text in [
            "password = \"hunter2\"",
            "password-file = \"hunter2\"",
            "store = \"redis://u:hunter2@h\"\nstore = \"redis://u:hunter2@h\"",
            "store = redis://u:hunter2@h",
            "store = \"redis://u:hunter2@h",
            "store = \"redis://u:hunter2@h\" hunter2",
            "store = [\"redis://u:hunter2@h\"]",
            "lease = \"hunter2\"",
            "hunter2",
        ] {
            let said = said_of(text);
            assert!(!said.contains("hunter2"), "{text:?}: {said}");
        }
    }

    #[test]
    fn the_login_of_a_weaker_file_is_not_sent_to_the_store_of_a_stronger_one() {
        let login = "user = \"u\"\npassword-file = \"/p\"\ntls-ca = \"/a\"\nprefix = \"p:\"\n";
        for (stronger, weaker, is_sent) in [
            ("store = \"redis://dev\"", "store = \"redis://prod\"", false),
            (
                "store = \"redis://x@prod\"",
                "store = \"redis://prod\"",
                false,
            ),
            ("store = \"redis://prod\"", "store = \"redis://prod\"", true),
            ("lease = \"9s\"", "store = \"redis://prod\"", true),
            ("store = \"redis://prod\"", "", true),
        ] {
            let mut files = Files::default();
            files.add(parse(stronger, Path::new("user")).unwrap());
            files.add(parse(&format!("{weaker}\n{login}"), Path::new("machine")).unwrap());
            for name in ["user", "password-file", "tls-ca"] {
                let found = files.find(name).is_some();
                assert_eq!(found, is_sent, "{name} of {weaker} for {stronger}");
            }
            assert!(files.find("prefix").is_some());
        }
    }

    #[test]
    fn a_file_may_have_each_setting() {
        let text = "store = \"redis://h\" # a comment\nlease = \"1m 30s\"\nprefix = \"\"\nuser = \"u\"\n\
                    password-file = \"/p\"\ntls-ca = \"/a\"\ntls-cert = \"/c\"\ntls-key = \"/k\"\n";
        let settings = parse(text, Path::new("f")).unwrap();
        assert_eq!(settings.len(), SETTINGS.len());
        let lease = settings.iter().find(|it| it.name == "lease").unwrap();
        assert_eq!(lease.source.to_string(), "f:2");
        for store in ["sqlite:machine", "sqlite:/a/locks.db", "sqlite:~/locks.db"] {
            assert_eq!(check("store", store), Ok(()));
        }
    }
}
