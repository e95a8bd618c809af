-- Changes a latch, and wakes its waiters if it is open then. The effects are those of RCountDownLatch.
-- KEYS: latch, answer to this request, permits that are out if it is a semaphore, answers to forget
-- ARGV: 'new', 'down' or 'delete'; the count of a new latch; channel; how to publish; milliseconds the answer stays
-- Returns {0, 1 if it was changed, count}. A third number: the user is not allowed to publish the message.
-- {7, what it is}: the key is no latch.
forget(4)
local known = answered(KEYS[2])
if known then
  return known
end
local count, other = latch_at(KEYS[1], KEYS[3])
if other then
  return other
end
local changed, left = count and 1 or 0, 0
if ARGV[1] == 'new' then
  changed, left = 1 - changed, count or tonumber(ARGV[2])
elseif ARGV[1] == 'down' and count then
  left = count - 1
end
left = math.max(left, 0) -- any client may have written a negative number
if changed == 1 and ARGV[1] ~= 'new' then
  -- A server whose memory is full allows DEL, and lets a script that has written go on. What follows needs no memory for long.
  redis.pcall('del', KEYS[2])
end
-- A new latch: if memory is full, the server refuses this first write, and nothing has changed.
redis.call('set', KEYS[2], changed .. ' ' .. string.format('%.0f', left), 'px', ARGV[5])
local done = 0
if changed == 1 and ARGV[1] == 'new' then
  done = redis.pcall('set', KEYS[1], ARGV[2])
elseif changed == 1 then
  done = left > 0 and redis.pcall('decr', KEYS[1]) or redis.pcall('del', KEYS[1])
end
if type(done) == 'table' and done.err then
  -- The user has no right to change it. The answer would tell a repeated request that it took effect.
  redis.call('set', KEYS[2], 'refused', 'px', 1)
  return done
end
local muted = false
if changed == 1 and ARGV[1] == 'new' then
  muted = tell_all(ARGV[3], '1', ARGV[4]) -- Redisson's waiters remember that the latch was open
elseif changed == 1 and left == 0 then
  -- Redisson publishes 1 when it deletes a latch, and its own waiters sleep on.
  muted = tell_all(ARGV[3], '0', ARGV[4])
end
if muted then
  return {0, changed, left, 1}
end
return {0, changed, left}
