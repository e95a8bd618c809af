
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'tidelock' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'tidelock'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'tidelock' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command while holding a lock: `flock` across machines')
            [CompletionResult]::new('try', 'try', [CompletionResultType]::ParameterValue, 'The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached')
            [CompletionResult]::new('once', 'once', [CompletionResultType]::ParameterValue, 'Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once')
            [CompletionResult]::new('history', 'history', [CompletionResultType]::ParameterValue, 'Show what the last slots of `once` did: when, where, and how they ended')
            [CompletionResult]::new('lead', 'lead', [CompletionResultType]::ParameterValue, 'Run a command on one machine at a time: on the elected leader, and on a successor when it dies')
            [CompletionResult]::new('leader', 'leader', [CompletionResultType]::ParameterValue, 'Show who leads an election, in which term and since when')
            [CompletionResult]::new('hold', 'hold', [CompletionResultType]::ParameterValue, 'Hold a lock until standard input is closed: for scripts, and for programs in other languages')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock')
            [CompletionResult]::new('ls', 'ls', [CompletionResultType]::ParameterValue, 'List the names of held locks')
            [CompletionResult]::new('watch', 'watch', [CompletionResultType]::ParameterValue, 'Print every change of a lock until interrupted')
            [CompletionResult]::new('top', 'top', [CompletionResultType]::ParameterValue, 'Show which locks are held and awaited, by whom and for how long, and which processes use the store')
            [CompletionResult]::new('web', 'web', [CompletionResultType]::ParameterValue, 'Show the same as `top` on a page for a browser')
            [CompletionResult]::new('unlock', 'unlock', [CompletionResultType]::ParameterValue, 'Release a lock that another process holds, and wake its waiters')
            [CompletionResult]::new('token', 'token', [CompletionResultType]::ParameterValue, 'Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Check whether this store can keep its guarantees; exit code 1 if locks are in danger')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Show the settings in force, and the flag, variable or file that each comes from')
            [CompletionResult]::new('demo', 'demo', [CompletionResultType]::ParameterValue, 'Sell one stock from several processes: without a lock, with a lock, and with fencing')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print a shell''s completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print a man page: tidelock man run | man -l -')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'tidelock;run' {
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Give up after this time, connecting included; default: wait without a limit')
            [CompletionResult]::new('--also', '--also', [CompletionResultType]::ParameterName, 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names')
            [CompletionResult]::new('--permits', '--permits', [CompletionResultType]::ParameterName, 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error')
            [CompletionResult]::new('--max-hold', '--max-hold', [CompletionResultType]::ParameterName, 'Terminate the command after it has held the lock for this time')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock was not acquired, instead of 75; as `flock -E`')
            [CompletionResult]::new('--conflict-exit-code', '--conflict-exit-code', [CompletionResultType]::ParameterName, 'Exit code when the lock was not acquired, instead of 75; as `flock -E`')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'What to do when the lock is lost while the command runs')
            [CompletionResult]::new('--grace', '--grace', [CompletionResultType]::ParameterName, 'Time between TERM and KILL; shorter if the lease ends earlier')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--read', '--read', [CompletionResultType]::ParameterName, 'Hold the lock for reading, together with other readers; a store without read-write locks is an error')
            [CompletionResult]::new('--write', '--write', [CompletionResultType]::ParameterName, 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error')
            [CompletionResult]::new('--fair', '--fair', [CompletionResultType]::ParameterName, 'Wait in order of arrival; a store without fair locks is an error')
            [CompletionResult]::new('--fenced', '--fenced', [CompletionResultType]::ParameterName, 'Acquire a fenced lock (Redisson''s RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;try' {
            [CompletionResult]::new('--also', '--also', [CompletionResultType]::ParameterName, 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names')
            [CompletionResult]::new('--permits', '--permits', [CompletionResultType]::ParameterName, 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error')
            [CompletionResult]::new('--max-hold', '--max-hold', [CompletionResultType]::ParameterName, 'Terminate the command after it has held the lock for this time')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock was not acquired, instead of 75; as `flock -E`')
            [CompletionResult]::new('--conflict-exit-code', '--conflict-exit-code', [CompletionResultType]::ParameterName, 'Exit code when the lock was not acquired, instead of 75; as `flock -E`')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'What to do when the lock is lost while the command runs')
            [CompletionResult]::new('--grace', '--grace', [CompletionResultType]::ParameterName, 'Time between TERM and KILL; shorter if the lease ends earlier')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--read', '--read', [CompletionResultType]::ParameterName, 'Hold the lock for reading, together with other readers; a store without read-write locks is an error')
            [CompletionResult]::new('--write', '--write', [CompletionResultType]::ParameterName, 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error')
            [CompletionResult]::new('--fair', '--fair', [CompletionResultType]::ParameterName, 'Wait in order of arrival; a store without fair locks is an error')
            [CompletionResult]::new('--fenced', '--fenced', [CompletionResultType]::ParameterName, 'Acquire a fenced lock (Redisson''s RFencedLock): TIDELOCK_TOKEN is always set; a store without tokens is an error')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;once' {
            [CompletionResult]::new('--every', '--every', [CompletionResultType]::ParameterName, 'One run in each period of this length, by the store''s clock')
            [CompletionResult]::new('--cron', '--cron', [CompletionResultType]::ParameterName, 'One run for each time of this crontab line, by the store''s clock')
            [CompletionResult]::new('--slot', '--slot', [CompletionResultType]::ParameterName, 'One run for this text, for as long as --keep, 7 days by default: a file, a date, a version')
            [CompletionResult]::new('--tz', '--tz', [CompletionResultType]::ParameterName, 'Time zone of --cron, such as Europe/Berlin. The same on all machines; otherwise they disagree about the slots')
            [CompletionResult]::new('--max-run', '--max-run', [CompletionResultType]::ParameterName, 'Terminate the command after this time, and count it as failed')
            [CompletionResult]::new('--retries', '--retries', [CompletionResultType]::ParameterName, 'How many times a later call may run the command again in the same slot, after it has failed or its machine died')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Wait this long for a run on another machine to end, and take over if that machine dies; default: do not wait')
            [CompletionResult]::new('--keep', '--keep', [CompletionResultType]::ParameterName, 'Remember each slot for this time after its run; then the same --slot is run again. It must be longer than --every and than a run')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when this call ran nothing, instead of 0, 1 or 75')
            [CompletionResult]::new('--conflict-exit-code', '--conflict-exit-code', [CompletionResultType]::ParameterName, 'Exit code when this call ran nothing, instead of 0, 1 or 75')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'What to do when the lock is lost while the command runs')
            [CompletionResult]::new('--grace', '--grace', [CompletionResultType]::ParameterName, 'Time between TERM and KILL; shorter if the lease ends earlier')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;history' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Maximum number of slots to print')
            [CompletionResult]::new('--most', '--most', [CompletionResultType]::ParameterName, 'Maximum number of slots to print')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per slot')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;lead' {
            [CompletionResult]::new('--identity', '--identity', [CompletionResultType]::ParameterName, 'How others see this candidate; default: host and process id')
            [CompletionResult]::new('--priority', '--priority', [CompletionResultType]::ParameterName, 'Candidates with a higher priority follow a leader first; it deposes nobody')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'What to do when the lock is lost while the command runs')
            [CompletionResult]::new('--grace', '--grace', [CompletionResultType]::ParameterName, 'Time between TERM and KILL; shorter if the lease ends earlier')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--in-order', '--in-order', [CompletionResultType]::ParameterName, 'Lead in the order in which the candidates began; all candidates must choose the same')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;leader' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Print every change until interrupted')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;hold' {
            [CompletionResult]::new('--also', '--also', [CompletionResultType]::ParameterName, 'Hold this lock too; may be repeated. The locks are acquired together: nobody waits while holding a part of them, so two commands cannot block each other, whatever the order of the names')
            [CompletionResult]::new('--permits', '--permits', [CompletionResultType]::ParameterName, 'Hold permits of a semaphore, all or none: `2/5` holds two of the five that there are; a store without semaphores is an error')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Give up after this time, connecting included; default: wait as long as somebody holds the lock')
            [CompletionResult]::new('--max-hold', '--max-hold', [CompletionResultType]::ParameterName, 'Release the lock after it was held for this time, with exit code 76')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock was not acquired, instead of 75; as `flock -E`')
            [CompletionResult]::new('--conflict-exit-code', '--conflict-exit-code', [CompletionResultType]::ParameterName, 'Exit code when the lock was not acquired, instead of 75; as `flock -E`')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--read', '--read', [CompletionResultType]::ParameterName, 'Hold the lock for reading, together with other readers; a store without read-write locks is an error')
            [CompletionResult]::new('--write', '--write', [CompletionResultType]::ParameterName, 'Hold the lock for writing: no reader and no other writer holds it; a store without read-write locks is an error')
            [CompletionResult]::new('--fair', '--fair', [CompletionResultType]::ParameterName, 'Wait in order of arrival; a store without fair locks is an error')
            [CompletionResult]::new('--fenced', '--fenced', [CompletionResultType]::ParameterName, 'Take a fenced lock (Redisson''s RFencedLock); a store without tokens is an error')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;show' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per lock')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;ls' {
            [CompletionResult]::new('--most', '--most', [CompletionResultType]::ParameterName, 'Maximum number of names to print')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--modes', '--modes', [CompletionResultType]::ParameterName, 'Also print the mode (exclusive, read or write) and the number of holders; costs one request per lock')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per lock')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;watch' {
            [CompletionResult]::new('--every', '--every', [CompletionResultType]::ParameterName, 'Poll interval')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per change')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;top' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Print this many times, then exit; default: a screen if a person looks at a terminal, else until interrupted')
            [CompletionResult]::new('--times', '--times', [CompletionResultType]::ParameterName, 'Print this many times, then exit; default: a screen if a person looks at a terminal, else until interrupted')
            [CompletionResult]::new('--every', '--every', [CompletionResultType]::ParameterName, 'Time between two prints, or between two pictures of the screen; longer if `top` would cost the store more than one percent of a core')
            [CompletionResult]::new('--record', '--record', [CompletionResultType]::ParameterName, 'Also add each picture to this file, as the line that --json prints')
            [CompletionResult]::new('--replay', '--replay', [CompletionResultType]::ParameterName, 'Show the pictures of such a file, and ask no store')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--once', '--once', [CompletionResultType]::ParameterName, 'Print once, and ask no process to tell more often')
            [CompletionResult]::new('--scan', '--scan', [CompletionResultType]::ParameterName, 'Also list locks that no process tells of and nobody waits for, such as those of Java services. On Redis this looks at every key of the server, a few with each look; with --once, at all of them at once')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per print')
            [CompletionResult]::new('--write', '--write', [CompletionResultType]::ParameterName, 'Let the key u unlock a lock on the screen: its name has to be typed, and it has to be held as shown still')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;web' {
            [CompletionResult]::new('--listen', '--listen', [CompletionResultType]::ParameterName, 'Address and port of the page; with port 0, the system chooses one. Any other address than that of this machine''s loopback lets others read the page')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Also answer requests for this host name, besides localhost and addresses; may be repeated')
            [CompletionResult]::new('--every', '--every', [CompletionResultType]::ParameterName, 'Time between two looks at the store while somebody sees the page. If the store is slow, it is longer')
            [CompletionResult]::new('--write-token-file', '--write-token-file', [CompletionResultType]::ParameterName, 'Take the token from the first line of this file, at least 16 characters, and print none')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--scan', '--scan', [CompletionResultType]::ParameterName, 'Also list locks that no process tells of and nobody waits for, such as those of Java services. On Redis this looks at every key of the server, a few with each look')
            [CompletionResult]::new('--write', '--write', [CompletionResultType]::ParameterName, 'Let the page of a lock unlock it, for who knows the token that this command prints on stderr')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;unlock' {
            [CompletionResult]::new('--owner', '--owner', [CompletionResultType]::ParameterName, 'Unlock only if this owner holds the lock, as `show` prints it; may be repeated, for readers. Exit code 1 if another one holds it')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'Unlock only if this is still the newest fencing token')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--force', '--force', [CompletionResultType]::ParameterName, 'Confirm the release. The current holder may believe for up to a third of its lease that it still has the lock')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;token' {
            [CompletionResult]::new('--at-least', '--at-least', [CompletionResultType]::ParameterName, 'Give the next holders tokens of at least this number; never lowers them, and may be repeated')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print a JSON object: newest or next')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;doctor' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per finding')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;config' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;demo' {
            [CompletionResult]::new('--processes', '--processes', [CompletionResultType]::ParameterName, 'Number of selling processes')
            [CompletionResult]::new('--workers', '--workers', [CompletionResultType]::ParameterName, 'Number of sellers in each process')
            [CompletionResult]::new('--stock', '--stock', [CompletionResultType]::ParameterName, 'Number of pieces to sell')
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'One JSON object per act on stdout')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;completions' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;man' {
            [CompletionResult]::new('--store', '--store', [CompletionResultType]::ParameterName, 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'A file with settings, instead of ~/.config/tidelock.toml and /etc/tidelock.toml')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'Length of the lease, which is renewed every third of it while the lock is held; default: 30s')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Prefix of every lock name [env: TIDELOCK_PREFIX]')
            [CompletionResult]::new('--user', '--user', [CompletionResultType]::ParameterName, 'User name for the store; the password comes from TIDELOCK_PASSWORD or --password-file')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'A file that contains the password; read again at every connect, but a pipe only once')
            [CompletionResult]::new('--tls-ca', '--tls-ca', [CompletionResultType]::ParameterName, 'Trust the certificate authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]')
            [CompletionResult]::new('--tls-cert', '--tls-cert', [CompletionResultType]::ParameterName, 'Present this certificate to the store [env: TIDELOCK_TLS_CERT]')
            [CompletionResult]::new('--tls-key', '--tls-key', [CompletionResultType]::ParameterName, 'Private key of the certificate [env: TIDELOCK_TLS_KEY]')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print on stderr which store is used, which users it covers, and what happens; twice for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            break
        }
        'tidelock;help' {
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command while holding a lock: `flock` across machines')
            [CompletionResult]::new('try', 'try', [CompletionResultType]::ParameterValue, 'The same as `run`, without waiting: exit code 75 if the lock is held, 69 if the store cannot be reached')
            [CompletionResult]::new('once', 'once', [CompletionResultType]::ParameterValue, 'Run a command once per slot, on whichever machine comes first: the same crontab line on five machines runs once')
            [CompletionResult]::new('history', 'history', [CompletionResultType]::ParameterValue, 'Show what the last slots of `once` did: when, where, and how they ended')
            [CompletionResult]::new('lead', 'lead', [CompletionResultType]::ParameterValue, 'Run a command on one machine at a time: on the elected leader, and on a successor when it dies')
            [CompletionResult]::new('leader', 'leader', [CompletionResultType]::ParameterValue, 'Show who leads an election, in which term and since when')
            [CompletionResult]::new('hold', 'hold', [CompletionResultType]::ParameterValue, 'Hold a lock until standard input is closed: for scripts, and for programs in other languages')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Show the holders of locks, when they connected, the time left, the number of waiters, and the queue of a fair lock')
            [CompletionResult]::new('ls', 'ls', [CompletionResultType]::ParameterValue, 'List the names of held locks')
            [CompletionResult]::new('watch', 'watch', [CompletionResultType]::ParameterValue, 'Print every change of a lock until interrupted')
            [CompletionResult]::new('top', 'top', [CompletionResultType]::ParameterValue, 'Show which locks are held and awaited, by whom and for how long, and which processes use the store')
            [CompletionResult]::new('web', 'web', [CompletionResultType]::ParameterValue, 'Show the same as `top` on a page for a browser')
            [CompletionResult]::new('unlock', 'unlock', [CompletionResultType]::ParameterValue, 'Release a lock that another process holds, and wake its waiters')
            [CompletionResult]::new('token', 'token', [CompletionResultType]::ParameterValue, 'Show the newest fencing token of a lock, or raise the next ones: after a flush, or a move to another store')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Check whether this store can keep its guarantees; exit code 1 if locks are in danger')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Show the settings in force, and the flag, variable or file that each comes from')
            [CompletionResult]::new('demo', 'demo', [CompletionResultType]::ParameterValue, 'Sell one stock from several processes: without a lock, with a lock, and with fencing')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print a shell''s completions: tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print a man page: tidelock man run | man -l -')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'tidelock;help;run' {
            break
        }
        'tidelock;help;try' {
            break
        }
        'tidelock;help;once' {
            break
        }
        'tidelock;help;history' {
            break
        }
        'tidelock;help;lead' {
            break
        }
        'tidelock;help;leader' {
            break
        }
        'tidelock;help;hold' {
            break
        }
        'tidelock;help;show' {
            break
        }
        'tidelock;help;ls' {
            break
        }
        'tidelock;help;watch' {
            break
        }
        'tidelock;help;top' {
            break
        }
        'tidelock;help;web' {
            break
        }
        'tidelock;help;unlock' {
            break
        }
        'tidelock;help;token' {
            break
        }
        'tidelock;help;doctor' {
            break
        }
        'tidelock;help;config' {
            break
        }
        'tidelock;help;demo' {
            break
        }
        'tidelock;help;completions' {
            break
        }
        'tidelock;help;man' {
            break
        }
        'tidelock;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
