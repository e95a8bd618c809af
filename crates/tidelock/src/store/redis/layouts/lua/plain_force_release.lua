-- Releases a plain lock regardless of its owner.
-- KEYS: lock
-- Returns 1: it was held. 0: it was free.
local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return 0
end
if kind ~= 'string' then
  return redis.error_reply('WRONGTYPE the key is no plain lock')
end
return redis.call('del', KEYS[1])
