-- Tries whether a fencing counter may be moved and read, and leaves none behind.
-- KEYS: a counter that is no lock's
redis.call('del', KEYS[1]) -- first: what is not allowed fails before anything is written
redis.call('incr', KEYS[1])
redis.call('get', KEYS[1])
return redis.call('del', KEYS[1])
