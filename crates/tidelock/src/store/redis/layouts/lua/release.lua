-- Releases the lock if this owner holds it, and wakes the waiters. Except for the tombstone, it uses only commands
-- that are allowed when memory is full.
-- KEYS: lock, tombstone of this owner (only to withdraw)
-- ARGV: owner, channel, how to publish, milliseconds the tombstone stays (only to withdraw), 'spins' if the lock is
-- a spin lock, which publishes only if somebody listens
-- Returns one of:
--   1: released, no waiters. {number of waiting processes, number of tidelock's among them or -1}: released.
--   2: released, but the user is not allowed to publish the message. 0: not held by this owner.
--   3: released, but there is no tombstone, because memory is full.
--   4: released, but another kind of lock was taken under the same key.
local refused = nil
if KEYS[2] then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[2], '1', 'px', ARGV[4])
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
-- One command checks both the lock and the queue of Redisson's fair lock; usually neither exists. A reply that is not
-- a number counts as present: the user is not allowed to read the queue, or the slot is being migrated, and then the
-- node refuses a command for a key that has just been deleted.
local others = redis.pcall('exists', KEYS[1], named('redisson_lock_queue:', KEYS[1])) ~= 0
-- The reply. `all` and `ours`: how many processes wait. `muted`: the server refused the message.
local function released(answer, all, ours, muted)
  local reply = answer or own == 1 and (muted and 2 or all == 0 and 1 or {all, ours}) or own
  if refused and reply ~= 0 and string.find(refused.err, 'OOM', 1, true) then
    return 3
  end
  return refused or reply
end
local function tell_lock()
  if ARGV[5] ~= 'spins' or is_heard(ARGV[2], ARGV[3]) then
    return tell(ARGV[2], ARGV[3])
  end
  return 0, 0, false
end
if not others then
  -- The usual case. Each run creates the functions of a script anew, so those that it does not need come below.
  if own == 1 then
    return released(nil, tell_lock())
  end
  return released(0)
end
