//! The servers support every operation of the tests.

use std::net::TcpStream;

use anyhow::Result;
use testkit::process;
use testkit::servers::{Flavour, RedisServer, ServerCert, Tls};

#[test]
fn a_server_answers_and_goes_with_its_value() -> Result<()> {
    let server = RedisServer::start()?;
    server.admin(&["SET", "a", "1"])?;
    assert_eq!(server.query::<u64, _>(&["GET", "a"])?, 1);
    assert_eq!(server.keys()?, ["a"]);
    let (addr, pid, dir) = (server.addr(), server.pid()?, server.dir().to_owned());
    assert!(
        process::is_alive(pid) && process::open_fds(pid)? > 3 && process::rss_bytes(pid)? > 1 << 20
    );
    drop(server);
    assert!(TcpStream::connect(addr).is_err());
    assert!(!process::is_alive(pid) && !dir.exists());
    Ok(())
}

#[test]
fn a_restart_is_empty_unless_it_kept_its_data() -> Result<()> {
    for (keeps, found) in [(false, 0_u64), (true, 1)] {
        let server = RedisServer::builder().appendonly(keeps).start()?;
        server.admin(&["SET", "a", "1"])?;
        server.kill()?;
        assert!(server.pid().is_err());
        server.restart()?;
        assert_eq!(server.query::<u64, _>(&["DBSIZE"])?, found);
        server.restart_empty()?;
        assert_eq!(server.query::<u64, _>(&["DBSIZE"])?, 0);
    }
    Ok(())
}

#[test]
fn a_frozen_server_stands_still() -> Result<()> {
    let server = RedisServer::start()?;
    server.freeze()?;
    assert_eq!(process::state(server.pid()?)?, 'T');
    server.thaw()?;
    server.admin(&["PING"])?;
    Ok(())
}

#[test]
fn access_list_and_debug_commands() -> Result<()> {
    let acl = "user default off\nuser app on >secret ~* +ping";
    let server = RedisServer::builder()
        .acl(acl)
        .debug_commands(true)
        .start()?;
    server.admin(&["DEBUG", "SLEEP", "0"])?;
    assert_eq!(server.query::<String, _>(&["ACL", "WHOAMI"])?, "operator");
    Ok(())
}

#[test]
fn tls_with_good_and_bad_certificates() -> Result<()> {
    for cert in [ServerCert::Good, ServerCert::WrongHost, ServerCert::Expired] {
        let server = RedisServer::builder()
            .flavour(Flavour::Redis7)
            .tls(Tls {
                cert,
                client_certs: true,
            })
            .start()?;
        assert!(server.url().starts_with("rediss://"));
        assert!(server.certs().is_some_and(|certs| certs.stranger.exists()));
    }
    Ok(())
}

#[test]
fn a_valkey_whose_clock_jumps() -> Result<()> {
    let server = RedisServer::builder()
        .flavour(Flavour::Valkey9)
        .fake_clock(true)
        .start()?;
    let info: String = server.query(&["INFO", "server"])?;
    assert!(info.contains("valkey_version:9"), "{info}");
    server.admin(&["SET", "a", "1", "PX", "30000"])?;
    server.shift_clock(60)?;
    assert!(server.keys()?.is_empty());
    Ok(())
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = RedisServer::builder()
        .args(["--no-such-option", "1"])
        .start()
        .map(drop)
        .unwrap_err();
    assert!(format!("{error:#}").contains("no-such-option"), "{error:#}");
}
