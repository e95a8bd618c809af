-- Releases a plain lock if this owner holds it: compare and delete. Except for the tombstone, it uses only commands
-- that are allowed when memory is full.
-- KEYS: lock, tombstone of this owner (to withdraw in a cluster, to withdraw a fenced lock, and on a server that wants all
-- keys declared)
-- ARGV: owner, the channel of the key's events if they may be on or '', milliseconds a tombstone stays (only to withdraw)
-- Returns {number of listeners to the key's events}: released. 1: released, no listener. 0: not held by this owner.
-- 3: released, but there is no tombstone, because memory is full.
local refused = nil
if ARGV[3] then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[2] or tombstone_of(KEYS[1], ARGV[1]), '1', 'px', ARGV[3])
  if set.err and string.find(set.err, 'undeclared key', 1, true) then
    return set -- the client declares it
  end
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
  local heard = 0
  if ARGV[2] and ARGV[2] ~= '' then
    local counted = redis.pcall('pubsub', 'numsub', ARGV[2])
    heard = not counted.err and counted[2] or 0 -- the user may not be allowed to count
  end
  if refused and string.find(refused.err, 'OOM', 1, true) then
    return 3
  end
  return refused or heard > 0 and {heard} or 1
end
