//! Without a bug, every guarantee holds in every state, with every fault at every moment.

#[test]
fn every_promise_holds_in_every_state() {
    for config in model_checking::clean() {
        let outcome = model_checking::check(config);
        assert_eq!(
            outcome.reached,
            model_checking::REACHED.len(),
            "the run looks at something"
        );
        assert_eq!(outcome.first(), None);
    }
}

#[test]
fn every_wait_can_end() {
    for config in model_checking::waits() {
        let found = model_checking::waits_end(config);
        assert!(found.waiting > 0);
        assert_eq!(found.hopeless, 0);
    }
}
