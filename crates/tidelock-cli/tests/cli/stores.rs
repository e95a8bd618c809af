//! The store that the command uses: a path that does not exist, the default, and the file of a machine.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::bench::{Bench, PATIENCE, Run};

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn looking_never_makes_a_store() {
    let bench = Bench::new();
    let (typo, below) = (bench.path("typo.db"), bench.path("typo/locks.db"));
    for path in [&typo, &below] {
        let store = format!("--store=sqlite:{}", path.display());
        for look in [
            &["ls"][..],
            &["show"],
            &["show", "job"],
            &["watch", "job"],
            &["doctor"],
            &["unlock", "job", "--force"],
        ] {
            let said = bench.output(&[&[&*store], look].concat());
            let errors = String::from_utf8(said.stderr).unwrap();
            assert_eq!(said.status.code(), Some(64), "{look:?}: {errors}");
            assert!(errors.contains("typo"), "{errors}");
            assert!(is_empty(bench.folder.path()), "{look:?}");
        }
    }
    // Locking does not create a folder either. It creates only the file.
    let below = format!("--store=sqlite:{}", below.display());
    assert_eq!(bench.code(&[&below, "try", "job", "--", "true"]), 64);
    assert!(is_empty(bench.folder.path()));
    let typo = format!("--store=sqlite:{}", typo.display());
    assert_eq!(bench.code(&[&typo, "try", "job", "--", "true"]), 0);
    assert_eq!(bench.code(&[&typo, "ls"]), 0);
}

/// If options became part of the file name, locks in that file would not exclude clients that use the path without
/// options.
#[test]
fn options_in_the_path_are_refused() {
    let bench = Bench::new();
    for option in ["?mode=ro", "#locks"] {
        let store = format!("--store={}{option}", bench.url());
        let said = bench.output(&[&store, "try", "job", "--", "true"]);
        assert_eq!(said.status.code(), Some(64));
        let errors = String::from_utf8(said.stderr).unwrap();
        assert!(errors.contains("has no options"), "{errors}");
        assert!(is_empty(bench.folder.path()));
    }
}

/// Runs a script in separate namespaces, and returns its output. `None`: this machine does not allow that.
pub(crate) fn in_a_namespace(bench: &Bench, own: &[&str], script: &str) -> Option<String> {
    let able = Command::new("unshare").args(own).arg("true").status();
    if !able.is_ok_and(|status| status.success()) {
        let why = format!("this machine does not allow `unshare {}`", own.join(" "));
        assert!(std::env::var_os("TIDELOCK_REQUIRE").is_none(), "{why}");
        eprintln!("LEFT OUT: {why}");
        return None;
    }
    let mut command = bench.program("unshare");
    command.args(own).args(["sh", "-eu", "-c", script]);
    command.env_remove("TIDELOCK_STORE");
    command.env("BIN", env!("CARGO_BIN_EXE_tidelock"));
    command.env("AT", bench.folder.path());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A cron job has no `XDG_STATE_HOME`, and a process of root that has switched to another user may still have root's
/// `HOME`.
#[test]
fn the_default_store_depends_on_the_user_alone() {
    let bench = Bench::new();
    // Another folder is mounted over the system's home folder, so that the test leaves nothing in it.
    let script = r#"
        mkdir "$AT/home" "$AT/other"
        mount --bind "$AT/home" "$(getent passwd "$(id -u)" | cut -d: -f6)"
        mkfifo "$AT/in" "$AT/out"
        XDG_STATE_HOME="$AT/other" "$BIN" run job -- sh -c 'echo in > "$AT/in"; cat "$AT/out"' &
        cat "$AT/in"
        for home in "$AT/other" /; do
            code=0; env -u XDG_STATE_HOME HOME="$home" "$BIN" try job -- echo both || code=$?
            echo $code
        done
        env -i "$BIN" ls
        echo > "$AT/out"
        wait
        ls -A "$AT/other"
    "#;
    let own = ["--user", "--map-root-user", "--mount"];
    if let Some(said) = in_a_namespace(&bench, &own, script) {
        assert_eq!(said, "in\n75\n75\njob\n\n");
        assert!(bench.path("home/.local/state/tidelock/locks.db").is_file());
    }
}

/// Two users of a group, whose umasks would make the files private, and one user outside the group.
#[test]
fn the_users_of_a_group_share_the_store_of_a_machine() {
    if !rustix::process::geteuid().is_root() {
        let why = "only root can be two other users";
        assert!(std::env::var_os("TIDELOCK_REQUIRE").is_none(), "{why}");
        eprintln!("LEFT OUT: {why}");
        return;
    }
    let bench = Bench::new();
    let script = r#"
        mount -t tmpfs -o mode=755 none /var/lib
        cp "$BIN" /var/lib/tl
        export TIDELOCK_STORE=sqlite:machine
        as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --groups "$SHARED" "$@"; }
        tries() { code=0; as "$1" /var/lib/tl try job -- echo "$1 is in" || code=$?; echo "$1: $code"; }
        export SHARED=54321
        tries 10001
        mkdir -m 755 /var/lib/tidelock; tries 10001; rmdir /var/lib/tidelock
        install -d -m 2770 -g 54321 /var/lib/tidelock
        mkfifo -m 666 /var/lib/in /var/lib/out
        for holder in 10001 10002 0; do
            (umask 077; as $holder /var/lib/tl run job -- sh -c 'echo in > /var/lib/in; cat /var/lib/out') &
            cat /var/lib/in > /dev/null
            for other in 10001 10002 0; do (umask 022; tries $other); done
            as 10001 /var/lib/tl ls
            echo > /var/lib/out
            wait
        done
        tries 10002
        stat -c '%a %g %n' /var/lib/tidelock/*
        SHARED=54322 tries 10003
    "#;
    let Some(said) = in_a_namespace(&bench, &["--mount"], script) else {
        return;
    };
    let turn = "10001: 75\n10002: 75\n0: 75\njob\n\n".repeat(3);
    let files: String = ["", "-lock", "-shm", "-wal"]
        .map(|ending| format!("660 54321 /var/lib/tidelock/locks.db{ending}\n"))
        .concat();
    assert_eq!(
        said,
        format!("10001: 77\n10001: 77\n{turn}10002 is in\n10002: 0\n{files}10003: 77\n")
    );
}

#[test]
fn the_store_of_a_machine_says_how_it_is_set_up() {
    let bench = Bench::new();
    let script = r#"
        mount -t tmpfs -o mode=755 none /var/lib
        "$BIN" --store sqlite:machine try job -- true 2>&1 || echo $?
        ls /var/lib
    "#;
    let own = ["--user", "--map-root-user", "--mount"];
    if let Some(said) = in_a_namespace(&bench, &own, script) {
        let advice = "install -d -m 2770 -g GROUP /var/lib/tidelock\n77\n";
        assert!(said.ends_with(advice), "{said}");
    }
}

/// A port at which nobody listens.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_server_that_is_down_is_named_once_with_its_scheme() {
    let bench = Bench::new();
    let port = closed_port();
    for (url, named) in [
        ("redis://127.0.0.1:PORT", "redis://127.0.0.1:PORT: "),
        (
            "redis+sentinel://127.0.0.1:PORT/main",
            "redis+sentinel://127.0.0.1:PORT/main",
        ),
        (
            "redis+cluster://127.0.0.1:PORT",
            "redis+cluster://127.0.0.1:PORT: ",
        ),
        (
            "postgres://127.0.0.1:PORT/d",
            "postgres://127.0.0.1:PORT/d: ",
        ),
        ("mysql://127.0.0.1:PORT/d", "mysql://127.0.0.1:PORT: "),
        (
            "zookeeper://127.0.0.1:PORT",
            "zookeeper://127.0.0.1:PORT: Connection refused",
        ),
        (
            "zookeeper://127.0.0.1:PORT,nowhere.invalid/base",
            "; nowhere.invalid:2181: failed to lookup",
        ),
        ("etcd://127.0.0.1:PORT", "etcd://127.0.0.1:PORT: "),
        ("memcached://127.0.0.1:PORT", "memcached://127.0.0.1:PORT: "),
    ] {
        let [url, named] = [url, named].map(|text| text.replace("PORT", &port.to_string()));
        let output = bench.output(&["--store", &url, "try", "job", "--", "true"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(69), "{said}");
        let told = "tidelock: job: the store cannot be reached: ";
        assert!(said.starts_with(told) && said.contains(&named), "{said}");
        for twice in ["refused", "error:", "no server can be reached"] {
            assert!(said.matches(twice).count() <= 1, "{said}");
        }
    }
}

#[test]
fn a_url_of_no_store_lists_the_stores_and_says_what_memory_covers() {
    let bench = Bench::new();
    for url in ["http://h", "mongodb://h"] {
        let output = bench.output(&["--store", url, "try", "job", "--", "true"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{said}");
        let scheme = url.split(':').next().unwrap();
        for told in [
            scheme,
            "memory: (one process only)",
            "sqlite:PATH",
            "etcds://",
        ] {
            assert!(said.contains(told), "no {told}: {said}");
        }
    }
}

#[test]
fn a_folder_that_the_user_may_not_write_is_named_once() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let program = bench.path("tl");
    std::fs::copy(env!("CARGO_BIN_EXE_tidelock"), &program).unwrap();
    let readable = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(bench.folder.path(), readable).unwrap();
    let mut command = bench.program("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid", "65534", "--clear-groups"]); // root may write everywhere
    }
    command.arg(program).args(["try", "job", "--", "true"]);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{said}");
    let path = bench.path("locks.db");
    assert_eq!(said.matches(path.to_str().unwrap()).count(), 1, "{said}");
    assert!(
        said.contains("may not create files in its folder: Permission denied"),
        "{said}"
    );
}

/// Set in the namespace of the test below.
const BESIDE_A_SILENT_NAME_SERVER: &str = "BESIDE_A_SILENT_NAME_SERVER";

#[test]
fn a_name_server_that_does_not_answer_holds_up_no_exit() {
    if std::env::var_os(BESIDE_A_SILENT_NAME_SERVER).is_some() {
        return search_for_a_host_in_vain();
    }
    if Command::new("ip").arg("-V").output().is_err() {
        let why = "this machine has no `ip` (iproute2)";
        assert!(std::env::var_os("TIDELOCK_REQUIRE").is_none(), "{why}");
        eprintln!("LEFT OUT: {why}");
        return;
    }
    let bench = Bench::new();
    let own_test = std::env::current_exe().unwrap();
    let script = format!(
        r#"
        echo 'nameserver 127.0.0.1' > "$AT/resolv.conf"
        echo 'options timeout:30 attempts:2' >> "$AT/resolv.conf"
        mount --bind "$AT/resolv.conf" "$(readlink -f /etc/resolv.conf)"
        echo 'hosts: files dns' > "$AT/nsswitch.conf"
        [ ! -e /etc/nsswitch.conf ] || mount --bind "$AT/nsswitch.conf" "$(readlink -f /etc/nsswitch.conf)"
        ip link set lo up
        export {BESIDE_A_SILENT_NAME_SERVER}=yes
        exec '{}' --nocapture --exact stores::a_name_server_that_does_not_answer_holds_up_no_exit
        "#,
        own_test.display()
    );
    let own = ["--user", "--map-root-user", "--mount", "--net"];
    if let Some(said) = in_a_namespace(&bench, &own, &script) {
        assert!(said.contains(" 1 passed"), "{said}");
    }
}

/// The part of the test above that runs in the namespace. There a search for a host lasts for a minute.
fn search_for_a_host_in_vain() {
    let bench = Bench::new();
    let start = |command: &str| {
        let args = ["--store", "redis://nowhere", command, "job", "--", "true"];
        let mut command = bench.tidelock(&args);
        command.env("TIDELOCK_RESPONSE_TIMEOUT_MS", "1000");
        Run::start(command)
    };
    let silent = || UdpSocket::bind("127.0.0.1:53").unwrap();
    let server = silent();
    let begun = Instant::now();
    let (code, messages) = start("try").end();
    assert_eq!(code, Some(69), "{messages}");
    assert!(begun.elapsed() < PATIENCE / 3, "{:?}", begun.elapsed());
    // Another socket, which has no request of `try`.
    drop(server);
    let server = silent();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let run = start("run");
    server
        .recv_from(&mut [0; 512])
        .expect("it searches for the host");
    let told = Instant::now();
    run.signal(Signal::TERM);
    let (code, messages) = run.end();
    assert_eq!(code, Some(143), "{messages}");
    assert!(told.elapsed() < PATIENCE / 3, "{:?}", told.elapsed());
}
