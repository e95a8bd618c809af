//! The configurations without a bug.

use crate::config::{Config, Faults};

/// The runs of `cargo test`. They have no bug, so every property must hold in every state.
pub fn clean() -> Vec<Config> {
    let clients = Faults {
        losses: 1,
        late: 1,
        crashes: 1,
        freezes: 1,
        leaves: 1,
        ..Faults::NONE
    };
    let operators = Faults {
        steps: 1,
        forces: 1,
        ..Faults::NONE
    };
    let writers = Faults {
        late: 1,
        freezes: 1,
        ..Faults::NONE
    };
    let failovers = Faults {
        failovers: 1,
        ..Faults::NONE
    };
    vec![
        Config::new("two clients, two acquisitions each", 2, 2),
        Config::new("three clients", 3, 1),
        Config::new(
            "losses, late messages, crash, freeze, a caller leaves",
            2,
            1,
        )
        .faults(clients),
        Config::new("a clock step and a forced release", 2, 1).faults(operators),
        Config::new("fencing tokens, late messages and a freeze", 2, 1)
            .faults(writers)
            .writes(),
        Config::new("a failover", 2, 1).faults(failovers),
    ]
}

/// Larger runs that take minutes each.
pub fn large() -> Vec<Config> {
    let one = Faults {
        losses: 1,
        late: 1,
        ..Faults::NONE
    };
    vec![
        Config::new("three clients, one loss", 3, 1).faults(Faults {
            losses: 1,
            ..Faults::NONE
        }),
        Config::new("three clients, one late message", 3, 1).faults(Faults {
            late: 1,
            ..Faults::NONE
        }),
        Config::new("three clients, one freeze, one crash", 3, 1).faults(Faults {
            freezes: 1,
            crashes: 1,
            ..Faults::NONE
        }),
        Config::new("three clients, fencing tokens", 3, 1).writes(),
        Config::new("a failover, a loss, a late message", 2, 1)
            .drift(0)
            .faults(Faults {
                failovers: 1,
                ..one
            }),
    ]
}

/// The runs for which we check that every wait can end.
pub fn waits() -> Vec<Config> {
    let faults = Faults {
        losses: 1,
        leaves: 1,
        crashes: 1,
        ..Faults::NONE
    };
    let failover = Faults {
        failovers: 1,
        ..Faults::NONE
    };
    vec![
        Config::new("waits: three clients", 3, 1),
        Config::new("waits: a loss, a crash, a caller leaves", 2, 1).faults(faults),
        Config::new("waits: a failover", 2, 1)
            .drift(0)
            .faults(failover),
    ]
}
