-- Ends a hold of one side of a read-write lock, and wakes the waiters. Except for the tombstone, it uses only commands
-- that are allowed when memory is full, unless a writer that also reads ends its write hold.
-- KEYS: lock, key of the read hold (the lock again: a write hold), tombstone of this owner (only to withdraw)
-- ARGV: owner, how to publish, milliseconds the tombstone stays (only to withdraw)
-- Returns one of:
--   1: released. 2: released, but the user is not allowed to publish the message. 0: not held by this owner.
--   3: released, but there is no tombstone, because memory is full.
local reads, refused, left = KEYS[2] ~= KEYS[1], nil, false
if KEYS[3] then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[3], '1', 'px', ARGV[3])
  if set.err then
    refused = set -- memory may be full; we still release the lock, and the caller gets the error
  end
  left = leave_queue(KEYS[1], (reads and 'r' or 'w') .. ARGV[1])
end
-- Write without a read before: a server that has become a replica refuses the write. A read would wrongly report that
-- a lock it does not have yet is not held.
local own = redis.pcall('hdel', KEYS[1], reads and ARGV[1] or ARGV[1] .. ':write')
if type(own) == 'table' then
  return own
end
if reads then
  redis.call('del', KEYS[2])
end
local muted = false
if own == 1 and settle(KEYS[1]) or left then
  muted = tell_sides(KEYS[1], ARGV[2])
end
if refused and own == 1 and string.find(refused.err, 'OOM', 1, true) then
  return 3
end
return refused or own == 1 and muted and 2 or own
