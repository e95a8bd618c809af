-- ARGV: slot, new mark, how long it is kept in milliseconds, old mark (missing: the slot has none).
-- Returns 1, or 0 if the slot has another mark. Then nothing was changed.
local seen = mark(ARGV[1])
-- An earlier request, whose reply was lost, may have written the new mark. We write it again: WAIT counts the replicas
-- only for what its own connection has written.
if seen ~= (ARGV[4] or false) and seen ~= ARGV[2] then
  return 0
end
if ARGV[2] == '' then -- the mark ends; the last one takes the keys with it
  redis.call('zrem', KEYS[2], ARGV[1])
  redis.call('hdel', KEYS[1], ARGV[1])
  return 1
end
local left = string.format('%.0f', math.max(redis.call('pttl', KEYS[1]), tonumber(ARGV[3])))
if seen then
  -- A server whose memory is full allows PEXPIRE, and then lets the script go on. It would refuse one that begins with
  -- HSET: a job that has ended could not say so, and would be run again.
  redis.call('pexpire', KEYS[1], left)
end
local expired = redis.call('zrange', KEYS[2], '-inf', string.format('%.0f', now), 'byscore', 'limit', 0, 100)
for _, slot in ipairs(expired) do
  redis.call('zrem', KEYS[2], slot)
  redis.call('hdel', KEYS[1], slot)
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('zadd', KEYS[2], string.format('%.0f', now + ARGV[3]), ARGV[1])
for _, key in ipairs(KEYS) do
  redis.call('pexpire', key, left) -- a job that is never called again leaves nothing
end
return 1
