-- Takes permits of a semaphore, all or none. The effects are those of RPermitExpirableSemaphore.
-- KEYS: semaphore, permits that are out, tombstone of this owner
-- ARGV: lease in milliseconds, what the ids begin with and their number, how to publish
-- Returns one of:
--   {1, 0, 0}: this owner holds the permits.
--   {0, milliseconds until the first lease of another permit ends, or -1}: there are too few.
--   {2}: this owner was withdrawn. {7, what it is}: the key is no semaphore.
if redis.call('exists', KEYS[3]) == 1 then
  return {2}
end
local free, other = number_at(KEYS[1])
if other then
  return other
end
local now, ids = permit_time(), permit_ids(ARGV[2])
local ends = now + ARGV[1] + 1 -- `now` is rounded down; without the 1 a lease could end before its holder expects it
local back = take_back_ended(KEYS[1], KEYS[2], now)
local held, any = held_permits(KEYS[2], ids, now)
if free and held == #ids then
  -- A repeated request whose reply was lost. It must neither count twice nor shorten the lease. It writes in any case,
  -- because a later `WAIT` covers only writes of its own connection.
  for _, id in ipairs(ids) do
    redis.call('zadd', KEYS[2], math.max(ends, redis.call('zscore', KEYS[2], id) + 1), id)
  end
  return {1, 0, 0}
end
if any then
  -- Another client has given back a part of them, or their lease has ended behind more than we have just taken back.
  -- ZADD adds no id that is out already, so DECRBY would count it twice.
  back = back + take_back(KEYS[1], KEYS[2], ids)
end
free = number_at(KEYS[1])
if free and free >= #ids then
  redis.call('decrby', KEYS[1], #ids)
  local scores = {}
  for n, id in ipairs(ids) do
    scores[2 * n - 1], scores[2 * n] = ends, id
  end
  local out = redis.pcall('zadd', KEYS[2], unpack(scores))
  if type(out) == 'table' then
    redis.call('decrby', KEYS[1], -#ids) -- otherwise nobody could ever give them back
    return out
  end
  local left = redis.call('pttl', KEYS[1])
  if left > 0 then
    redis.call('pexpire', KEYS[2], left) -- a semaphore that expires takes its permits along
  end
  if back > 0 then
    tell_permits(KEYS[1], ARGV[3])
  end
  return {1, 0, 0}
end
if back > 0 then
  tell_permits(KEYS[1], ARGV[3]) -- there are too few for this owner, but perhaps not for others
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')[2]
-- Redisson writes 922337203685477 for a permit that never expires.
if not first or tonumber(first) >= 922337203685477 then
  return {0, -1}
end
return {0, math.max(first - now, 0)}
