-- Acquires a plain lock for one owner, or returns how long it is held. If the key is free, the effect is that of `SET
-- key owner NX PX ms`.
-- KEYS: lock, tombstone of this owner (in a cluster, and for fenced locks), token counter (only for fenced locks)
-- ARGV: lease in milliseconds, owner
-- Returns one of:
--   1 or {1, token or 0}: this owner holds the lock.
--   {0, milliseconds left or -1 without a limit, the beginning of the value}: another owner holds it.
--   {2}: this owner was withdrawn. {3}: the key is not a plain lock. {4, value}: the counter has no next token.
local tombstone = KEYS[2] or tombstone_of(KEYS[1], ARGV[2])
local present = redis.pcall('exists', KEYS[1], tombstone)
if present == 0 and not KEYS[3] then
  -- Most locks are free. Each run creates the functions of a script anew, so those that this case does not need come
  -- below it.
  local set = redis.pcall('set', KEYS[1], ARGV[2], 'nx', 'px', ARGV[1])
  return set and set.ok and 1 or set
end
if type(present) == 'table' then
  return present -- the user may not use one of the keys
end
