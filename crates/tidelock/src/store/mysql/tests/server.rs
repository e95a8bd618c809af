//! A server on loopback that answers as a test says, in the protocol of MySQL.
//!
//! A reply is a text: the results of the statements, with `; ` between them. A result is `OK`, or `ERR` with a code and a
//! text, or rows of words, each row on a line of its own. `NULL` is no value, and `EMPTY` are no rows. After a `; ` at its
//! end the client waits for one more result, and after rows with [`UNENDED`] as the last one for more rows.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::store::mysql::address::Address;
use crate::store::mysql::raw_connection::TextRow;
use crate::store::mysql::tests::row;
use crate::store::tests::scripted::{Protocol, Scripted};

/// To requests that the test has not named it replies as a server that has tables of the present format, and does all that
/// it is asked.
pub(crate) type ScriptedServer = Scripted<MysqlProtocol>;

/// The protocol of MySQL.
pub(crate) struct MysqlProtocol;

/// How a transaction on a queue begins that may let in those that are next.
pub(crate) const SERVES: &str = "START TRANSACTION; INSERT INTO tidelock_locks";
/// How a transaction on a queue begins that only ends what a ticket has.
pub(crate) const ENDS: &str = "START TRANSACTION; SELECT id FROM tidelock_locks";
/// How a look at a queue begins.
pub(crate) const LOOK: &str = "SELECT IF(l.owner";

/// In place of the last row: the end of the result never comes.
pub(crate) const UNENDED: &str = "UNENDED";

/// The codes of the commands.
const QUERY: u8 = 3;
const PING: u8 = 14;

/// What the server can do: the protocol of MySQL 4.1, several statements in one text, and no packet that only ends the
/// columns of a result.
const CAN: u32 = 0x010b_a20b;

/// The flag of a result that another one follows.
const MORE: u8 = 8;

impl Protocol for MysqlProtocol {
    async fn greet(peer: &mut BufReader<TcpStream>) -> io::Result<()> {
        peer.write_all(&packet(0, &greeting())).await?;
        // Every login is good.
        read_packet(peer).await?;
        peer.write_all(&packet(2, &end(0x00, 0))).await
    }

    async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
        let packet = read_packet(peer).await?;
        match packet.split_first() {
            Some((&QUERY, text)) => Ok(vec![String::from_utf8_lossy(text).into_owned()]),
            Some((&PING, _)) => Ok(vec!["PING".to_owned()]),
            // The client says goodbye.
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn usual(_port: u16, words: &[&str]) -> String {
        let format = words[0].starts_with("SELECT format").then_some("1");
        format.unwrap_or("OK").to_owned()
    }

    fn encode(reply: &str) -> Vec<u8> {
        let results: Vec<&str> = reply.split("; ").collect();
        let packets = results.iter().enumerate().flat_map(|(at, result)| {
            let more = if at + 1 < results.len() { MORE } else { 0 };
            packets_of(result, more)
        });
        let numbered = (0..=u8::MAX).cycle().skip(1).zip(packets);
        numbered
            .flat_map(|(number, payload)| packet(number, &payload))
            .collect()
    }
}

impl ScriptedServer {
    pub(crate) fn address(&self) -> Address {
        Address::parse(&self.url()).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("mysql://127.0.0.1:{}/locks", self.port)
    }

    /// All that it was asked so far, without the settings of sessions.
    pub(crate) fn statements(&self) -> Vec<String> {
        let mut all = self.heard("");
        all.retain(|text| !text.starts_with("SET SESSION"));
        all
    }

    /// How many statements so far that make tables. All tables need six.
    pub(crate) fn made(&self) -> usize {
        MAKES.iter().map(|makes| self.heard(makes).len()).sum()
    }
}

/// How the statements begin that make tables.
const MAKES: [&str; 2] = ["CREATE TABLE", "INSERT INTO tidelock_counter"];

/// The refusal of a statement because a table is missing.
pub(crate) fn no_table(table: &str) -> String {
    format!("ERR 1146 Table 'locks.{table}' doesn't exist")
}

/// The refusal of a statement because the user may not use a table.
pub(crate) fn denied(table: &str) -> String {
    format!("ERR 1142 INSERT command denied to user 'me'@'here' for table '{table}'")
}

/// The same refusal of a later statement of a text. In a transaction `START TRANSACTION` is the first one.
pub(crate) fn later(refusal: &str) -> String {
    format!("OK; {refusal}")
}

/// A packet with its number in an exchange.
fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let mut packet = length[..3].to_vec();
    packet.push(number);
    packet.extend(payload);
    packet
}

async fn read_packet(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    // The number of the packet is in the last byte.
    let length = peer.read_u32_le().await? & 0x00ff_ffff;
    let mut packet = vec![0; usize::try_from(length).unwrap()];
    peer.read_exact(&mut packet).await?;
    Ok(packet)
}

/// The first packet of a connection: the version of the server, the challenge for the password, and what it can do.
fn greeting() -> Vec<u8> {
    let [first, second, third, fourth] = CAN.to_le_bytes();
    let mut packet = b"\x0a8.0.36\0".to_vec();
    packet.extend([0; 4]); // the number of the connection
    packet.extend([b'x'; 8]);
    packet.push(0);
    packet.extend([first, second]);
    packet.extend([45, 2, 0]); // utf8mb4, and each statement is committed by itself
    packet.extend([third, fourth]);
    packet.push(21); // the length of the challenge
    packet.extend([0; 10]);
    packet.extend([b'x'; 12]);
    packet.push(0);
    packet.extend(b"mysql_native_password\0");
    packet
}

/// The end of a result, with or without rows.
fn end(header: u8, more: u8) -> Vec<u8> {
    vec![header, 0, 0, more, 0, 0, 0]
}

/// The packets of one result.
fn packets_of(result: &str, more: u8) -> Vec<Vec<u8>> {
    if result.is_empty() {
        return Vec::new();
    }
    if result == "OK" {
        return vec![end(0x00, more)];
    }
    if let Some(error) = result.strip_prefix("ERR ") {
        let (code, text) = error.split_once(' ').unwrap();
        let code: u16 = code.parse().unwrap();
        let mut packet = vec![0xff];
        packet.extend(code.to_le_bytes());
        packet.extend(b"#HY000");
        packet.extend(text.as_bytes());
        return vec![packet];
    }
    let lines = result.split('\n');
    let lines = lines.filter(|line| *line != "EMPTY" && *line != UNENDED);
    let rows: Vec<TextRow> = lines.map(row).collect();
    let columns = rows.first().map_or(1, Vec::len);
    let mut packets = vec![vec![u8::try_from(columns).unwrap()]];
    packets.extend(vec![column(); columns]);
    packets.extend(rows.iter().map(packet_of_row));
    if !result.ends_with(UNENDED) {
        packets.push(end(0xfe, more));
    }
    packets
}

/// A column of texts, without a name.
fn column() -> Vec<u8> {
    let mut packet = b"\x03def".to_vec();
    packet.extend([0; 5]);
    packet.extend([12, 45, 0]); // the length of the rest, and utf8mb4
    packet.extend([0; 4]);
    packet.push(0xfd);
    packet.extend([0; 5]);
    packet
}

fn packet_of_row(row: &TextRow) -> Vec<u8> {
    let mut packet = Vec::new();
    for word in row {
        match word {
            Some(word) => {
                packet.push(u8::try_from(word.len()).unwrap());
                packet.extend(word);
            }
            None => packet.push(0xfb),
        }
    }
    packet
}
