-- Doctor check: whether the user may increment and read a fencing counter. Deletes the counter afterwards.
-- KEYS: a counter that belongs to no lock
-- Returns 1: allowed. 2: allowed, but only in steps of one.
redis.call('del', KEYS[1]) -- first: a missing right fails before anything is written
redis.call('incr', KEYS[1])
redis.call('get', KEYS[1])
local several = redis.pcall('incrby', KEYS[1], 2)
redis.call('del', KEYS[1])
return type(several) == 'number' and 1 or 2
