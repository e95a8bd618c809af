-- Leaves a client's details for a while. In one step: a client that is cut off between the two would leave a key that
-- never ends.
-- KEYS: the client's details
-- ARGV: milliseconds they stay, then fields and values
redis.call('hset', KEYS[1], unpack(ARGV, 2))
redis.call('pexpire', KEYS[1], ARGV[1])
return 1
