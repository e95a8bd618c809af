# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_tidelock_global_optspecs
    string join \n store= lease= prefix= user= password-file= tls-ca= tls-cert= tls-key= v/verbose h/help V/version
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
complete -c tidelock -n "__fish_tidelock_needs_command" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_needs_command" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_needs_command" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_needs_command" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "run" -d 'Run a command while holding a lock: the `flock` of many machines'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "try" -d 'The same as `run`, without waiting: exit code 75 if somebody else holds the lock, 69 if the store cannot be reached now'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "show" -d 'Show who holds locks, since when, for how long, and who waits'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "ls" -d 'List the names of locks that are held'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "watch" -d 'Print every change of a lock until interrupted'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "unlock" -d 'Break a lock that somebody else holds, and wake those that wait'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "doctor" -d 'Examine whether this store can keep its promises; exit code 1 if locks are in danger'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "demo" -d 'Sell one stock from several processes: without a lock, with it, and with fencing'
complete -c tidelock -n "__fish_tidelock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l wait -d 'Give up after this time, connecting included; without it, wait as long as somebody holds the lock' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l max-hold -d 'End the command after this time of holding the lock' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l on-lost -d 'What to do when the lock is lost while the command runs' -r -f -a "kill\t'End it, before anybody else can get the lock'
warn\t'Say so and let it go on'"
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l grace -d 'Time between TERM and KILL; shorter when the lease would end before' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -l fenced -d 'Take a fenced lock (Redisson\'s RFencedLock): TIDELOCK_TOKEN is always there, or the store is refused'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand run" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l max-hold -d 'End the command after this time of holding the lock' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l on-lost -d 'What to do when the lock is lost while the command runs' -r -f -a "kill\t'End it, before anybody else can get the lock'
warn\t'Say so and let it go on'"
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l grace -d 'Time between TERM and KILL; shorter when the lease would end before' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -l fenced -d 'Take a fenced lock (Redisson\'s RFencedLock): TIDELOCK_TOKEN is always there, or the store is refused'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand try" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -l json -d 'One JSON object per lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand show" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l most -d 'At most this many' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l modes -d 'Also how each is held (exclusive, read or write), and by how many; asks for each of them'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -l json -d 'One JSON object per lock'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand ls" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l every -d 'How often to look' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -l json -d 'One JSON object per change'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand watch" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -l force -d 'Yes: whoever holds it goes on believing that it does, up to a third of its lease'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand unlock" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -l json -d 'One JSON object per finding'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l processes -d 'How many selling processes' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l workers -d 'How many sellers in each' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l stock -d 'How many pieces there are to sell' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l store -d 'Where the locks are: `sqlite:PATH`, `sqlite:machine`, `redis://host:port/db`, `rediss://…`, `redis+unix:///path`, `redis+sentinel://host,…/service`, `redis+cluster://host,…`, `redis://…?locks=plain`, `postgres://host/database`, `mysql://host/database`, `zookeeper://host,…/base`, `etcd://host,…/prefix`, `memcached://host:port`. Default: a file of your own, which excludes neither other users of this machine nor other machines' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l lease -d 'Length of the lease, which is renewed every third of it while the lock is held; 30s unless said otherwise' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l prefix -d 'Written before every lock name [env: TIDELOCK_PREFIX]' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l user -d 'User at the store; the password comes from TIDELOCK_PASSWORD or --password-file' -r
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l password-file -d 'A file whose content is the password; read anew at every connect' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l tls-ca -d 'Trust the authorities in this PEM file instead of the public ones [env: TIDELOCK_TLS_CA]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l tls-cert -d 'Show this certificate to the store [env: TIDELOCK_TLS_CERT]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l tls-key -d 'Key of the certificate [env: TIDELOCK_TLS_KEY]' -r -F
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -l json -d 'One JSON object per act on stdout'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -s v -l verbose -d 'Say on stderr which store is used, whom it covers, and what happens; twice for more'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tidelock -n "__fish_tidelock_using_subcommand demo" -s V -l version -d 'Print version'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "run" -d 'Run a command while holding a lock: the `flock` of many machines'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "try" -d 'The same as `run`, without waiting: exit code 75 if somebody else holds the lock, 69 if the store cannot be reached now'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "show" -d 'Show who holds locks, since when, for how long, and who waits'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "ls" -d 'List the names of locks that are held'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "watch" -d 'Print every change of a lock until interrupted'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "unlock" -d 'Break a lock that somebody else holds, and wake those that wait'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "doctor" -d 'Examine whether this store can keep its promises; exit code 1 if locks are in danger'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "demo" -d 'Sell one stock from several processes: without a lock, with it, and with fencing'
complete -c tidelock -n "__fish_tidelock_using_subcommand help; and not __fish_seen_subcommand_from run try show ls watch unlock doctor demo help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
