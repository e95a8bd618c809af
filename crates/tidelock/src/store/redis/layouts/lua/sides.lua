-- What a read-write lock needs besides its hash. The scripts build these names themselves, see `named`.

-- The key that lives as long as the n-th read hold of an owner.
local function hold_key(key, owner, n)
  local name = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  return name .. ':' .. owner .. ':rwlock_timeout:' .. n
end

-- Publishes in one form. Returns whether the server allowed it. `everywhere`: a node of a cluster counts only its own
-- listeners.
local function tell_side(command, channel, payload, everywhere)
  local heard = redis.pcall(command, channel, payload)
  if type(heard) == 'table' then
    return false
  end
  if heard > 0 or everywhere then
    -- The number 1 wakes the threads of Redisson that sleep, and is lost on one that is about to. The number 0 is not.
    -- The mark tells tidelock's clients that they have heard it.
    redis.pcall(command, channel, '00')
  end
  return true
end

-- Wakes all waiters of a read-write lock, in each form that a client may listen to. Returns whether the server refused
-- every form.
local function tell_sides(key, how)
  local channel, told = named('redisson_rwlock:', key), false
  if how ~= 'spublish' then
    told = tell_side('publish', channel, '1', how ~= 'publish')
  end
  if how ~= 'publish' then
    -- The mark tells a client that hears both forms that this is the same message. Redisson reads it as the number 1.
    told = tell_side('spublish', channel, told and '01' or '1', true) or told
  end
  return not told
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
    -- Its owner also reads. Redisson publishes nothing here, and other readers sleep until the lease ends.
    redis.call('hset', key, 'mode', 'read')
    return true
  end
  if longest <= 0 then
    redis.call('del', key) -- the readers that are left have died: their leases are over
    return true
  end
  if longest < math.huge then
    redis.call('pexpire', key, longest)
  end
  return false
end
