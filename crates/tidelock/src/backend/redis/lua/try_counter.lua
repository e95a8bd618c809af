-- Tries whether a fencing counter may be moved and read, and leaves none behind.
-- KEYS: a counter that is no lock's
-- Answers 1: it may. 2: it may not be moved by more than one.
redis.call('del', KEYS[1]) -- first: what is not allowed fails before anything is written
redis.call('incr', KEYS[1])
redis.call('get', KEYS[1])
local several = redis.pcall('incrby', KEYS[1], 2)
redis.call('del', KEYS[1])
return type(several) == 'number' and 1 or 2
