//! The demo, on a small scale.

use serde_json::Value;

use crate::bench::Bench;

#[test]
fn the_shop_oversells_without_a_lock_and_never_with_it() {
    let bench = Bench::new();
    let output = bench.output(&[
        "demo",
        "--stock",
        "60",
        "--processes",
        "2",
        "--workers",
        "4",
        "--json",
    ]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let acts: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(acts.len(), 3);
    for (number, act) in (1..).zip(&acts) {
        assert_eq!(act["act"], number);
        assert_eq!(act["stock"], 60);
        assert_eq!(act["store"], bench.url());
        assert!(act["sales_per_s"].as_f64().unwrap() > 0.0);
    }
    assert!(acts[0]["oversold"].as_u64().unwrap() > 0);
    assert!(acts[0]["wait_p50_ms"].is_null() && acts[0]["refused_late_writes"].is_null());
    for act in &acts[1..] {
        assert_eq!(
            (&act["sold"], &act["oversold"]),
            (&Value::from(60), &Value::from(0))
        );
        assert!(act["wait_p99_ms"].as_f64() >= act["wait_p50_ms"].as_f64());
    }
    assert!(acts[2]["refused_late_writes"].as_u64().unwrap() >= 1);
}
