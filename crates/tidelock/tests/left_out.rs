//! Says what `cargo test` leaves out, so that a green run is not taken for more than it is.

fn main() {
    println!(
        "\nleft out here: everything that needs a server (Redis, Valkey, Java's Redisson), what the machine must allow, and the long runs.\n\
         `cargo xtask test` installs what is missing, starts the servers and runs all of it.\n"
    );
}
