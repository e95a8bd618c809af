//! Bugs that Miri must find.

use crate::planted::Change;

/// A bug, and the test that must find it.
pub(super) struct Bug {
    pub(super) name: &'static str,
    pub(super) test: &'static str,
    pub(super) changes: &'static [Change],
}

const LOSS: &str =
    "engine::lease::status::tests::a_loss_does_not_miss_a_listener_that_comes_at_the_same_moment";

pub(super) const BUGS: [Bug; 2] = [
    Bug {
        // The search through schedules cannot find this one: there each write is seen at once.
        name: "a loss and its listener have no fences",
        test: LOSS,
        changes: &[
            Change {
                file: "engine/lease/status.rs",
                from: "fence(Ordering::SeqCst);\n        event",
                to: "event",
            },
            Change {
                file: "engine/lease/status.rs",
                from: "fence(Ordering::SeqCst);\n        if let",
                to: "if let",
            },
        ],
    },
    Bug {
        name: "a listener reads before it registers",
        test: LOSS,
        changes: &[Change {
            file: "engine/runtime/event.rs",
            from: "self.register(cx);\n        read().map_or(Poll::Pending, Poll::Ready)",
            to: "let value = read();\n        self.register(cx);\n        value.map_or(Poll::Pending, Poll::Ready)",
        }],
    },
];
