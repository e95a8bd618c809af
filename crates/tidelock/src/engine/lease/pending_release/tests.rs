//! How long a release is repeated.

use super::*;
use crate::Client;

fn before(instant: BootInstant) -> BootInstant {
    BootInstant(instant.0 - 1)
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_until_the_lease_of_its_hold_or_of_its_reader_has_ended() {
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.connect("memory:").await.unwrap();
    let [writer, reader] = ["writer", "reader"].map(|name| client.lock(name));
    let (writer, reader) = (
        writer.acquire().await.unwrap(),
        reader.acquire().await.unwrap(),
    );
    let status = Arc::clone(&reader.0.status);
    let ends = status.valid_until();
    let earlier = BootInstant(ends.0 - 1_000_000_000);
    for (reader, last) in [(None, earlier), (Some(status), ends)] {
        let mut release = writer.0.pending_release(None, reader);
        release.until = earlier;
        assert!(release.goes_on(before(earlier)));
        assert!(!release.repeated, "the store still has it");
        assert!(release.goes_on(before(last)));
        assert!(!release.goes_on(last));
        assert!(release.repeated, "that it is not held is no loss any more");
    }
}
