//! What differs between two runs of the same version: random ids, times, tokens that begin at the clock, the process.

use anyhow::Result;
use regex::Regex;

/// What differs, and what stands in its place. Ids are replaced before numbers, because they have digits too.
const DIFFERS: [(&str, &str); 11] = [
    // A client, or an owner: after a request that has to be made again, the same client has another number.
    ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:[0-9]+)?", "#"),
    // The id of a permit begins with its client.
    ("hex:[0-9a-f]{32}", "#"),
    // etcd and ZooKeeper count all writes, also those that are made in the background.
    (r#""(created|changed|lease|ttl)":-?\d+"#, r#""$1":#"#),
    (r"\b(token|term)=\d+", "$1=#"),
    // An attempt that is refused takes a number too.
    (r"(setval\('[^']*'), \d+", "$1, #"),
    // Of etcd: the id of a lease, in a key.
    (r#"/[0-9a-f]{10,16}""#, r#"/#""#),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+\d\d", "#"),
    // The bytes of an owner or of a mark. A shorter one is the hash of a name, which does not differ.
    ("0x[0-9A-F]{65,}", "#"),
    // A line end in a JSON text is an `n` before the number.
    (r"(\b|\\n)\d{10,}\b", "$1#"),
    (
        r#"\["PEXPIRE",("[^"]*"),"\d+"\]"#,
        r##"["PEXPIRE",$1,"#"]"##,
    ),
    // The number of the process.
    (r#"(pid=|"pid","|'somewhere', ?|somewhere\\n)\d+"#, "$1#"),
];

/// `process1` in a dump of MySQL.
const IN_HEX: &str = "70726F6365737331";

/// The end of a row of MySQL's waiters without a lease, masked: a client that polls. It has a row only if it has waited for a
/// while, and an older version takes no notice of it.
const POLLS: &str = ",0,#);";

/// The lines of a store's contents, sorted, without what differs.
pub(crate) fn masked(text: &str) -> Result<Vec<String>> {
    // The record of a process is written every ten seconds, so a store may have one or not.
    let of_process = |line: &&str| {
        line.contains("process1") || line.contains("tidelock:processes") || line.contains(IN_HEX)
    };
    let kept = text.lines().filter(|line| !of_process(line));
    let mut text: String = kept.flat_map(|line| [line, "\n"]).collect();
    for (pattern, place) in DIFFERS {
        text = Regex::new(pattern)?.replace_all(&text, place).into_owned();
    }
    let polls = |line: &&str| line.contains("`tidelock_waiters`") && line.ends_with(POLLS);
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !polls(line))
        .map(str::to_owned)
        .collect();
    lines.sort();
    Ok(lines)
}

#[test]
fn what_differs_is_masked_and_nothing_else() -> Result<()> {
    let one = "INSERT INTO t VALUES ('held', '0b9e44a7-5c1d-4e0f-9a3b-0123456789ab:1', '2027-09-19 12:18:13.25+00', 17, 'somewhere', 77123);";
    let other = "INSERT INTO t VALUES ('held', 'f7c1d2e3-aabb-cccc-dddd-fedcba987654:2', '2028-01-02 02:08:03+00', 17, 'somewhere', 17);";
    assert_eq!(masked(one)?, masked(other)?);
    let renamed = other.replace("held", "kept");
    assert_ne!(masked(one)?, masked(&renamed)?);
    let longer = other.replace(" 17,", " 17, 5,");
    assert_ne!(masked(one)?, masked(&longer)?);
    let row = |lease: u32| {
        format!(
            "INSERT INTO `tidelock_waiters` VALUES (0x2B45,1790000000000000,0x01,0x02,{lease},1790000000000000);"
        )
    };
    assert!(masked(&row(0))?.is_empty(), "it polls");
    assert_eq!(masked(&row(30000))?.len(), 1, "it waits for a fair lock");
    Ok(())
}
