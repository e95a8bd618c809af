
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
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand run 'Run a command while holding a lock: the `flock` of many machines'
            cand try 'The same as `run`, without waiting: exit code 75 if somebody else holds the lock, 69 if the store cannot be reached now'
            cand show 'Show who holds locks, since when, for how long, and who waits'
            cand ls 'List the names of locks that are held'
            cand watch 'Print every change of a lock until interrupted'
            cand unlock 'Break a lock that somebody else holds, and wake those that wait'
            cand doctor 'Examine whether this store can keep its promises; exit code 1 if locks are in danger'
            cand demo 'Sell one stock from several processes: without a lock, with it, and with fencing'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'tidelock;run'= {
            cand --wait 'Give up after this time, connecting included; without it, wait as long as somebody holds the lock'
            cand --max-hold 'End the command after this time of holding the lock'
            cand --on-lost 'What to do when the lock is lost while the command runs'
            cand --grace 'Time between TERM and KILL; shorter when the lease would end before'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --fenced 'Take a fenced lock (Redisson''s RFencedLock): TIDELOCK_TOKEN is always there, or the store is refused'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;try'= {
            cand --max-hold 'End the command after this time of holding the lock'
            cand --on-lost 'What to do when the lock is lost while the command runs'
            cand --grace 'Time between TERM and KILL; shorter when the lease would end before'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --fenced 'Take a fenced lock (Redisson''s RFencedLock): TIDELOCK_TOKEN is always there, or the store is refused'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;show'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per lock'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;ls'= {
            cand --most 'At most this many'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --modes 'Also how each is held (exclusive, read or write), and by how many; asks for each of them'
            cand --json 'One JSON object per lock'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;watch'= {
            cand --every 'How often to look'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per change'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;unlock'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --force 'Yes: whoever holds it goes on believing that it does, up to a third of its lease'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;doctor'= {
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per finding'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;demo'= {
            cand --processes 'How many selling processes'
            cand --workers 'How many sellers in each'
            cand --stock 'How many pieces there are to sell'
            cand --store 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines'
            cand --lease 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise'
            cand --prefix 'Written before every lock name [env: TIDELOCK_PREFIX]'
            cand --user 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file'
            cand --password-file 'A file whose content is the password; read anew at every connect'
            cand --tls-ca 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]'
            cand --tls-cert 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]'
            cand --tls-key 'Key of the certificate [env: TIDELOCK_TLS_KEY]'
            cand --json 'One JSON object per act on stdout'
            cand -v 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand --verbose 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
        }
        &'tidelock;help'= {
            cand run 'Run a command while holding a lock: the `flock` of many machines'
            cand try 'The same as `run`, without waiting: exit code 75 if somebody else holds the lock, 69 if the store cannot be reached now'
            cand show 'Show who holds locks, since when, for how long, and who waits'
            cand ls 'List the names of locks that are held'
            cand watch 'Print every change of a lock until interrupted'
            cand unlock 'Break a lock that somebody else holds, and wake those that wait'
            cand doctor 'Examine whether this store can keep its promises; exit code 1 if locks are in danger'
            cand demo 'Sell one stock from several processes: without a lock, with it, and with fencing'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'tidelock;help;run'= {
        }
        &'tidelock;help;try'= {
        }
        &'tidelock;help;show'= {
        }
        &'tidelock;help;ls'= {
        }
        &'tidelock;help;watch'= {
        }
        &'tidelock;help;unlock'= {
        }
        &'tidelock;help;doctor'= {
        }
        &'tidelock;help;demo'= {
        }
        &'tidelock;help;help'= {
        }
    ]
    $completions[$command]
}
