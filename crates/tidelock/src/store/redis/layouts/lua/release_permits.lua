-- Gives permits of a semaphore back, and wakes the waiters.
-- KEYS: semaphore, permits that are out, tombstone of this owner (only to withdraw)
-- ARGV: what the ids begin with and their number, how to publish, milliseconds the tombstone stays (only to withdraw)
-- Returns one of:
--   1: given back. 2: given back, but the user is not allowed to publish the message.
--   0: this owner did not hold all of them any more. Those that were still out are given back.
--   3: given back, but there is no tombstone, because memory is full.
local refused = nil
if KEYS[3] then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[3], '1', 'px', ARGV[3])
  if set.err then
    refused = set -- memory may be full; we still give the permits back, and the caller gets the error
  end
end
local ids = permit_ids(ARGV[1])
local held = held_permits(KEYS[2], ids, permit_time())
-- Write in any case: a server that has become a replica refuses the write. A read alone would wrongly report that
-- permits it does not have yet are not held.
local back, muted = take_back(KEYS[1], KEYS[2], ids), false
if back > 0 then
  muted = tell_permits(KEYS[1], ARGV[2])
end
if refused and back > 0 and string.find(refused.err, 'OOM', 1, true) then
  return 3
end
return refused or held < #ids and 0 or muted and 2 or 1
