-- Changes the number of permits of a semaphore, those that are out included. Takes none from its holder.
-- KEYS: semaphore, permits that are out
-- ARGV: 'new', 'set' or 'add'; the number; how to publish
-- Returns {1}: changed. {0}: not. {7, what it is}: the key is no semaphore.
local free, other = number_at(KEYS[1])
if other then
  return other
end
local more = tonumber(ARGV[2])
if ARGV[1] == 'new' and free then
  return {0}
end
if ARGV[1] ~= 'add' then
  -- Permits may be out although the key is missing: it was deleted. Redisson would not count them, and they would be too
  -- many.
  more = more - (free or 0) - redis.call('zcard', KEYS[2])
end
if free and more == 0 then
  return {0}
end
-- 0 - more: a script writes the negative of 0 as -0, which is no number to Redis.
redis.call('decrby', KEYS[1], 0 - more)
if more > 0 then
  tell_permits(KEYS[1], ARGV[3])
end
return {1}
