# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_tidelock_global_optspecs
    string join \n store= config= lease= prefix= user= password-file= tls-ca= tls-cert= tls-key= v/verbose h/help V/version
end

function __fish_tidelock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_tidelock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_tidelock_using_subcommand
    set -l cmd (__fish_tidelock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c tidelock -n "__fish_tidelock_needs_command" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_needs_command" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "run" -d 'Run a command while holding a lock: `flock` across machines'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "try" -d 'The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "once" -d 'Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "history" -d 'Show what the last slots of `once` did: when, where, and how they ended'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "lead" -d 'Run a command on one machine at a time: on the elected leader, and on a successor when it dies'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "leader" -d 'Show who leads an election, in which term and since when'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "hold" -d 'Hold a lock until standard input is closed: for scripts, and for programs in other languages'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "show" -d 'Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "ls" -d 'List the names of held locks'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "watch" -d 'Print every change of a lock until interrupted'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "top" -d 'Show which locks are held and awaited, by whom and for how long, and which processes use the store'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "web" -d 'Show the same as `top` on a page for a browser'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "unlock" -d 'Release a lock that another process holds, and wake its waiters'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "token" -d 'Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "doctor" -d 'Check whether this store can keep its guarantees; exit code 1 if locks are in danger'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "config" -d 'Show the settings in force, and the flag, variable or file that each comes from'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "demo" -d 'Sell one stock from several processes: without a lock, with a lock, and with fencing'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "completions" -d 'Print a shell\'s completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "man" -d 'Print a man page: tidelock man run | man -l -'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l wait -d 'Give up after this time, connecting included; default: wait without a limit' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l also -d 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l permits -d 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l max-hold -d 'Terminate the command after it has held the lock for this time' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s E -l conflict-exit-code -d 'Exit code when the lock was not acquired, instead of 75; as `flock -E`' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l on-lost -d 'What to do when the lock is lost while the command runs' -r -f -a "kill\t'Terminate the command before anybody else can get the lock'
warn\t'Print a message and let the command run on'"
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l grace -d 'Time between TERM and KILL; shorter if the lease ends earlier' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l read -d 'Hold the lock for reading, together with other readers; a store without read-write locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l write -d 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l fair -d 'Wait in order of arrival; a store without fair locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l fenced -d 'Acquire a fenced lock (Redisson\'s RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l also -d 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l permits -d 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l max-hold -d 'Terminate the command after it has held the lock for this time' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s E -l conflict-exit-code -d 'Exit code when the lock was not acquired, instead of 75; as `flock -E`' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l on-lost -d 'What to do when the lock is lost while the command runs' -r -f -a "kill\t'Terminate the command before anybody else can get the lock'
warn\t'Print a message and let the command run on'"
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l grace -d 'Time between TERM and KILL; shorter if the lease ends earlier' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l read -d 'Hold the lock for reading, together with other readers; a store without read-write locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l write -d 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l fair -d 'Wait in order of arrival; a store without fair locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l fenced -d 'Acquire a fenced lock (Redisson\'s RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l every -d 'One run in each period of this length, by the store\'s clock' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l cron -d 'One run for each time of this crontab line, by the store\'s clock' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l slot -d 'One run for this text, for as long as --keep, 7 days by default: a file, a date, a version' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l tz -d 'Time zone of --cron, such as Europe/Berlin. The same on all machines; otherwise they disagree about the slots' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l max-run -d 'Terminate the command after this time, and count it as failed' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l retries -d 'How many times a later call may run the command again in the same slot, after it has failed or its machine died' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l wait -d 'Wait this long for a run on another machine to end, and take over if that machine dies; default: do not wait' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l keep -d 'Remember each slot for this time after its run; then the same --slot is run again. It must be longer than --every and than a run' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -s E -l conflict-exit-code -d 'Exit code when this call ran nothing, instead of 0, 1 or 75' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l on-lost -d 'What to do when the lock is lost while the command runs' -r -f -a "kill\t'Terminate the command before anybody else can get the lock'
warn\t'Print a message and let the command run on'"
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l grace -d 'Time between TERM and KILL; shorter if the lease ends earlier' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand once" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -s n -l most -d 'Maximum number of slots to print' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -l json -d 'One JSON object per slot'
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand history" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l identity -d 'How others see this candidate; default: host and process id' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l priority -d 'Candidates with a higher priority follow a leader first; it deposes nobody' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l on-lost -d 'What to do when the lock is lost while the command runs' -r -f -a "kill\t'Terminate the command before anybody else can get the lock'
warn\t'Print a message and let the command run on'"
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l grace -d 'Time between TERM and KILL; shorter if the lease ends earlier' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -l in-order -d 'Lead in the order in which the candidates began; all candidates must choose the same'
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand lead" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l watch -d 'Print every change until interrupted'
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -l json -d 'One JSON object per line'
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand leader" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l also -d 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l permits -d 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l wait -d 'Give up after this time, connecting included; default: wait as long as somebody holds the lock' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l max-hold -d 'Release the lock after it was held for this time, with exit code 76' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -s E -l conflict-exit-code -d 'Exit code when the lock was not acquired, instead of 75; as `flock -E`' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l read -d 'Hold the lock for reading, together with other readers; a store without read-write locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l write -d 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l fair -d 'Wait in order of arrival; a store without fair locks is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -l fenced -d 'Take a fenced lock (Redisson\'s RFencedLock); a store without tokens is an error'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand hold" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l json -d 'One JSON object per lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l most -d 'Maximum number of names to print' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l modes -d 'Also print the mode (exclusive, read or write) and the number of holders; costs one request per lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l json -d 'One JSON object per lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l every -d 'Poll interval' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l json -d 'One JSON object per change'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -s n -l times -d 'Print this many times, then exit; default: a screen if a person looks at a terminal, else until interrupted' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l every -d 'Time between two prints, or between two pictures of the screen; longer if `top` would cost the store more than one percent of a core' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l record -d 'Also add each picture to this file, as the line that --json prints' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l replay -d 'Show the pictures of such a file, and ask no store' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l once -d 'Print once, and ask no process to tell more often'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l scan -d 'Also list locks that no process tells of and nobody waits for, such as those of Java services. On Redis this looks at every key of the server, a few with each look; with --once, at all of them at once'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l json -d 'One JSON object per print'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -l write -d 'Let the key u unlock a lock on the screen: its name has to be typed, and it has to be held as shown still'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand top" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l listen -d 'Address and port of the page; with port 0, the system chooses one. Any other address than that of this machine\'s loopback lets others read the page' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l host -d 'Also answer requests for this host name, besides localhost and addresses; may be repeated' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l every -d 'Time between two looks at the store while somebody sees the page. If the store is slow, it is longer' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l write-token-file -d 'Take the token from the first line of this file, at least 16 characters, and print none' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l scan -d 'Also list locks that no process tells of and nobody waits for, such as those of Java services. On Redis this looks at every key of the server, a few with each look'
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -l write -d 'Let the page of a lock unlock it, for who knows the token that this command prints on stderr'
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand web" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l owner -d 'Unlock only if this owner holds the lock, as `show` prints it; may be repeated, for readers. Exit code 1 if another one holds it' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l token -d 'Unlock only if this is still the newest fencing token' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l force -d 'Confirm the release. The current holder may believe for up to a third of its lease that it still has the lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l at-least -d 'Give the next holders tokens of at least this number; never lowers them, and may be repeated' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -l json -d 'Print a JSON object: newest or next'
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand token" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l json -d 'One JSON object per finding'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -l json -d 'One JSON object'
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand config" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l processes -d 'Number of selling processes' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l workers -d 'Number of sellers in each process' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l stock -d 'Number of pieces to sell' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l json -d 'One JSON object per act on stdout'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand completions" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l config -d 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l prefix -d 'Prefix of every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l user -d 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l password-file -d 'A file that contains the password; read again at every connect, but a pipe only once' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l tls-ca -d 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l tls-cert -d 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -l tls-key -d 'Private key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -s v -l verbose -d 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand man" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "run" -d 'Run a command while holding a lock: `flock` across machines'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "try" -d 'The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "once" -d 'Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "history" -d 'Show what the last slots of `once` did: when, where, and how they ended'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "lead" -d 'Run a command on one machine at a time: on the elected leader, and on a successor when it dies'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "leader" -d 'Show who leads an election, in which term and since when'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "hold" -d 'Hold a lock until standard input is closed: for scripts, and for programs in other languages'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "show" -d 'Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "ls" -d 'List the names of held locks'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "watch" -d 'Print every change of a lock until interrupted'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "top" -d 'Show which locks are held and awaited, by whom and for how long, and which processes use the store'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "web" -d 'Show the same as `top` on a page for a browser'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "unlock" -d 'Release a lock that another process holds, and wake its waiters'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "token" -d 'Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "doctor" -d 'Check whether this store can keep its guarantees; exit code 1 if locks are in danger'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "config" -d 'Show the settings in force, and the flag, variable or file that each comes from'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "demo" -d 'Sell one stock from several processes: without a lock, with a lock, and with fencing'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "completions" -d 'Print a shell\'s completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "man" -d 'Print a man page: tidelock man run | man -l -'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try once history lead leader hold show ls watch top web unlock token doctor config demo completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
