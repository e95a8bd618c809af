-- What all scripts of semaphores need. The key of a semaphore counts the permits that nobody holds. A sorted set beside it
-- has the id of each permit that is out, and when its lease ends, in milliseconds since 1970.

-- The sorted set of a semaphore, for scripts that do not get it in KEYS.
local function permits_out(key)
  return named('', key) .. ':timeout'
end

-- The server's clock. Redisson uses that of its client.
local function permit_time()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The ids of the permits of an acquisition: 'digits:count', where the digits are what the ids begin with.
local function permit_ids(owner)
  local digits, count = string.match(owner, '^(%x+):(%d+)$')
  local base = string.gsub(digits, '..', function(byte) return string.char(tonumber(byte, 16)) end)
  local ids = {}
  for n = 0, count - 1 do
    ids[n + 1] = base .. string.char(math.floor(n / 256), n % 256)
  end
  return ids
end

-- How many of the permits are out and have a lease that has not ended, and whether any of them is out.
local function held_permits(out, ids, now)
  local held, any = 0, false
  for _, id in ipairs(ids) do
    local ends = redis.call('zscore', out, id)
    if ends then
      held, any = held + (tonumber(ends) > now and 1 or 0), true
    end
  end
  return held, any
end

-- Takes permits back. Only those count that are out, so that a repeated release never makes one too many. Returns how
-- many they were.
local function take_back(key, out, ids)
  local back = 0
  for _, id in ipairs(ids) do
    back = back + redis.call('zrem', out, id)
  end
  -- If the semaphore itself was deleted, its permits have gone with it. The server lets a script that has written go on
  -- although memory is full.
  if back > 0 and number_at(key) then
    redis.call('decrby', key, -back) -- the command of an acquisition: no other right is needed
  end
  return back
end

-- Takes back permits whose lease has ended, at most 1000. Returns how many they were, and whether there may be more.
local function take_back_ended(key, out, now)
  local ended = redis.call('zrangebyscore', out, '-inf', now, 'limit', 0, 1000)
  return take_back(key, out, ended), #ended == 1000
end

-- Wakes the waiters of a semaphore, in each form that a client may listen to. As many waiters of Redisson try again as
-- there are permits. Returns whether the server refused every form.
local function tell_permits(key, how)
  local free = number_at(key) or 0
  if free <= 0 then
    return false -- a waiter of Redisson fails if it gets a negative number
  end
  return tell_all(named('redisson_sc:', key), free, how)
end
