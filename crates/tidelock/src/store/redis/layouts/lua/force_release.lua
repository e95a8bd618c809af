-- Releases a lock regardless of its owner, and wakes the waiters.
-- KEYS: lock
-- ARGV: channel, how to publish
-- Returns {1}: it was held. {2}: it was held, but the user is not allowed to publish the message. {0}: it was free.
-- {3, mode}: the key is another kind of lock.
local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return {0}
end
if kind ~= 'hash' then
  return redis.error_reply('WRONGTYPE the key is a ' .. kind .. ' and no lock')
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode then
  -- If the former holders left only the field `mode`, the lock is free already.
  if look_after_others(KEYS[1], ARGV[2], false) then
    return {0}
  end
  return {3, mode}
end
redis.call('del', KEYS[1])
local _, _, muted = tell(ARGV[1], ARGV[2])
look_after_others(KEYS[1], ARGV[2], true)
return {muted and 2 or 1}
