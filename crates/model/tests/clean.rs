//! Without a bug, every guarantee holds in every state, with every fault at every moment.

#[test]
fn every_promise_holds_in_every_state() {
    for config in model::clean() {
        let outcome = model::check(config);
        assert_eq!(
            outcome.reached,
            model::REACHED.len(),
            "the run looks at something"
        );
        assert_eq!(outcome.first(), None);
    }
}

#[test]
fn every_wait_can_end() {
    for config in model::waits() {
        let found = model::waits_end(config);
        assert!(found.waiting > 0);
        assert_eq!(found.hopeless, 0);
    }
}
