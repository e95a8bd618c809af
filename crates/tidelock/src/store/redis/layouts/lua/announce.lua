-- Stores a client's details with a time to live. One script does both: a client that loses its connection between two
-- commands would leave a key that never expires.
-- KEYS: the client's details
-- ARGV: time to live in milliseconds, then fields and values
redis.call('hset', KEYS[1], unpack(ARGV, 2))
redis.call('pexpire', KEYS[1], ARGV[1])
return 1
