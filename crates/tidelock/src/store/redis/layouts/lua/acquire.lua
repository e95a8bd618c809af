-- Acquires the lock for one owner, or returns how long it is held. The effects are those of RLock and RFencedLock;
-- the reply has another form.
-- KEYS: lock, tombstone of this owner, fencing counter (only for fenced locks)
-- ARGV: lease in milliseconds, owner, 'sleeps' if the caller waits for a message when the lock is held or 'spins' if it
-- asks again and again, number of tokens to take (only for fenced locks)
-- Returns one of:
--   {1, last token or 0, number of tokens before it}: this owner holds the lock.
--   {0, milliseconds left or -1 without a limit}: another owner holds it. A third element, the head of the fair
--       queue or '', means that its release may not be published. For a caller that spins it is the holder or ''.
--   {2}: this owner was withdrawn. {3, mode}: the key is another kind of lock.
--   {4, value}: the counter has no next token.
if redis.call('exists', KEYS[2]) == 1 then
  return {2}
end
local own = redis.pcall('hget', KEYS[1], ARGV[2])
if type(own) == 'table' then
  return own -- the key is not a hash: return the error
end
local left = redis.call('pttl', KEYS[1])
if left ~= -2 then
  local mode = redis.call('hget', KEYS[1], 'mode')
  if mode then
    if not sweep(KEYS[1]) then
      return {3, mode}
    end
  elseif own then
    -- A repeated request whose reply was lost. It must neither count twice nor shorten the lease. It writes in any
    -- case, because a later `WAIT` covers only writes of its own connection.
    if left ~= -1 then
      redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1])))
    end
    -- Only a holder increments the counter, so it still has the last token of this owner.
    return {1, KEYS[3] and (redis.call('get', KEYS[3]) or redis.call('incr', KEYS[3])) or 0, 0}
  else
    if ARGV[3] ~= 'sleeps' and ARGV[3] ~= 'spins' then
      return {0, left}
    end
    -- A tidelock holder, whose client id is a UUID of version 8, is the only one known to publish its release.
    -- Redisson's fair lock publishes only to the head of its queue, and its spin lock never publishes.
    local holder = redis.pcall('hrandfield', KEYS[1])
    if ARGV[3] == 'spins' then
      return {0, left, type(holder) == 'string' and holder or ''}
    end
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
  redis.call('hdel', KEYS[1], ARGV[2]) -- otherwise the lock would never expire
  return limited
end
return {1, token, more}
