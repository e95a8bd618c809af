-- Whether Redisson is right in front of a place in the queue: as a waiter, or as the holder in front of the first one. Its
-- release is published on the channel of the one behind it. A user who may not look must assume so.
local function follows_redisson(key, place)
  local ahead = place > 0 and redis.pcall('lindex', named('redisson_lock_queue:', key), place - 1)
    or redis.pcall('hrandfield', key)
  return type(ahead) == 'table' or type(ahead) == 'string' and not is_ours(ahead)
end
