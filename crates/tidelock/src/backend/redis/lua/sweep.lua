-- RReadWriteLock takes a hash without a field `mode` for a free lock, also one of ours, and mixes its fields into it. When all
-- holders have left, `mode` may stay alone, and nobody would remove it before its lease ends. This does. A hash of somebody
-- else that has such a field is left as it is: it has another value, or no lease.
local function sweep(key)
  if redis.pcall('hlen', key) ~= 1 then
    return false
  end
  local mode = redis.pcall('hget', key, 'mode')
  if mode ~= 'read' and mode ~= 'write' or redis.pcall('pttl', key) == -1 then
    return false
  end
  return redis.pcall('hdel', key, 'mode') == 1
end

