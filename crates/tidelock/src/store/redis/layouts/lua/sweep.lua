-- Deletes what a read-write lock has left in the hash of a lock. RReadWriteLock takes a hash without a field `mode`
-- for a free lock, even one of ours, and adds its fields to it. When all holders have released, `mode` may remain
-- alone, and would block the lock until its lease ends. A hash of another application with such a field stays as it
-- is: it has another value, or no lease.
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

