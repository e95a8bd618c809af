-- Looks after Redisson's other kinds of lock at a key that was freed, and their waiters. The scripts that free a lock call it
-- only where such a key exists, which is rare.
-- `freed`: a hold has just ended. Answers whether the key held only what a read-write lock had left, and how many clients
-- other than tidelock heard that the fair lock may be free.
local function look_after_others(key, how, freed)
  local swept = sweep(key)
  if swept then
    tell(named('redisson_lock__channel:', key), how)
    -- In each form that somebody may listen to.
    redis.pcall('publish', named('redisson_rwlock:', key), '1')
    if how ~= 'publish' then
      redis.pcall('spublish', named('redisson_rwlock:', key), '1')
    end
  end
  if not (freed or swept) or redis.pcall('exists', key) == 1 then
    return swept, 0
  end
  -- A thread that waits for RFairLock hears a channel of its own only. Redisson wakes the first of the queue whose time has
  -- not passed.
  local queue, deadlines = named('redisson_lock_queue:', key), named('redisson_lock_timeout:', key)
  local time = redis.pcall('time')
  local now = time[1] and time[1] * 1000 or 0
  for place = 0, 999 do
    local owner = redis.pcall('lindex', queue, place)
    if type(owner) ~= 'string' then
      return swept, 0 -- nobody, or the user may not look
    end
    local ends = redis.pcall('zscore', deadlines, owner)
    if type(ends) ~= 'string' or tonumber(ends) > now then
      -- Waiters of tidelock listen to that channel too, and were counted on the lock's own channel.
      local all, ours = tell(named('redisson_lock__channel:', key) .. ':' .. owner, how)
      return swept, all - math.max(ours, 0)
    end
  end
  return swept, 0
end
