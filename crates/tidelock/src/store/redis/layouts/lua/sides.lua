-- What a read-write lock needs besides its hash. The scripts build these names themselves, see `named`.

-- The key that lives as long as the n-th read hold of an owner.
local function hold_key(key, owner, n)
  local name = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  return name .. ':' .. owner .. ':rwlock_timeout:' .. n
end

-- Whether a field of the hash of a lock is a reader whose leases have all ended. The field stays as long as other readers
-- keep the hash. If the user may not look at the keys, the reader counts as alive.
local function is_dead_reader(key, mode, field, count)
  if mode ~= 'read' or field == 'mode' or string.sub(field, -6) == ':write' then
    return false
  end
  local holds = tonumber(count) or 0
  if holds < 1 then
    return false -- not ours: the lock is shown as it is
  end
  for n = math.min(holds, 1000), 1, -1 do
    if redis.pcall('pttl', hold_key(key, field, n)) ~= -2 then
      return false
    end
  end
  return true
end

-- Removes a waiter from the queue of tidelock's waiters. Returns whether it was there.
local function leave_queue(key, waiter)
  redis.call('hdel', named('tidelock:rw_deadlines:', key), waiter)
  return redis.call('zrem', named('tidelock:rw_queue:', key), waiter) == 1
end

-- After a hold of a read-write lock has ended: the rules of Redisson's unlock. Returns whether a waiter may get in now.
local function settle(key)
  local fields = redis.call('hgetall', key)
  local mode, holds, written, longest = nil, 0, false, -2
  for i = 1, #fields, 2 do
    local field, count = fields[i], math.min(tonumber(fields[i + 1]) or 0, 1000)
    if field == 'mode' then
      mode = fields[i + 1]
    else
      holds = holds + 1
      written = written or string.sub(field, -6) == ':write'
      for n = count, 1, -1 do
        local left = redis.call('pttl', hold_key(key, field, n))
        longest = left == -1 and math.huge or math.max(longest, left)
      end
    end
  end
  if holds == 0 then
    redis.call('hdel', key, 'mode')
    return true
  end
  if written then
    return false
  end
  if mode == 'write' then
    -- A writer became a reader. Redisson publishes nothing here, and other readers sleep until the lease ends.
    redis.call('hset', key, 'mode', 'read')
  end
  if longest <= 0 then
    redis.call('del', key) -- the readers that are left have died: their leases are over
    return true
  end
  if longest < math.huge then
    redis.call('pexpire', key, longest)
  end
  return mode == 'write'
end
