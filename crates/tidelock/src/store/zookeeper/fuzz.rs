//! Fuzz checks: invariants of node names, of node contents and of ZooKeeper URLs.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::{Duration, SystemTime};

use crate::error::Result;
use crate::snapshot::ClientInfo;
use crate::store::Name;
use crate::store::fuzz::FuzzLogin;
use crate::store::zookeeper::address::Address;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::permit_view::{ClaimStep, ClaimView, SemaphoreNumber};
use crate::store::zookeeper::{delay_node, doctor, keys, note};

pub(crate) fn url(text: &str) -> Result<FuzzLogin> {
    let address = Address::parse(text)?;
    assert!(address.base.starts_with('/') && !address.base.ends_with('/'));
    let shown = format!("{address:?} {}", address.servers);
    Ok(FuzzLogin {
        user: address.user,
        password: address.password,
        shown,
    })
}

/// Each line is a node of one queue, and the whole text is the content of a node.
pub(crate) fn node(text: &str) {
    let nodes: Vec<String> = text.lines().map(str::to_owned).collect();
    let queue = keys::in_order(nodes.clone());
    assert!(queue.len() <= nodes.len());
    assert_eq!(keys::in_order(queue.clone()), queue);
    let holders = keys::holders(&queue).len();
    assert!(holders <= queue.len() && (holders == 0) == queue.is_empty());
    let shared = |node: &String| keys::mode(node) == crate::snapshot::Mode::Read;
    assert!(holders <= 1 || queue[..holders].iter().all(shared));
    let mut turned = nodes;
    turned.reverse();
    assert_eq!(
        keys::in_order(turned),
        queue,
        "everybody sees the same order"
    );
    claims(text);
    for node in text.lines() {
        if let Some(name) = keys::name_of(node) {
            assert_eq!(keys::escape(&name), node);
        }
    }
    doctor::voters(text);
    let (generation, delay, seen) = delay_node::read(text.as_bytes());
    let again = delay_node::written(generation, delay, seen);
    assert_eq!(
        delay_node::read(again.as_bytes()),
        (generation, delay, seen)
    );
    let holder = note::read("node", text.as_bytes());
    assert!(!holder.owner.is_empty());
    written(text);
}

/// Each line is a claim of one semaphore, and the whole text is the content of the node with its number.
fn claims(text: &str) {
    let nodes: Vec<String> = text.lines().map(str::to_owned).collect();
    let number = SemaphoreNumber::read(text.as_bytes(), 1, 5).ok();
    if let Some(number) = &number {
        let again = SemaphoreNumber::written(number.total, &number.epoch);
        let again = SemaphoreNumber::read(again.as_bytes(), 1, 5);
        assert_eq!(again.as_ref().ok(), Some(number));
    }
    let most = nodes.len();
    let view = ClaimView::new(number, nodes);
    assert!(view.claims.len() <= most);
    for claim in &view.claims {
        let own = QueueNode {
            name: claim.node.clone(),
            zxid: 3,
        };
        assert_ne!(view.step(Some(&own), claim.permits), ClaimStep::Gone);
    }
}

/// The client details with that start time, as they are parsed from a node.
pub(crate) fn client(since: u64) -> Option<ClientInfo> {
    let owner = crate::types::OwnerMint::new().fresh();
    let text = format!("{}\nhost\n7\nshop\n{since}", owner.text());
    note::read("node", text.as_bytes()).client
}

fn written(text: &str) {
    let owner = crate::types::OwnerMint::new().fresh();
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(5);
    let info = ClientInfo::new(text, 7, text, since).run_by(Some(text));
    let holder = note::read("node", &note::write(owner.text(), Some(&info)));
    assert_eq!(holder.owner, owner.text());
    let seen = holder.client.expect("details are read");
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    assert_eq!(
        seen,
        ClientInfo::new(plain.as_str(), 7, plain.as_str(), since).run_by(Some(plain.as_str()))
    );
}

pub(crate) fn name(name: &Name) {
    let segment = keys::escape(name.as_str());
    assert_eq!(keys::name_of(&segment).as_deref(), Some(name.as_str()));
    assert!(!segment.is_empty() && !matches!(&*segment, "." | ".."));
    let refused = |c: char| c == '/' || c.is_control() || c >= '\u{e000}';
    assert!(!segment.chars().any(refused), "{segment:?}");
}
