-- Frees a lock, whoever holds it, and wakes its waiters.
-- KEYS: lock
-- ARGV: channel, how to tell
-- Answers 1: it was held. 2: it was held, but a message was refused. 0: it was free.
local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return 0
end
if kind ~= 'hash' or redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key is not a plain lock')
end
redis.call('del', KEYS[1])
local _, _, muted = tell(ARGV[1], ARGV[2])
return muted and 2 or 1
