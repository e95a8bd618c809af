//! Configuration files: which value wins, what `tidelock config` shows, and what never leaves a file.

use std::process::Command;

use crate::bench::Bench;
use crate::stores::in_a_namespace;

const SECRET: &str = "hunter2";

/// `tidelock` with this configuration file and no store of its own.
fn with_file(bench: &Bench, text: &str, args: &[&str]) -> Command {
    let file = bench.path("tidelock.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = bench.tidelock(args);
    command
        .env_remove("TIDELOCK_STORE")
        .env("TIDELOCK_CONFIG", file);
    command
}

fn said(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Without the spaces that put the comments into a column.
fn without_columns(shown: &str) -> String {
    let lines = shown.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ") + "\n"
    });
    lines.collect()
}

/// The locks of a file's store are locks of the same store by its URL, and the prefix of the file is in their names.
#[test]
fn a_file_names_the_store_the_lease_and_the_prefix() {
    let bench = Bench::new();
    let settings = format!(
        "store = \"{}\"\nlease = \"20s\"\nprefix = \"shop:\"\n",
        bench.url()
    );
    let args = ["run", "job", "--", "sh", "-c", "echo in; read line; exit 0"];
    let mut holder = crate::bench::Run::start(with_file(&bench, &settings, &args));
    assert_eq!(holder.line(), "in");
    let shown = bench.output(&["show", "shop:job", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["name"], "shop:job", "{shown}");
    let left = shown["expires_in_ms"].as_u64().unwrap();
    assert!((10_000..=20_000).contains(&left), "{shown}");
    assert_eq!(bench.code(&["try", "shop:job", "--", "true"]), 75);
    drop(holder.child.stdin.take());
    assert_eq!(holder.end().0, Some(0));
}

#[test]
fn a_flag_wins_over_a_variable_and_that_over_a_file() {
    let bench = Bench::new();
    let settings = "store = \"redis://h\"\nlease = \"20s\"\nprefix = \"file:\"\nuser = \"u\"\n";
    let file = bench.path("tidelock.toml").display().to_string();
    let shown = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = with_file(&bench, settings, &[&["config"], args].concat());
        command.envs(variables.iter().copied());
        let (code, said, errors) = said(command);
        assert_eq!((code, &*errors), (Some(0), ""));
        without_columns(&said).replace(&file, "FILE")
    };
    let in_file = "store = \"redis://h\" # FILE:1\nlease = \"20s\" # FILE:2\n\
                   prefix = \"file:\" # FILE:3\nuser = \"u\" # FILE:4\n# FILE: read\n";
    assert_eq!(shown(&[], &[]), in_file);
    let variables = [
        ("TIDELOCK_PREFIX", "variable:"),
        ("TIDELOCK_LEASE_MS", "7000"),
    ];
    let with_variables = shown(&[], &variables);
    assert!(
        with_variables.contains("prefix = \"variable:\" # TIDELOCK_PREFIX\n"),
        "{with_variables}"
    );
    assert!(
        with_variables.contains("lease = \"7000ms\" # TIDELOCK_LEASE_MS\n"),
        "{with_variables}"
    );
    let with_flags = shown(&["--prefix", "flag:", "--lease", "9s"], &variables);
    assert!(
        with_flags.contains("prefix = \"flag:\" # --prefix\n"),
        "{with_flags}"
    );
    assert!(
        with_flags.contains("lease = \"9s\" # --lease\n"),
        "{with_flags}"
    );
}

/// What `config` shows is what a command uses: the lease and the names of a real lock.
#[test]
fn what_config_shows_is_what_a_command_uses() {
    let bench = Bench::new();
    let settings = format!("store = \"{}\"\nprefix = \"file:\"\n", bench.url());
    for (variables, prefix) in [
        (&[][..], "file:"),
        (&[("TIDELOCK_PREFIX", "variable:")], "variable:"),
        (&[("TIDELOCK_PREFIX", "")], ""),
    ] {
        let print = ["run", "job", "--", "sh", "-c", "echo $TIDELOCK_NAME"];
        let mut command = with_file(&bench, &settings, &print);
        command.envs(variables.iter().copied());
        assert_eq!(said(command).1, format!("{prefix}job\n"));
        let mut command = with_file(&bench, &settings, &["config"]);
        command.envs(variables.iter().copied());
        let shown = said(command).1;
        assert!(
            shown.contains(&format!("prefix = \"{prefix}\" ")),
            "{shown}"
        );
    }
}

/// Such a variable does not count as one that is not set: a command without the prefix of the others excludes none of them.
#[test]
fn a_variable_that_is_not_utf_8_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let bench = Bench::new();
    let (tries, config) = (&["try", "job", "--", "true"][..], &["config"][..]);
    for (name, commands) in [
        ("TIDELOCK_STORE", &[tries, config][..]),
        ("TIDELOCK_USER", &[tries, config]),
        ("TIDELOCK_PREFIX", &[tries, config]),
        ("TIDELOCK_LEASE_MS", &[tries, config]),
        ("TIDELOCK_PASSWORD", &[tries, config]),
        ("TIDELOCK_RESPONSE_TIMEOUT_MS", &[tries]),
        ("TIDELOCK_ACKNOWLEDGE", &[tries]),
    ] {
        for args in commands {
            let mut command = bench.tidelock(args);
            command.env(name, OsStr::from_bytes(b"shop\xff:"));
            let (code, shown, errors) = said(command);
            assert_eq!(code, Some(64), "{name} {args:?}: {shown} {errors}");
            let told = format!("{name} is not valid UTF-8");
            assert!(errors.contains(&told), "{args:?}: {errors}");
            assert!(!errors.contains("shop"), "{args:?}: {errors}");
        }
    }
}

/// The login of a file belongs to the store that the files name. Another server must not see it.
#[test]
fn the_login_of_a_file_is_for_its_store_alone() {
    let bench = Bench::new();
    let login = [
        "user = ",
        "password-file = ",
        "tls-ca = ",
        "tls-cert = ",
        "tls-key = ",
    ];
    let settings = "store = \"redis://u@h\"\nuser = \"u\"\npassword-file = \"/p\"\ntls-ca = \"/a\"\n\
                    tls-cert = \"/c\"\ntls-key = \"/k\"\n";
    let count = |store: Option<&str>| {
        let mut command = with_file(&bench, settings, &["config"]);
        command.envs(store.map(|url| ("TIDELOCK_STORE", url)));
        let shown = said(command).1;
        login.iter().filter(|it| shown.contains(**it)).count()
    };
    assert_eq!(count(None), login.len());
    assert_eq!(count(Some("redis://u:pw@h")), login.len());
    assert_eq!(count(Some("redis://other")), 0);
    let no_store = with_file(
        &bench,
        "user = \"u\"\n",
        &["config", "--store", "redis://h"],
    );
    assert!(!said(no_store).1.contains("user = "));
}

/// A file that exists and cannot be used must not lead to another store.
#[test]
fn a_file_that_cannot_be_used_is_an_error() {
    let bench = Bench::new();
    let args = ["try", "job", "--", "true"];
    let (code, _, errors) = said(with_file(&bench, "stor = \"sqlite:machine\"\n", &args));
    let file = bench.path("tidelock.toml");
    let told = format!("tidelock: {}:1: unknown setting", file.display());
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.starts_with(&told), "{errors}");

    let mut absent = with_file(&bench, "", &args);
    absent.env("TIDELOCK_CONFIG", bench.path("absent.toml"));
    let (code, _, errors) = said(absent);
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("absent.toml: No such file"), "{errors}");
}

#[test]
fn no_secret_of_a_file_is_shown() {
    let bench = Bench::new();
    for (settings, code) in [
        (format!("store = \"redis://u:{SECRET}@h\"\n"), 0),
        (
            format!("store = \"postgres://u@h/d?password={SECRET}\"\n"),
            0,
        ),
        (format!("store = \"redis://u:{SECRET}@h:nonsense\"\n"), 64),
        (format!("store = \"redis://u:x/{SECRET}@h\"\n"), 64),
        (format!("store = \"nonsense://u:{SECRET}@h\"\n"), 64),
        (format!("password = \"{SECRET}\"\n"), 64),
        (format!("store = \"redis://u:{SECRET}@h\n"), 64),
    ] {
        for args in [&["config"][..], &["config", "--json"]] {
            let mut command = with_file(&bench, &settings, args);
            command.env("TIDELOCK_PASSWORD", SECRET);
            let (ended, shown, errors) = said(command);
            assert_eq!(ended, Some(code), "{settings}: {errors}");
            for text in [shown, errors] {
                assert!(!text.contains(SECRET), "{settings}: {text}");
            }
        }
    }
}

/// A store that needs a user with a password, or none, may get them from different places.
#[test]
fn the_user_of_the_url_may_have_its_password_elsewhere() {
    let bench = Bench::new();
    let settings = "store = \"memcached://app@h\"\n";
    let (code, _, errors) = said(with_file(&bench, settings, &["config"]));
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("a user needs a password"), "{errors}");
    let mut command = with_file(&bench, settings, &["config"]);
    command.env("TIDELOCK_PASSWORD", SECRET);
    let (code, shown, errors) = said(command);
    assert_eq!(code, Some(0), "{errors}");
    assert!(shown.contains("memcached://app@h"), "{shown}");
    assert!(!shown.contains(SECRET), "{shown}");
}

/// The file of the user wins, setting by setting; no other folder counts, and no variable of a login shell.
#[test]
fn the_files_of_the_user_and_of_the_machine_are_read() {
    let bench = Bench::new();
    let script = r#"
        mkdir -p "$AT/home/.config" "$AT/etc" "$AT/here"
        home=$(getent passwd "$(id -u)" | cut -d: -f6)
        cp /etc/passwd /etc/nsswitch.conf "$AT/etc"
        mount --bind "$AT/home" "$home"
        mount --bind "$AT/etc" /etc
        echo 'prefix = "here:"' > "$AT/here/tidelock.toml"
        cd "$AT/here"
        "$BIN" config | grep -c 'not there'
        printf 'prefix = "machine:"\nstore = "sqlite:%s/locks.db"\n' "$AT" > /etc/tidelock.toml
        echo 'prefix = "user:"' > "$home/.config/tidelock.toml"
        HOME=/ XDG_CONFIG_HOME="$AT/here" "$BIN" try job -- sh -c 'echo $TIDELOCK_NAME'
        "$BIN" config | sed "s|$home|HOME|; s|$AT|AT|"
    "#;
    let own = ["--user", "--map-root-user", "--mount"];
    if let Some(said) = in_a_namespace(&bench, &own, script) {
        assert_eq!(
            without_columns(&said),
            "2\nuser:job\nstore = \"sqlite:AT/locks.db\" # /etc/tidelock.toml:2\nlease = \"30s\" # default\n\
             prefix = \"user:\" # HOME/.config/tidelock.toml:1\n# HOME/.config/tidelock.toml: read\n\
             # /etc/tidelock.toml: read\n"
        );
    }
}

/// The example of docs/configuration-file.md: its file, its command, and what that prints.
#[test]
fn the_example_of_the_page_is_what_config_prints() {
    let page = include_str!("../../../../docs/configuration-file.md");
    let block = |kind: &str| {
        let (_, rest) = page.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let bench = Bench::new();
    std::fs::create_dir(bench.path("etc")).unwrap();
    std::fs::write(bench.path("etc/tidelock.toml"), block("toml")).unwrap();
    let console = block("console");
    let (command, printed) = console.split_once('\n').unwrap();
    let script = format!(
        r#"
        home=$(getent passwd "$(id -u)" | cut -d: -f6)
        mkdir "$AT/home"
        cp /etc/passwd /etc/nsswitch.conf "$AT/etc"
        mount --bind "$AT/home" "$home"
        mount --bind "$AT/etc" /etc
        tidelock() {{ "$BIN" "$@"; }}
        {} | sed "s|$home|/root|"
        "#,
        command.trim_start_matches("$ ")
    );
    let own = ["--user", "--map-root-user", "--mount"];
    if let Some(said) = in_a_namespace(&bench, &own, &script) {
        assert_eq!(said, printed);
    }
}

/// The settings and the commands of the manifests in docs/kubernetes are ones that this program understands.
#[test]
fn the_manifests_for_kubernetes_hold_what_the_command_understands() {
    let bench = Bench::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kubernetes");
    let (mut commands, mut files) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let manifest = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        if let Some((_, settings)) = manifest.split_once("tidelock.toml: |\n") {
            let (code, shown, errors) = said(with_file(&bench, settings, &["config"]));
            assert_eq!(code, Some(0), "{errors}");
            let shown: Vec<&str> = shown
                .lines()
                .filter(|line| line.contains("tidelock.toml:") && !line.ends_with(": read"))
                .collect();
            assert_eq!(shown.len(), settings.lines().count() + 1, "{shown:?}");
            files += 1;
        }
        for line in manifest
            .lines()
            .filter_map(|line| line.trim().strip_prefix("command: "))
        {
            let words: Vec<&str> = serde_json::from_str(line).unwrap();
            let flags = words.split(|word| *word == "--").next().unwrap();
            assert_eq!(flags[0], "tidelock");
            let args = [&flags[1..], &["--", "true"]].concat();
            let output = bench.output(&args);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{line}: {errors}");
            commands += 1;
        }
    }
    assert_eq!((commands, files), (2, 1));
}
