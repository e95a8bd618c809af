//! Checks all clean runs, including the large ones: `cargo run -p model_checking --profile bench --example largest`.

fn main() {
    let all = model_checking::clean()
        .into_iter()
        .chain(model_checking::large());
    let broken = all.filter(|config| model_checking::check(config.clone()).first().is_some());
    std::process::exit(i32::from(broken.count() > 0));
}
