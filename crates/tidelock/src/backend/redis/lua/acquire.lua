-- Takes the lock for one owner, or tells how long it is held. Answers as RLock and RFencedLock do, in another shape.
-- KEYS: lock, tombstone of this owner, fencing counter (only for fenced locks)
-- ARGV: lease in milliseconds, owner, 'sleeps' if a refused caller may wait for a message, how many tokens to take (only for
--       fenced locks)
-- Answers {1, last token or 0, how many before it}: held by this owner. {0, milliseconds left, -1 without limit}: held by another;
--         with a third part, the head of the fair queue or nothing, if that one's release may not be told.
--         {2}: this owner was withdrawn. {3, mode}: the key is a lock of another kind. {4, value}: the counter gives no token.
if redis.call('exists', KEYS[2]) == 1 then
  return {2}
end
local own = redis.pcall('hget', KEYS[1], ARGV[2])
if type(own) == 'table' then
  return own -- not a hash: the error names it
end
local left = redis.call('pttl', KEYS[1])
if left ~= -2 then
  local mode = redis.call('hget', KEYS[1], 'mode')
  if mode then
    if not sweep(KEYS[1]) then
      return {3, mode}
    end
  elseif own then
    -- A repeat of a request whose answer was lost: it neither counts twice nor shortens what stands. It writes in any case:
    -- a `WAIT` behind it speaks only of what its own connection has written.
    if left ~= -1 then
      redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1])))
    end
    -- Only a holder moves the counter, so it still shows the last that was taken with this one.
    return {1, KEYS[3] and (redis.call('get', KEYS[3]) or redis.call('incr', KEYS[3])) or 0, 0}
  else
    if ARGV[3] ~= 'sleeps' then
      return {0, left}
    end
    -- Only a holder of tidelock is known to publish its release: its client has a UUID of version 8. Redisson's fair lock tells
    -- only the head of its queue, and its spin lock nobody.
    local holder = redis.pcall('hrandfield', KEYS[1])
    if type(holder) == 'string' and string.sub(holder, 15, 15) == '8' then
      return {0, left}
    end
    local head = redis.pcall('lindex', named('redisson_lock_queue:', KEYS[1]), 0)
    return {0, left, type(head) == 'string' and head or ''}
  end
end
local token, more = 0, 0
if KEYS[3] then
  token, more = take_tokens(KEYS[3], ARGV[4])
  if not token then
    return more
  end
end
redis.call('hset', KEYS[1], ARGV[2], 1)
local limited = redis.pcall('pexpire', KEYS[1], ARGV[1])
if type(limited) == 'table' then
  redis.call('hdel', KEYS[1], ARGV[2]) -- never a lock without an end
  return limited
end
return {1, token, more}
