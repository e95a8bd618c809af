-- Releases a plain lock regardless of its owner, or only if it is held as somebody has seen it.
-- KEYS: lock
-- ARGV: nothing, or the owner; and then nothing, or the token counter and the newest token
-- Returns 1: it was held. 0: it was free, or is held otherwise.
local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return 0
end
if kind ~= 'string' then
  return redis.error_reply('WRONGTYPE the key is no plain lock')
end
if ARGV[1] and redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] and redis.pcall('get', ARGV[2]) ~= ARGV[3] then
  return 0
end
return redis.call('del', KEYS[1])
