-- Reads the state of a semaphore or a latch atomically. Both are a number. Permits that are out and waiters show which of
-- them it is.
-- KEYS: semaphore or latch, permits that are out
-- ARGV: channel of a semaphore, channel of a latch, subcommands of PUBSUB that count listeners: 'numsub', 'shardnumsub'
-- Returns {available or nil, total, time, ids and ends of the permits that are out, number of waiting processes or -1,
-- the same for a latch}. {7, what it is}: the key is neither.
local free, other = number_at(KEYS[1])
if other then
  return other
end
local now = permit_time()
local out = redis.pcall('zrangebyscore', KEYS[2], '(' .. now, '+inf', 'withscores', 'limit', 0, 1000)
local ended, all = redis.pcall('zcount', KEYS[2], '-inf', now), redis.pcall('zcard', KEYS[2])
if out.err then
  out, ended, all = {}, 0, 0 -- the user may not read them
end
local function waiters(channel)
  local heard = {}
  for i = 3, #ARGV do
    heard[ARGV[i]] = listeners(ARGV[i], channel)
  end
  return waiting(heard['numsub'], heard['shardnumsub'], nil) or -1
end
return {free and free + ended, free and free + all or 0, now, out, waiters(ARGV[1]), waiters(ARGV[2])}
