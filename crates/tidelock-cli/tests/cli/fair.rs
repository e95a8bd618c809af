//! `tidelock run --fair`: processes that have their turns in the order in which they came.

use serde_json::Value;

use crate::bench::{Bench, Run};

fn shown(bench: &Bench) -> Value {
    serde_json::from_slice(&bench.output(&["show", "--json", "job"]).stdout).unwrap()
}

fn queue(bench: &Bench) -> usize {
    shown(bench)["queue"].as_array().unwrap().len()
}

#[test]
fn fair_runs_have_their_turns_in_the_order_that_is_shown() {
    let bench = Bench::new();
    let mut holder = bench.run(&["--fair"], "echo in; read line");
    assert_eq!(holder.line(), "in");
    let mut waiters: Vec<Run> = Vec::new();
    for place in 1..=3 {
        waiters.push(bench.run(&["--fair"], "echo in; read line"));
        while queue(&bench) != place {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let before: Vec<Value> = shown(&bench)["queue"].as_array().unwrap().clone();
    let text = String::from_utf8(bench.output(&["show", "job"]).stdout).unwrap();
    assert!(text.contains("3 waiting, queue: 1. "), "{text}");
    drop(holder.child.stdin.take());
    for (waiter, owner) in waiters.iter_mut().zip(before) {
        assert_eq!(waiter.line(), "in");
        assert_eq!(shown(&bench)["holders"][0]["owner"], owner);
        drop(waiter.child.stdin.take());
    }
    assert_eq!(queue(&bench), 0);
}
