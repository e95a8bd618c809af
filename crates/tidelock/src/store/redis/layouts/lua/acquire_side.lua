-- Acquires a side of a read-write lock for one owner. The effects on the lock are those of RReadWriteLock. Its clients
-- have no queue, so among them readers can keep a writer out; tidelock's waiters have one, and keep its order.
-- KEYS: lock, tombstone of this owner, queue of the waiters, their deadlines, key of the read hold (the lock again: a
-- write hold), fencing counter (only for fenced locks)
-- ARGV: lease in milliseconds, owner, milliseconds that a waiter stays in the queue without an attempt, or '' if the
-- caller does not wait, how to publish, owner of the write hold that this reader joins (a downgrade) or ''
-- Returns one of:
--   {1, token or 0, 0}: this owner holds the lock.
--   {0, milliseconds left or -1 without a limit}: it does not. A third element '' means that the holder's release may
--       not be published.
--   {2}: this owner was withdrawn. {3, mode}: the key is not a lock. {5}: the key is a lock of another kind.
--   {4, value}: the counter has no next token. {6}: a downgrade, and its writer does not hold the lock.
if redis.call('exists', KEYS[2]) == 1 then
  return {2}
end
local lease, reads = tonumber(ARGV[1]), KEYS[5] ~= KEYS[1]
local field = reads and ARGV[2] or ARGV[2] .. ':write'
local own = redis.pcall('hget', KEYS[1], field)
if type(own) == 'table' then
  return own -- the key is not a hash: return the error
end
local left = redis.call('pttl', KEYS[1])
local mode = redis.call('hget', KEYS[1], 'mode')
if own then
  -- A repeated request whose reply was lost. It must neither count twice nor shorten the lease. It writes in any case,
  -- because a later `WAIT` covers only writes of its own connection.
  if left ~= -1 then
    redis.call('pexpire', KEYS[1], math.max(left, lease))
  end
  if reads then
    redis.call('set', KEYS[5], '1', 'px', math.max(redis.call('pttl', KEYS[5]), lease))
  end
  return {1, KEYS[6] and (redis.call('get', KEYS[6]) or redis.call('incr', KEYS[6])) or 0, 0}
end
if left ~= -2 then
  if not mode then
    return {5} -- Redisson would take it for free, and mix its fields into the other lock
  end
  if mode ~= 'read' and mode ~= 'write' or left == -1 then
    return {3, string.sub(mode, 1, 64)}
  end
  if sweep(KEYS[1]) then
    left = -2
  end
end
local joins = ARGV[5] ~= ''
if joins and (left == -2 or redis.call('hexists', KEYS[1], ARGV[5] .. ':write') == 0) then
  return {6}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiter = (reads and 'r' or 'w') .. ARGV[2]
-- The first waiter that must get the lock before this one. A waiter whose deadline has passed is removed.
local ahead, removed, place = nil, false, 0
while not ahead and not joins do
  local other = redis.call('zrange', KEYS[3], place, place)[1]
  if not other or other == waiter then
    break
  end
  local deadline = tonumber(redis.call('hget', KEYS[4], other) or 0)
  if deadline <= now then
    removed = leave_queue(KEYS[1], other)
  elseif reads and string.sub(other, 1, 1) == 'r' then
    place = place + 1
  else
    ahead = deadline
  end
end
local enters = joins or not ahead and (left == -2 or reads and mode == 'read')
if removed and (reads or not enters) then
  -- Those behind the removed waiter may get in, also beside a reader that gets in now. Otherwise nobody would wake them.
  tell_sides(KEYS[1], ARGV[4])
end
if enters then
  local token, more = 0, 0
  if KEYS[6] then
    token, more = take_tokens(KEYS[6], '1')
    if not token then
      return more
    end
  end
  if reads then
    redis.call('set', KEYS[5], '1', 'px', lease)
  end
  if left == -2 then
    redis.call('hset', KEYS[1], 'mode', reads and 'read' or 'write')
  end
  redis.call('hset', KEYS[1], field, 1)
  local limited = redis.pcall('pexpire', KEYS[1], math.max(left, lease))
  if type(limited) == 'table' then
    redis.call('hdel', KEYS[1], field) -- otherwise the lock would never expire
    settle(KEYS[1])
    return limited
  end
  leave_queue(KEYS[1], waiter)
  return {1, token, 0}
end
if ARGV[3] ~= '' then
  if not redis.call('zscore', KEYS[3], waiter) then
    local last = redis.call('zrange', KEYS[3], -1, -1, 'withscores')[2]
    redis.call('zadd', KEYS[3], (tonumber(last) or 0) + 1, waiter)
  end
  redis.call('hset', KEYS[4], waiter, now + ARGV[3])
  for i = 3, 4 do
    redis.call('pexpire', KEYS[i], math.max(redis.call('pttl', KEYS[i]), ARGV[3]))
  end
end
if left == -2 then
  left = ahead - now
end
if mode == 'write' and reads and not ahead then
  -- When a writer of Redisson that also reads ends its write hold, readers may get in, and it publishes nothing.
  for _, holder in ipairs(redis.call('hkeys', KEYS[1])) do
    if holder ~= 'mode' and string.sub(holder, 15, 15) ~= '8' then
      return {0, left, ''}
    end
  end
end
return {0, left}
