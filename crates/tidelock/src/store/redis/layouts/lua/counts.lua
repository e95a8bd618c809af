-- What the scripts of latches and counting semaphores need: the answers to earlier requests.

-- The answer to this request if it has taken effect before: its reply was lost, or it is late. It must not take effect
-- twice. A request that was refused has left no answer.
local function answered(key)
  local known = redis.call('get', key)
  local changed, number = string.match(known or '', '^(%d) (%-?%d+)$')
  return changed and {0, tonumber(changed), tonumber(number)}
end

-- Deletes the answers from this key on. Their requests were answered, so nobody sends them again.
local function forget(first)
  if #KEYS >= first then
    redis.pcall('del', unpack(KEYS, first))
  end
end
