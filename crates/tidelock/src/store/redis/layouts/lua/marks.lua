-- The marks of a job's slots. KEYS[1]: hash, slot -> mark; KEYS[2]: sorted set, slot -> end in milliseconds.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The mark of a slot, or false. An expired mark stays in the hash until a later write removes it.
local function mark(slot)
  local ends = redis.call('zscore', KEYS[2], slot)
  if not ends or tonumber(ends) <= now then
    return false
  end
  return redis.call('hget', KEYS[1], slot)
end
