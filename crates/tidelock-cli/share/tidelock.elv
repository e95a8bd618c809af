
use builtin;
use str;

set edit:completion:arg-completer[tidelock] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'tidelock'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'tidelock'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand run 'Run a command while holding a lock: `flock` across machines'
            cand try 'The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached'
            cand once 'Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once'
            cand history 'Show what the last slots of `once` did: when, where, and how they ended'
            cand lead 'Run a command on one machine at a time: on the elected leader, and on a successor when it dies'
            cand leader 'Show who leads an election, in which term and since when'
            cand hold 'Hold a lock until standard input is closed: for scripts, and for programs in other languages'
            cand show 'Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock'
            cand ls 'List the names of held locks'
            cand watch 'Print every change of a lock until interrupted'
            cand unlock 'Release a lock that another process holds, and wake its waiters'
            cand token 'Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store'
            cand doctor 'Check whether this store can keep its guarantees; exit code 1 if locks are in danger'
            cand config 'Show the settings in force, and the flag, variable or file that each comes from'
            cand demo 'Sell one stock from several processes: without a lock, with a lock, and with fencing'
            cand completions 'Print a shell''s completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock'
            cand man 'Print a man page: tidelock man run | man -l -'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'tidelock;run'= {
            cand --wait 'Give up after this time, connecting included; default: wait without a limit'
            cand --also 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names'
            cand --permits 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error'
            cand --max-hold 'Terminate the command after it has held the lock for this time'
            cand -E 'Exit code when the lock was not acquired, instead of 75; as `flock -E`'
            cand --conflict-exit-code 'Exit code when the lock was not acquired, instead of 75; as `flock -E`'
            cand --on-lost 'What to do when the lock is lost while the command runs'
            cand --grace 'Time between TERM and KILL; shorter if the lease ends earlier'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --read 'Hold the lock for reading, together with other readers; a store without read-write locks is an error'
            cand --write 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error'
            cand --fair 'Wait in order of arrival; a store without fair locks is an error'
            cand --fenced 'Acquire a fenced lock (Redisson''s RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;try'= {
            cand --also 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names'
            cand --permits 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error'
            cand --max-hold 'Terminate the command after it has held the lock for this time'
            cand -E 'Exit code when the lock was not acquired, instead of 75; as `flock -E`'
            cand --conflict-exit-code 'Exit code when the lock was not acquired, instead of 75; as `flock -E`'
            cand --on-lost 'What to do when the lock is lost while the command runs'
            cand --grace 'Time between TERM and KILL; shorter if the lease ends earlier'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --read 'Hold the lock for reading, together with other readers; a store without read-write locks is an error'
            cand --write 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error'
            cand --fair 'Wait in order of arrival; a store without fair locks is an error'
            cand --fenced 'Acquire a fenced lock (Redisson''s RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;once'= {
            cand --every 'One run in each period of this length, by the store''s clock'
            cand --cron 'One run for each time of this crontab line, by the store''s clock'
            cand --slot 'One run for this text: a file, a date, a version'
            cand --tz 'Time zone of --cron, such as Europe/Berlin. The same on all machines; otherwise they disagree about the slots'
            cand --max-run 'Terminate the command after this time, and count it as failed'
            cand --retries 'How many times a later call may run the command again in the same slot, after it has failed or its machine died'
            cand --wait 'Wait this long for a run on another machine to end, and take over if that machine dies; default: do not wait'
            cand --keep 'Remember each slot for this time; longer than a slot'
            cand -E 'Exit code when this call ran nothing, instead of 0'
            cand --conflict-exit-code 'Exit code when this call ran nothing, instead of 0'
            cand --on-lost 'What to do when the lock is lost while the command runs'
            cand --grace 'Time between TERM and KILL; shorter if the lease ends earlier'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;history'= {
            cand -n 'Maximum number of slots to print'
            cand --most 'Maximum number of slots to print'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per slot'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;lead'= {
            cand --identity 'How others see this candidate; default: host and process id'
            cand --on-lost 'What to do when the lock is lost while the command runs'
            cand --grace 'Time between TERM and KILL; shorter if the lease ends earlier'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --in-order 'Lead in the order in which the candidates began; all candidates must choose the same'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;leader'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --watch 'Print every change until interrupted'
            cand --json 'One JSON object per line'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;hold'= {
            cand --also 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names'
            cand --permits 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error'
            cand --wait 'Give up after this time, connecting included; default: wait as long as somebody holds the lock'
            cand --max-hold 'Release the lock after it was held for this time, with exit code 76'
            cand -E 'Exit code when the lock was not acquired, instead of 75; as `flock -E`'
            cand --conflict-exit-code 'Exit code when the lock was not acquired, instead of 75; as `flock -E`'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --read 'Hold the lock for reading, together with other readers; a store without read-write locks is an error'
            cand --write 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error'
            cand --fair 'Wait in order of arrival; a store without fair locks is an error'
            cand --fenced 'Take a fenced lock (Redisson''s RFencedLock); a store without tokens is an error'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;show'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per lock'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;ls'= {
            cand --most 'Maximum number of names to print'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --modes 'Also print the mode (exclusive, read or write) and the number of holders; costs one request per lock'
            cand --json 'One JSON object per lock'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;watch'= {
            cand --every 'Poll interval'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per change'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;unlock'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --force 'Confirm the release. The current holder may believe for up to a third of its lease that it still has the lock'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;token'= {
            cand --at-least 'Give the next holders tokens of at least this number; never lowers them, and may be repeated'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'Print a JSON object: newest or next'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;doctor'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per finding'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;config'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;demo'= {
            cand --processes 'Number of selling processes'
            cand --workers 'Number of sellers in each process'
            cand --stock 'Number of pieces to sell'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per act on stdout'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;completions'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;man'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --config 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s'
            cand --prefix 'Prefix of every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file that contains the password; read again at every connect'
            cand --tls-ca 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Private key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand -v 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand --verbose 'Print on stderr which store is used, which users it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;help'= {
            cand run 'Run a command while holding a lock: `flock` across machines'
            cand try 'The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached'
            cand once 'Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once'
            cand history 'Show what the last slots of `once` did: when, where, and how they ended'
            cand lead 'Run a command on one machine at a time: on the elected leader, and on a successor when it dies'
            cand leader 'Show who leads an election, in which term and since when'
            cand hold 'Hold a lock until standard input is closed: for scripts, and for programs in other languages'
            cand show 'Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock'
            cand ls 'List the names of held locks'
            cand watch 'Print every change of a lock until interrupted'
            cand unlock 'Release a lock that another process holds, and wake its waiters'
            cand token 'Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store'
            cand doctor 'Check whether this store can keep its guarantees; exit code 1 if locks are in danger'
            cand config 'Show the settings in force, and the flag, variable or file that each comes from'
            cand demo 'Sell one stock from several processes: without a lock, with a lock, and with fencing'
            cand completions 'Print a shell''s completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock'
            cand man 'Print a man page: tidelock man run | man -l -'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'tidelock;help;run'= {
        }
        &'tidelock;help;try'= {
        }
        &'tidelock;help;once'= {
        }
        &'tidelock;help;history'= {
        }
        &'tidelock;help;lead'= {
        }
        &'tidelock;help;leader'= {
        }
        &'tidelock;help;hold'= {
        }
        &'tidelock;help;show'= {
        }
        &'tidelock;help;ls'= {
        }
        &'tidelock;help;watch'= {
        }
        &'tidelock;help;unlock'= {
        }
        &'tidelock;help;token'= {
        }
        &'tidelock;help;doctor'= {
        }
        &'tidelock;help;config'= {
        }
        &'tidelock;help;demo'= {
        }
        &'tidelock;help;completions'= {
        }
        &'tidelock;help;man'= {
        }
        &'tidelock;help;help'= {
        }
    ]
    $completions[$command]
}
