-- Releases a plain lock if this owner holds it: compare and delete. Except for the tombstone, it uses only commands
-- that are allowed when memory is full.
-- KEYS: lock, tombstone of this owner
-- ARGV: owner, milliseconds a tombstone stays, 'withdraw' or 'release', the channel of the key's events or ''
-- Returns {number of listeners to the key's events}: released. 1: released, no listener. 0: not held by this owner.
-- 3: released, but there is no tombstone, because memory is full.
local refused = nil
if ARGV[3] == 'withdraw' then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[2], '1', 'px', ARGV[2])
  if set.err then
    refused = set -- memory may be full; we still release the lock, and the caller gets the error
  end
end
local own = redis.pcall('get', KEYS[1])
if type(own) == 'table' then
  return own
end
if own == ARGV[1] then
  redis.call('del', KEYS[1])
  local waiting = ARGV[4] ~= '' and listeners('numsub', ARGV[4]) or 0
  if refused and string.find(refused.err, 'OOM', 1, true) then
    return 3
  end
  return refused or waiting > 0 and {waiting} or 1
end
-- A server that has become a replica may not have the lock yet. It refuses this write, which has no effect on a
-- primary.
local primary = redis.pcall('pexpire', KEYS[2], ARGV[2])
if type(primary) == 'table' then
  return primary
end
return refused or 0
