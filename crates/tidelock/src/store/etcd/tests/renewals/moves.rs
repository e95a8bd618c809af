//! Keys that move to a longer lease while others change them.

use super::*;

#[tokio::test]
async fn a_key_that_another_client_has_taken_before_it_moves_has_gone() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let one = held(&etcd, "stock").await;
    let taken = Turn::Meanwhile(|model| {
        model.delete_by_hand(KEY);
        let lease = model.grant(60);
        model.put_by_hand(KEY, "another", lease);
    });
    server.in_turn("Txn", &[Turn::Usual, taken]);
    let gone = etcd.renews(&one, LEASE * 2).await;
    assert!(matches!(gone, Renewed::Gone), "{gone:?}");
    assert_eq!(server.key(KEY).unwrap().value, b"another");
}

/// Otherwise the place would end with the old lease, and the reader that asks again would be told that the hold is lost.
#[tokio::test]
async fn a_writer_whose_place_no_reader_has_taken_yet_moves_with_it() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    let reader = AttemptRequest {
        downgrade_of: Some(writer.ticket.owner.clone()),
        ..ask(LockKind::Read)
    };
    // The request of the reader does not arrive.
    server.in_turn("Txn", &[NO_LEADER]);
    etcd.fails(&reader).await;
    let kept = etcd.renews(&writer.ticket, LEASE * 2).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    etcd.settles().await;
    for key in ["shop/stock/write/1a", "shop/stock/read/1a.downgrade"] {
        assert_eq!(server.ttl_of(key), Some(60), "{key}");
    }
    etcd.grants(&reader).await;
}
