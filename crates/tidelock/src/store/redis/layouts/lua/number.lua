-- What the scripts of semaphores and latches need: both are a number with waiters.

-- The number at a key, or nil if the key is missing. Otherwise also what the key is instead of a number.
local function number_at(key)
  local value = redis.pcall('get', key)
  if type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then
      return nil, {7, 'a ' .. redis.call('type', key)['ok']}
    end
    return nil, value
  end
  if value and not string.find(value, '^%-?%d+$') then
    return nil, {7, 'the text ' .. string.sub(value, 1, 64)}
  end
  return value and tonumber(value)
end

-- Publishes a number to all waiters of a channel, in each form that a client may listen to. Returns whether the server
-- refused every form.
local function tell_all(channel, number, how)
  local told = false
  if how ~= 'spublish' then
    told = type(redis.pcall('publish', channel, number)) ~= 'table'
  end
  if how ~= 'publish' then
    told = type(redis.pcall('spublish', channel, number)) ~= 'table' or told
  end
  return not told
end
