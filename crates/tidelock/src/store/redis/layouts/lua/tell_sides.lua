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

