-- Acquires the lock for one owner, or returns how long it is held. The effects are those of RLock and RFencedLock;
-- the reply has another form.
-- KEYS: lock, tombstone of this owner (in a cluster, and for fenced locks), fencing counter (only for fenced locks)
-- ARGV: lease in milliseconds, owner, 'sleeps' if the caller waits for a message when the lock is held or 'spins' if it
-- asks again and again, number of tokens to take (only for fenced locks)
-- Returns one of:
--   1 or {1, last token or 0, number of tokens before it}: this owner holds the lock.
--   {0, milliseconds left or -1 without a limit}: another owner holds it. A third element, the head of the fair
--       queue or '', means that its release may not be published. For a caller that spins it is the holder or ''.
--   {2}: this owner was withdrawn. {3, mode}: the key is another kind of lock.
--   {4, value}: the counter has no next token.
local function granted(token, more)
  redis.call('hset', KEYS[1], ARGV[2], '1')
  local limited = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(limited) == 'table' then
    redis.call('hdel', KEYS[1], ARGV[2]) -- otherwise the lock would never expire
    return limited
  end
  return KEYS[3] and {1, token, more} or 1
end
local present = redis.pcall('exists', KEYS[1], KEYS[2] or tombstone_of(KEYS[1], ARGV[2]))
if present == 0 and not KEYS[3] then
  -- Most locks are free. Each run creates the functions of a script anew, so those that this case does not need come
  -- below it.
  return granted(0, 0)
end
if type(present) == 'table' then
  return present -- the user may not use one of the keys
end
