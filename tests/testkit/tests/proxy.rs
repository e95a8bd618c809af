//! The proxy applies its modes and rules to a connection, and counts the commands.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::{Client, Cmd, Connection};
use testkit::proxy::{Mode, Proxy, Then, Way, When};
use testkit::servers::RedisServer;

const SOON: Duration = Duration::from_secs(10);

fn pair() -> Result<(RedisServer, Proxy)> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    Ok((server, proxy))
}

fn connect(proxy: &Proxy) -> Result<Connection> {
    Client::open(proxy.url())?
        .get_connection()
        .context("connecting through the proxy")
}

fn incr(connection: &mut Connection, key: &str) -> redis::RedisResult<u64> {
    Cmd::new().arg("INCR").arg(key).query(connection)
}

#[test]
fn commands_are_counted_and_logged() -> Result<()> {
    let (_server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    proxy.reset_counts();
    incr(&mut connection, "a")?;
    incr(&mut connection, "b")?;
    assert_eq!((proxy.count("INCR"), proxy.total()), (2, 2));
    let log = proxy.log();
    assert_eq!(
        (log[1].name.as_str(), log[1].args[0].as_slice()),
        ("INCR", b"b".as_slice())
    );
    assert_eq!(proxy.connection_of("INCR"), Some(1));
    Ok(())
}

#[test]
fn a_reply_is_lost_after_its_effect() -> Result<()> {
    let (server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    let rule = proxy.on(When::command("incr", "a").skip(1), Then::CutReply);
    incr(&mut connection, "a")?;
    assert!(incr(&mut connection, "a").is_err());
    rule.wait_fired(SOON)?;
    assert_eq!(server.query::<u64, _>(&["GET", "a"])?, 2);
    proxy.wait_until(SOON, |proxy| proxy.connections() == 0)?;
    Ok(())
}

#[test]
fn a_request_is_lost_before_its_effect() -> Result<()> {
    let (server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    let rule = proxy.on_each(When::request("INCR"), Then::Cut);
    assert!(incr(&mut connection, "a").is_err());
    assert_eq!((rule.count(), server.keys()?.len()), (1, 0));
    rule.remove();
    assert_eq!(incr(&mut connect(&proxy)?, "a")?, 1);
    Ok(())
}

#[test]
fn a_held_reply_comes_after_its_release() -> Result<()> {
    let (server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    let rule = proxy.on(When::request("INCR"), Then::HoldReply);
    let asking = std::thread::spawn(move || incr(&mut connection, "a"));
    rule.wait_fired(SOON)?;
    assert_eq!(server.query::<u64, _>(&["GET", "a"])?, 1);
    assert!(!asking.is_finished());
    rule.release();
    assert_eq!(asking.join().expect("no panic")?, 1);
    Ok(())
}

#[test]
fn a_dropped_reply_leaves_the_connection() -> Result<()> {
    let (_server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    let rule = proxy.on(When::request("INCR"), Then::DropReply);
    connection.set_read_timeout(Some(Duration::from_millis(50)))?;
    assert!(incr(&mut connection, "a").is_err());
    rule.wait_fired(SOON)?;
    assert_eq!(proxy.connections(), 1);
    Ok(())
}

#[test]
fn one_push_is_lost_and_the_next_arrives() -> Result<()> {
    let (server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    let mut subscriber = connection.as_pubsub();
    subscriber.subscribe("c")?;
    let rule = proxy.on(When::push("first"), Then::Drop);
    server.admin(&["PUBLISH", "c", "first"])?;
    server.admin(&["PUBLISH", "c", "second"])?;
    assert_eq!(subscriber.get_message()?.get_payload::<String>()?, "second");
    assert_eq!(rule.count(), 1);
    Ok(())
}

#[test]
fn modes_delay_hold_and_lose() -> Result<()> {
    let (server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    proxy.set(Way::ToClient, Mode::Delay(Duration::from_millis(60)));
    let start = Instant::now();
    incr(&mut connection, "a")?;
    assert!(start.elapsed() >= Duration::from_millis(60));
    proxy.set(Way::ToServer, Mode::Hold);
    let asking = std::thread::spawn(move || {
        let counted = incr(&mut connection, "a");
        (connection, counted)
    });
    proxy.wait_until(SOON, |proxy| proxy.count("INCR") == 2)?;
    assert_eq!(server.query::<u64, _>(&["GET", "a"])?, 1);
    proxy.set_both(Mode::Pass);
    let (mut connection, counted) = asking.join().expect("no panic");
    assert_eq!(counted?, 2);
    proxy.set_both(Mode::Drop);
    connection.set_read_timeout(Some(Duration::from_millis(50)))?;
    assert!(incr(&mut connection, "a").is_err());
    assert_eq!(
        (proxy.connections(), server.query::<u64, _>(&["GET", "a"])?),
        (1, 2)
    );
    Ok(())
}

#[test]
fn cut_and_refuse() -> Result<()> {
    let (_server, proxy) = pair()?;
    let mut connection = connect(&proxy)?;
    proxy.refuse(true);
    assert!(connect(&proxy).is_err());
    incr(&mut connection, "a")?;
    assert_eq!(proxy.cut(), 1);
    assert!(incr(&mut connection, "a").is_err());
    proxy.refuse(false);
    incr(&mut connect(&proxy)?, "a")?;
    assert_eq!(proxy.accepted(), 3);
    Ok(())
}

/// The replication stream begins like a message, and is none.
#[test]
fn an_opaque_proxy_waits_for_no_end_of_a_message() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start_opaque(listener.local_addr()?)?;
    let mut client = TcpStream::connect(proxy.addr())?;
    client.set_read_timeout(Some(SOON))?;
    client.write_all(b"*1\r\n")?;
    let (mut server, _) = listener.accept()?;
    let (mut question, mut answer) = ([0; 4], [0; 9]);
    server.set_read_timeout(Some(SOON))?;
    server.read_exact(&mut question)?;
    server.write_all(b"$100\r\nabc")?;
    client.read_exact(&mut answer)?;
    assert_eq!((&question, &answer), (b"*1\r\n", b"$100\r\nabc"));
    assert_eq!(proxy.total(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_works_beside_a_paused_clock() -> Result<()> {
    let (_server, proxy) = pair()?;
    let rule = proxy.on(When::request("INCR"), Then::DropReply);
    let mut connection = connect(&proxy)?;
    let asking = std::thread::spawn(move || incr(&mut connection, "a"));
    rule.fired().await;
    proxy.until(|proxy| proxy.count("INCR") == 1).await;
    proxy.cut();
    assert!(asking.join().expect("no panic").is_err());
    Ok(())
}

#[test]
fn bytes_of_a_protocol_that_is_not_parsed_are_held() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start(listener.local_addr()?)?;
    let rule = proxy.on(When::bytes("secret"), Then::Hold);
    let mut client = TcpStream::connect(proxy.addr())?;
    let (mut server, _) = listener.accept()?;
    let mut heard = [0; 5];
    client.write_all(b"plain")?;
    server.read_exact(&mut heard)?;
    assert_eq!((&heard, rule.count()), (b"plain", 0));
    // More than fits into a small buffer: what the rule looks for comes at its end.
    let told = format!("{:>67}", "secret");
    client.write_all(told.as_bytes())?;
    rule.wait_fired(SOON)?;
    server.set_read_timeout(Some(Duration::from_millis(50)))?;
    assert!(server.read_exact(&mut heard).is_err());
    server.set_read_timeout(Some(SOON))?;
    rule.release();
    let mut all = vec![0; told.len()];
    server.read_exact(&mut all)?;
    assert_eq!(all, told.as_bytes());
    Ok(())
}
