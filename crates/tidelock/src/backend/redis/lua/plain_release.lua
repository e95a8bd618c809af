-- Ends what one owner holds: compare and delete. Uses nothing that is denied when memory is full, but for the tombstone.
-- KEYS: lock, tombstone of this owner
-- ARGV: owner, milliseconds a tombstone stays, 'withdraw' or 'release', the channel of the key's events or ''
-- Answers {number of listeners to the key's events}: freed. 1: freed, no listener. 0: not held by this owner.
-- 3: freed, but no tombstone stands, because memory is full.
local refused = nil
if ARGV[3] == 'withdraw' then
  -- First: from here on an acquire of this owner that arrives late takes no effect.
  local set = redis.pcall('set', KEYS[2], '1', 'px', ARGV[2])
  if set.err then
    refused = set -- memory may be full; the lock is given back all the same, and the caller hears of it
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
-- A server that has become a replica may only not have heard of the lock: it refuses this, which changes nothing on a primary.
local primary = redis.pcall('pexpire', KEYS[2], ARGV[2])
if type(primary) == 'table' then
  return primary
end
return refused or 0
