//! `tidelock config`: the settings in force, and the source of each.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tidelock::{Client, Credentials, Escaped};

use crate::args::StoreArgs;
use crate::exit::{Failure, Outcome};
use crate::inspect::{print_json, print_line};
use crate::settings::{Files, PASSWORD, Setting, Source, in_force, variable};
use crate::{secret, store};

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tidelock config`. Sends nothing to the store, and needs a runtime only to check its URL.
pub(crate) fn config(args: &StoreArgs, what: &ConfigArgs) -> Outcome {
    let files = Files::read(args.config.as_deref())?;
    let mut settings = in_force(args, &files)?;
    if settings.iter().all(|it| it.name != "store") {
        let value = store::url(args)?;
        settings.insert(0, default("store", value));
    }
    if settings.iter().all(|it| it.name != "lease") {
        settings.insert(1, default("lease", "30s".to_owned()));
    }
    let password = hide_password(&mut settings)?;
    if what.json {
        print_json(&as_json(&settings, password.as_deref(), &files))?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in as_file(&settings, password.as_deref(), &files) {
        print_line(&Escaped(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn default(name: &'static str, value: String) -> Setting {
    Setting {
        name,
        value,
        source: Source::Default,
    }
}

/// Removes the password from the store's URL. Returns where the password in force comes from.
fn hide_password(settings: &mut [Setting]) -> Outcome<Option<String>> {
    let has_file = settings.iter().any(|it| it.name == "password-file");
    let has_user = settings.iter().any(|it| it.name == "user");
    let mut from = settings
        .iter()
        .find(|it| it.name == "password-file")
        .map(|it| it.source.to_string());
    if !has_file && variable(PASSWORD)?.is_some() {
        from = Some(PASSWORD.to_owned());
    }
    if let Some(store) = settings.iter_mut().find(|it| it.name == "store") {
        // In an invalid URL we cannot tell the password from the rest, so we show none. This checks it and connects to
        // nothing.
        let mut client = Client::builder();
        if has_user || from.is_some() {
            // Then the URL may have a user without a password. The check asks only whether there are credentials.
            client = client.credentials(Credentials::default());
        }
        client.connect_lazy(&store.value).map_err(|error| {
            let Failure { code, message, .. } = Failure::from(error);
            let message = secret::hidden(&message, &store.value);
            Failure::new(code, format!("store from {}: {message}", store.source))
        })?;
        let shown = secret::shown(&store.value);
        if shown != store.value && from.is_none() {
            from = Some(format!("the URL of the store, {}", store.source));
        }
        store.value = shown;
    }
    Ok(from)
}

/// The settings in the form of a configuration file, each with its source as a comment.
fn as_file(settings: &[Setting], password: Option<&str>, files: &Files) -> Vec<String> {
    let entries: Vec<String> = settings
        .iter()
        .map(|Setting { name, value, .. }| format!("{name} = {value:?}"))
        .collect();
    let width = entries.iter().map(String::len).max().unwrap_or_default();
    let with_source = entries.iter().zip(settings);
    let mut lines: Vec<String> = with_source
        .map(|(entry, setting)| format!("{entry:width$}  # {}", setting.source))
        .collect();
    if let Some(from) = password {
        lines.push(format!("# the password, not shown: {from}"));
    }
    for (path, exists) in &files.places {
        let found = if *exists { "read" } else { "not there" };
        lines.push(format!("# {}: {found}", path.display()));
    }
    lines
}

fn as_json(settings: &[Setting], password: Option<&str>, files: &Files) -> Value {
    let settings: Vec<Value> = settings
        .iter()
        .map(|it| json!({ "name": it.name, "value": it.value, "from": it.source.to_string() }))
        .collect();
    let files: Vec<Value> = files
        .places
        .iter()
        .map(|(path, exists)| json!({ "path": path.display().to_string(), "read": exists }))
        .collect();
    json!({ "settings": settings, "password_from": password, "files": files })
}
