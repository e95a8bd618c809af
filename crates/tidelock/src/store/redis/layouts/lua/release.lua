-- Releases the lock if this owner holds it, and wakes the waiters. Except for the tombstone, it uses only commands
-- that are allowed when memory is full.
-- KEYS: lock, tombstone of this owner (only to withdraw, where the script that acquires the lock gets it too)
-- ARGV: owner, how to publish ('publish' if it is missing), milliseconds the tombstone stays (only to withdraw), 'spins'
-- if the lock is a spin lock, which publishes only if somebody listens
-- Returns one of:
--   1: released, no waiters. {number of waiting processes, number of tidelock's among them or -1}: released.
--   2: released, but the user is not allowed to publish the message. 0: not held by this owner.
--   3: released, but there is no tombstone, because memory is full.
--   4: released, but another kind of lock was taken under the same key.
local refused = nil
if ARGV[3] and ARGV[3] ~= '' then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[2] or tombstone_of(KEYS[1], ARGV[1]), '1', 'px', ARGV[3])
  if set.err and string.find(set.err, 'undeclared key', 1, true) then
    return set -- the client declares it
  end
  if set.err then
    refused = set -- memory may be full; we still release the lock, and the caller gets the error
  end
end
-- Write without a read before: a server that has become a replica refuses the write. A read would wrongly report that
-- a lock it does not have yet is not held.
local own = redis.pcall('hdel', KEYS[1], ARGV[1])
if type(own) == 'table' then
  return own
end
local braced = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
-- One command checks both the lock and the queue of Redisson's fair lock; usually neither exists. A reply that is not
-- a number counts as present: the user is not allowed to read the queue, or the slot is being migrated, and then the
-- node refuses a command for a key that has just been deleted.
local others = redis.pcall('exists', KEYS[1], 'redisson_lock_queue:' .. braced) ~= 0
local channel, heard = 'redisson_lock__channel:' .. braced, nil
if own == 1 and not others and not ARGV[2] then
  heard = redis.pcall('publish', channel, '0')
  if heard == 0 then
    -- Usually nobody waits. Each run creates the functions of a script anew, so they come below.
    return 1
  end
end
