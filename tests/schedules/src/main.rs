//! Runs the stories in many schedules: `cargo xtask schedules`.

#[cfg(schedules = "shuttle")]
fn main() {
    use clap::Parser;
    run(&Args::parse());
}

#[cfg(not(schedules = "shuttle"))]
fn main() {
    eprintln!("this build has no scheduler: use `cargo xtask schedules`");
    std::process::exit(2);
}

/// Runs stories of tasks that use one client in many schedules.
#[cfg(schedules = "shuttle")]
#[derive(clap::Parser)]
struct Args {
    /// Lists the stories
    #[arg(long)]
    list: bool,
    /// Only this story; may be given more than once
    #[arg(long, value_name = "NAME")]
    story: Vec<String>,
    /// How many schedules of each story
    #[arg(long, default_value_t = 1000)]
    schedules: usize,
    /// Where the randomness begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs only this schedule, as a failure has printed it
    #[arg(long, value_name = "TEXT")]
    replay: Option<String>,
}

#[cfg(schedules = "shuttle")]
fn run(args: &Args) {
    use schedules::{STORIES, begun};
    let chosen = STORIES
        .into_iter()
        .filter(|story| args.story.is_empty() || args.story.iter().any(|name| name == story.name));
    for story in chosen {
        let tried = std::panic::catch_unwind(|| tell(story, args));
        let Err(panic) = tried else { continue };
        let why = panic.downcast_ref::<String>().map_or("", String::as_str);
        // The rest of a deadlock is the list of all tasks; it was printed already.
        let why = why.split([':', '!', '\n']).next().unwrap_or_default();
        // `cargo xtask schedules` reads this line.
        eprintln!("failed: {}\t{why}", begun());
        std::process::exit(1);
    }
}

/// Runs a story as the arguments say. `cargo xtask schedules` reads the line that it prints.
#[cfg(schedules = "shuttle")]
fn tell(story: schedules::Story, args: &Args) {
    use schedules::{Search, explore, replay};
    if args.list {
        println!("{}", story.name);
    } else if let Some(schedule) = &args.replay {
        replay(story, schedule);
    } else {
        let (schedules, time) = explore(
            story,
            Search {
                schedules: args.schedules,
                seed: args.seed,
            },
        );
        let seconds = time.as_secs_f64();
        println!("{}\t{}\t{schedules}\t{seconds:.1}", story.name, story.about);
    }
}
