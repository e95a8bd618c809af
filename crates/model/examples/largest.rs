//! Checks all clean runs, including the large ones: `cargo run -p model --release --example largest`.

fn main() {
    let all = model::clean().into_iter().chain(model::large());
    let broken = all.filter(|config| model::check(config.clone()).first().is_some());
    std::process::exit(i32::from(broken.count() > 0));
}
