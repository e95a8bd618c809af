//! All command-line arguments. Nothing else reads the command line; man pages and completions are generated from here.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the help, which is shown as plain text"
)]

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::left_out;
use crate::which::Which;

/// Distributed locks from the command line.
///
/// Runs a program under a lock that is shared by many machines, shows the holders and waiters of locks, and breaks a
/// lock in an emergency. Shares its locks with Java's Redisson when the store is Redis or Valkey.
///
/// Locks exclude each other only on the same store, so use the same --store or TIDELOCK_STORE everywhere, or name it in
/// /etc/tidelock.toml of each machine: store = "redis://…". Without any, locks are in a file of the user who runs the
/// command, and exclude neither other users nor other machines.
/// For the users of one machine, root sets up --store sqlite:machine once, for a group:
/// install -d -m 2770 -g GROUP /var/lib/tidelock
///
/// Exit codes: the child's own (128 plus the signal's number if a signal ended it); 64 wrong usage; 69 the store cannot
/// be reached or cannot serve; 75 the lock was not acquired in time; 76 the lock was lost while the command ran; 77 the
/// store refused the user, the password or a permission; 126 the command cannot be executed; 127 there is no such
/// command.
#[derive(Debug, Parser)]
#[command(
    name = "tidelock",
    version,
    long_version = left_out::VERSION.as_str(),
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A password. It is not shown.
#[derive(Clone)]
pub(crate) struct Password(pub(crate) String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The store and the credentials for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines
    ///
    /// A password belongs in TIDELOCK_PASSWORD or a --password-file, not here: other users can read a command line.
    /// The options of each URL: https://docs.rs/tidelock/latest/tidelock/url_options
    #[allow(
        rustdoc::bare_urls,
        reason = "the comment is the help text of the command"
    )]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TIDELOCK_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDELOCK_CONFIG",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// Length of the lease, which is renewed every third of it while the lock is held; default: 30s
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
    /// Prefix of every lock name [env: TIDELOCK_PREFIX]
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "TIDELOCK_USER",
        hide_env_values = true
    )]
    pub(crate) user: Option<String>,
    /// A file that contains the password; read again at every connect, but a pipe only once
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDELOCK_PASSWORD_FILE",
        hide_env_values = true
    )]
    pub(crate) password_file: Option<PathBuf>,
    /// What the password file has said, if it can be read only once.
    #[arg(skip)]
    pub(crate) password: Option<Password>,
    /// Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Present this certificate to the store [env: TIDELOCK_TLS_CERT]
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate [env: TIDELOCK_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Print on stderr which store is used, which users it covers, and what happens; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock: `flock` across machines
    ///
    /// Example: tidelock --store redis://locks.internal run nightly-report --wait 10s -- ./report.sh
    ///
    /// Waits for the lock, runs the command, passes stdin, stdout, stderr and signals through, and exits with its exit
    /// code. The command finds TIDELOCK_NAME, TIDELOCK_OWNER and, with --fenced, TIDELOCK_TOKEN in its environment.
    ///
    /// A supervisor process (`lock-supervisor` in process lists) terminates the command and its whole process group
    /// before anybody else can get the lock: TERM, then KILL after the grace. It also does so when this process is
    /// frozen or killed, or when the store cannot be reached. This process does the same when the supervisor is frozen or
    /// killed. When the command exits, any process still in its group is terminated before the lock is released.
    ///
    /// Not covered are a process that leaves the group (setsid, daemons, `timeout` without --foreground, the jobs of a
    /// shell after `set -m`, the command of an inner `tidelock run`) and a process of another user
    /// (sudo: start tidelock as that user instead). If this process and the supervisor are killed at the same moment,
    /// the command is killed with them, but not the processes it has started. If both are frozen, nothing is terminated
    /// until one of them continues.
    ///
    /// At a terminal the command gets Ctrl-C and the keyboard input. Ctrl-Z does not stop it: a stopped command would
    /// keep the lock. Started with `&`, it waits for `fg` when it reads from the terminal.
    Run(RunArgs),
    /// The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached
    ///
    /// Excludes only runs that overlap. If several machines start a short command at the same time by their own clocks,
    /// it may end on one machine before another one starts it, and then both run it. To run it once: `tidelock once`
    Try(TryArgs),
    /// Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once
    ///
    /// Example: tidelock --store redis://locks.internal once --cron '0 3 * * *' --tz Europe/Berlin report -- ./report.sh
    ///
    /// The store remembers which slots have been run. A call for a slot that has been run runs nothing and exits with 0.
    /// So does a call without --wait that finds the lock of the job held, by a run of the same or of another slot, by a
    /// leader or by a Java service: if no later call comes in its slot, that slot is not run. With --wait a call waits for
    /// the lock, and exits with 75 if it is still held when the time is over. A call exits with 1 if the slot has had all
    /// its attempts and none has succeeded.
    ///
    /// A slot begins by the store's clock; a call up to 30 s too early belongs to the slot that begins, because the
    /// clocks of machines differ. On etcd, which tells no time, the machine's own clock counts. A call between two times
    /// of --cron is for the earlier one, and runs it if the store has no mark of it, as when the line is tried by hand
    /// with a new store.
    ///
    /// At least once per slot in which a call gets the lock: a command that fails, or whose machine dies, is run again by
    /// the next call in the slot (--retries), or by one that waits (--wait). At most once, unless its machine was
    /// declared dead while the command still ran: TIDELOCK_TOKEN is larger for each attempt. The command also finds
    /// TIDELOCK_SLOT and TIDELOCK_ATTEMPT in its environment. It is supervised as by `run`, and its lock is the fenced
    /// lock of the job's name.
    Once(crate::once::OnceArgs),
    /// Show what the last slots of `once` did: when, where, and how they ended
    History(crate::once::HistoryArgs),
    /// Run a command on one machine at a time: on the elected leader, and on a successor when it dies
    ///
    /// Example: tidelock --store redis://locks.internal lead billing --identity web-3 -- ./billing.sh
    ///
    /// Start the same line on every machine. One of them is elected and runs the command; the others wait. When the
    /// leadership is lost, the command is terminated before another machine can lead, supervised as by `run`, and this
    /// machine campaigns again. When the command ends by itself, or a signal ends it, this process resigns, so that a
    /// successor is elected at once, and exits with the exit code of the command: let a service manager start it again.
    ///
    /// The command finds TIDELOCK_TERM in its environment: a number that is larger for each leadership, and the same as
    /// TIDELOCK_TOKEN. The leader holds the fenced lock of the election's name.
    Lead(crate::lead::LeadArgs),
    /// Show who leads an election, in which term and since when
    Leader(crate::lead::LeaderArgs),
    /// Hold a lock until standard input is closed: for scripts, and for programs in other languages
    ///
    /// Prints one line, `held NAME`, or `held NAME TOKEN` with --fenced, as soon as the lock is held. Releases the lock when
    /// standard input ends, and refuses /dev/null and a file, which end at once. When the lock is lost, prints `lost
    /// NAME` and exits with code 76. If this process is killed, its output ends without that line. In both cases the caller
    /// must stop its work, because nothing else stops it.
    ///
    /// A signal does not release the lock while a caller has the input open, as the caller may still work: service
    /// managers and Ctrl-C signal all processes at once. To release it, close the input. A second signal, at least one
    /// second later, prints `lost NAME` and releases it at once. If the input is a terminal, the first signal does.
    Hold(HoldArgs),
    /// Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock
    Show(ShowArgs),
    /// List the names of held locks
    Ls(LsArgs),
    /// Print every change of a lock until interrupted
    Watch(WatchArgs),
    /// Show which locks are held and awaited, by whom and for how long, and which processes use the store
    ///
    /// A person at a terminal gets a screen with keys, which ? lists: locks, queues and processes; freeze, sort, filter, choose
    /// columns, open, and the command that shows a lock. A build without the feature `screen`, --once, -n and --json print text.
    ///
    /// The longest wait comes first, with the processes that wait below it. Every tidelock client writes what it holds and
    /// waits for into the store every ten seconds, and every second while `top` runs; what is shown is at most that old. A
    /// `+` marks a number that may be larger: the store shows a waiting process that tells nothing, such as a Java service
    /// with Redisson. A dash is what nobody tells, or what this user may not read. Of each process the 20 longest holds and
    /// waits are known. A process that has told nothing for three beats is gone, or cannot reach the store.
    Top(crate::top::TopArgs),
    /// Show the same as `top` on a page for a browser
    ///
    /// Example: tidelock --store redis://locks.internal web
    ///
    /// Prints the address of the page. It lists the locks that are held or awaited, and the processes; each has an address
    /// of its own. It follows the store while somebody looks at it, and is a plain table without JavaScript. /api/locks is
    /// the JSON of `top --once --json`; /healthz answers 200 and does not ask the store.
    ///
    /// There is no password: whoever reaches the address can read the names of locks, hosts and processes. The default
    /// reaches this machine only. A request for an unknown host is refused; --host names one more, such as that of a
    /// reverse proxy, which can ask for a password.
    Web(crate::web::WebArgs),
    /// Release a lock that another process holds, and wake its waiters
    Unlock(crate::unlock::UnlockArgs),
    /// Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store
    Token(crate::token::TokenArgs),
    /// Check whether this store can keep its guarantees; exit code 1 if locks are in danger
    Doctor(DoctorArgs),
    /// Show the settings in force, and the flag, variable or file that each comes from
    ///
    /// A flag wins over a variable of the environment, that over ~/.config/tidelock.toml, and that over
    /// /etc/tidelock.toml. Prints no password, and sends nothing to the store.
    Config(crate::config::ConfigArgs),
    /// Sell one stock from several processes: without a lock, with a lock, and with fencing
    Demo(DemoArgs),
    /// Print a shell's completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock
    Completions(CompletionsArgs),
    /// Print a man page: tidelock man run | man -l -
    Man(ManArgs),
    /// Supervises a command's process group and its deadline.
    #[command(name = "__supervise", hide = true)]
    Supervise,
    /// Prepares the process of a command, then executes the command in it.
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
    /// A selling process of the demo.
    #[command(name = "__seller", hide = true)]
    Seller(SellerArgs),
    /// Writes man pages and completions.
    #[command(name = "__pages", hide = true)]
    Pages(PagesArgs),
}

impl Command {
    /// Whether this process reads the configuration files. The processes that we start get every setting from us.
    pub(crate) fn reads_settings(&self) -> bool {
        !matches!(
            self,
            Self::Config(_)
                | Self::Completions(_)
                | Self::Man(_)
                | Self::Supervise
                | Self::Exec(_)
                | Self::Seller(_)
                | Self::Pages(_)
        )
    }

    /// Whether it acquires a lock.
    pub(crate) fn acquires(&self) -> bool {
        matches!(
            self,
            Self::Run(_) | Self::Try(_) | Self::Once(_) | Self::Lead(_) | Self::Hold(_)
        )
    }

    /// The names that the user has given, and the pattern of `ls`: the prefix is added to each of them.
    pub(crate) fn names(&self) -> Vec<&str> {
        let (name, also): (&String, &[String]) = match self {
            Self::Run(RunArgs { job, .. }) | Self::Try(TryArgs { job }) => {
                (&job.name, &job.which.also)
            }
            Self::Hold(args) => (&args.name, &args.which.also),
            Self::Once(args) => (&args.name, &[]),
            Self::History(args) => (&args.name, &[]),
            Self::Lead(args) => (&args.name, &[]),
            Self::Leader(args) => (&args.name, &[]),
            Self::Watch(args) => (&args.name, &[]),
            Self::Token(args) => (&args.name, &[]),
            Self::Unlock(args) => (&args.name, &[]),
            Self::Ls(args) => (&args.pattern, &[]),
            Self::Show(args) => return args.names.iter().map(String::as_str).collect(),
            _ => return Vec::new(),
        };
        let all = std::iter::once(name).chain(also);
        all.map(String::as_str).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Give up after this time, connecting included; default: wait without a limit
    ///
    /// If the store cannot be reached, is starting or is full of clients, the connect is retried within this time, and
    /// for half a minute if there is no limit. The limit does not cut the first attempt short, which ends after
    /// the response timeout, 3s. A wrong URL, user, password or certificate is reported at once.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// Name of the lock
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Give up after this time, connecting included; default: wait as long as somebody holds the lock
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Release the lock after it was held for this time, with exit code 76
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Take a fenced lock (Redisson's RFencedLock); a store without tokens is an error
    #[arg(long)]
    pub(crate) fenced: bool,
    /// Exit code when the lock was not acquired, instead of 75; as `flock -E`
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The subcommand; default: the page of tidelock itself
    pub(crate) command: Option<String>,
}

/// The lock of a command.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// Name of the lock
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Terminate the command after it has held the lock for this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Acquire a fenced lock (Redisson's RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error
    #[arg(long)]
    pub(crate) fenced: bool,
    /// Exit code when the lock was not acquired, instead of 75; as `flock -E`
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    #[command(flatten)]
    pub(crate) child: CommandArgs,
}

/// A command that runs under a lock.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// What to do when the lock is lost while the command runs
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    pub(crate) on_lost: OnLost,
    /// Time between TERM and KILL; shorter if the lease ends earlier
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) grace: Duration,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// The action when the lock of a running command is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Terminate the command before anybody else can get the lock
    Kill,
    /// Print a message and let the command run on
    Warn,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Names of locks; default: all held locks
    pub(crate) names: Vec<String>,
    /// One JSON object per lock
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Pattern of names, with `*` and `?`
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Maximum number of names to print
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) most: usize,
    /// Also print the mode (exclusive, read or write) and the number of holders; costs one request per lock
    #[arg(long)]
    pub(crate) modes: bool,
    /// One JSON object per lock
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Name of the lock
    pub(crate) name: String,
    /// Poll interval
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    pub(crate) every: Duration,
    /// One JSON object per change
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// One JSON object per finding
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of selling processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Number of sellers in each process
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: u32,
    /// Number of pieces to sell
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) stock: u64,
    /// One JSON object per act on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[arg(long)]
    pub(crate) name: String,
    /// Process id of the supervisor. The command is killed when that process dies.
    #[arg(long)]
    pub(crate) parent: u32,
    #[arg(long)]
    pub(crate) terminal: bool,
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// How the sellers of one act work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manner {
    /// Without a lock.
    Careless,
    /// With one lock around each sale.
    Locked,
    /// With a fenced lock, and a stock that checks the token.
    Fenced,
    /// Acquires the lock, is frozen past its lease, and writes anyway.
    Late,
}

#[derive(Debug, Args)]
pub(crate) struct SellerArgs {
    #[arg(long)]
    pub(crate) manner: Manner,
    #[arg(long)]
    pub(crate) file: PathBuf,
    #[arg(long)]
    pub(crate) workers: u32,
    #[arg(long)]
    pub(crate) lock: String,
}

#[derive(Debug, Args)]
pub(crate) struct PagesArgs {
    pub(crate) folder: PathBuf,
}

/// A duration such as `10s`, `1m 30s` or `500ms`. A bare number is seconds, as in `flock`, `timeout` and `curl`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_| "a time is neither negative nor infinite".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_number_without_a_unit_is_seconds() {
        for (text, time) in [
            ("10", Duration::from_secs(10)),
            ("0.5", Duration::from_millis(500)),
            ("0", Duration::ZERO),
            ("1m 30s", Duration::from_secs(90)),
            ("500ms", Duration::from_millis(500)),
        ] {
            assert_eq!(super::duration(text), Ok(time), "{text}");
        }
        for wrong in ["-1", "inf", "nan", "soon", "", "10 parsecs"] {
            assert!(super::duration(wrong).is_err(), "{wrong}");
        }
    }
}
