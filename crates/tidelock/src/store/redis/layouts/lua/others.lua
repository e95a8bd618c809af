-- Cleans up after Redisson's other kinds of lock under a key that was released, and wakes their waiters. The scripts
-- that release a lock call it only if such a key exists, which is rare.
-- `freed`: a hold has just ended. Returns whether the key had only the remains of a read-write lock, and how many
-- clients other than tidelock received the message that the fair lock may be free.
local function look_after_others(key, how, freed)
  local swept = sweep(key)
  if swept then
    tell(named('redisson_lock__channel:', key), how)
    -- Publish in each form that a client may listen to.
    redis.pcall('publish', named('redisson_rwlock:', key), '1')
    if how ~= 'publish' then
      redis.pcall('spublish', named('redisson_rwlock:', key), '1')
    end
  end
  if not (freed or swept) or redis.pcall('exists', key) == 1 then
    return swept, 0
  end
  -- A thread that waits for RFairLock listens only to a channel of its own. Like Redisson, wake the first thread of
  -- the queue whose deadline has not passed.
  local queue, deadlines = named('redisson_lock_queue:', key), named('redisson_lock_timeout:', key)
  local time = redis.pcall('time')
  local now = time[1] and time[1] * 1000 or 0
  for place = 0, 999 do
    local owner = redis.pcall('lindex', queue, place)
    if type(owner) ~= 'string' then
      return swept, 0 -- the queue is empty, or the user is not allowed to read it
    end
    local ends = redis.pcall('zscore', deadlines, owner)
    if type(ends) ~= 'string' or tonumber(ends) > now then
      -- tidelock's waiters listen to that channel too, but are counted on the lock's own channel already.
      local all, ours = tell(named('redisson_lock__channel:', key) .. ':' .. owner, how)
      return swept, all - math.max(ours, 0)
    end
  end
  return swept, 0
end
