//! Bugs that the search must find.
//!
//! All of them are in one build; the environment chooses the one that is there. So the search for each bug needs no
//! build of its own.

use crate::planted::Change;

/// A bug, and the story that must find it.
pub(super) struct Bug {
    pub(super) name: &'static str,
    pub(super) story: &'static str,
    /// With the bug where `planted` is true, and the original elsewhere.
    pub(super) changes: &'static [Change],
}

pub(super) const BUGS: [Bug; 7] = [
    Bug {
        name: "a wake is lost on drop",
        story: "cancel",
        changes: &[Change {
            file: "engine/local_queue/waiter.rs",
            from: "drop(self.request.waiter().leave());",
            to: "let left = self.request.waiter().leave();
                if crate::schedules::planted(\"a wake is lost on drop\") { std::mem::forget(left) } else { drop(left) }",
        }],
    },
    Bug {
        name: "a hand-off to a cancelled waiter",
        story: "cancel",
        changes: &[Change {
            file: "engine/local_queue/waiter.rs",
            from: "if state.left {",
            to: "if state.left && !crate::schedules::planted(\"a hand-off to a cancelled waiter\") {",
        }],
    },
    Bug {
        name: "a leader leaves twice",
        story: "another process",
        changes: &[
            Change {
                file: "engine/local_queue/leader.rs",
                from: "queues.leave(&self.name, self.number, self.wake.take());",
                to: "queues.leave(&self.name, self.number, self.wake.take());
                    if crate::schedules::planted(\"a leader leaves twice\") { queues.leave(&self.name, self.number, None) }",
            },
            Change {
                file: "engine/local_queue/leadership.rs",
                from: ".filter(|queue| queue.is_led_by(leader));",
                to: ".filter(|queue| queue.is_led_by(leader) || crate::schedules::planted(\"a leader leaves twice\"));",
            },
        ],
    },
    Bug {
        name: "a listener reads before it registers",
        story: "close",
        changes: &[Change {
            file: "engine/runtime/event.rs",
            from: "self.register(cx);\n        read()",
            to: "if crate::schedules::planted(\"a listener reads before it registers\") {
                    let value = read();
                    self.register(cx);
                    return value.map_or(Poll::Pending, Poll::Ready);
                }
                self.register(cx);
                read()",
        }],
    },
    Bug {
        name: "a loss does not end the leader term",
        story: "loss",
        changes: &[Change {
            file: "engine/lease/status.rs",
            from: "if let Some(term) = self.term.upgrade() {",
            to: "if !crate::schedules::planted(\"a loss does not end the leader term\") && let Some(term) = self.term.upgrade() {",
        }],
    },
    Bug {
        name: "a close does not wait for a dropped guard",
        story: "close",
        changes: &[Change {
            file: "engine/lease/hold.rs",
            from: "let _in_flight = steward.in_flight();",
            to: "let _in_flight = (!crate::schedules::planted(\"a close does not wait for a dropped guard\")).then(|| steward.in_flight());",
        }],
    },
    Bug {
        name: "a hand-off keeps the listeners of the last holder",
        story: "loss",
        changes: &[Change {
            file: "engine/lease/table.rs",
            from: "if Arc::strong_count(status) > OWN {",
            to: "if Arc::strong_count(status) > OWN && !crate::schedules::planted(\"a hand-off keeps the listeners of the last holder\") {",
        }],
    },
];

/// Which bug is there.
pub(super) const SWITCH: Change = Change {
    file: "schedules.rs",
    from: "pub use crate::engine::runtime::scheduled::{advance, restart};",
    to: "pub use crate::engine::runtime::scheduled::{advance, restart};

/// Whether this bug is there.
pub(crate) fn planted(bug: &str) -> bool {
    use std::sync::LazyLock;
    static PLANTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(\"PLANTED\").ok());
    PLANTED.as_deref() == Some(bug)
}",
};
