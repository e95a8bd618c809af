-- Releases a fair lock if this owner holds it, takes the owner out of the queue, and hands a free lock over.
-- KEYS: lock; queue, deadlines, unconfirmed grant (not in a cluster, unless it withdraws); tombstone of this owner (only to
-- withdraw)
-- ARGV: owner, channel, how to publish, milliseconds the tombstone stays (only to withdraw)
-- Returns 1: released. 0: not held by this owner. 3: released, but there is no tombstone, because memory is full.
-- 4: released, but another kind of lock was taken under the same key.
local refused = nil
if KEYS[5] then
  -- Write the tombstone first: from here on, a late acquire request of this owner has no effect.
  local set = redis.pcall('set', KEYS[5], '1', 'px', ARGV[4])
  if set.err then
    refused = set -- memory may be full; we still release the lock, and the caller gets the error
  end
end
-- Write without a read before: a server that has become a replica refuses the write.
local own = redis.pcall('hdel', KEYS[1], ARGV[1])
if type(own) == 'table' then
  return own
end
-- The waiter of tidelock behind a waiter that leaves, if Redisson is in front of both of them. It must listen to its own
-- channel from now on.
local function comes_behind_redisson()
  local place = redis.pcall('lpos', KEYS[2], ARGV[1])
  local behind = type(place) == 'number' and redis.pcall('lindex', KEYS[2], place + 1)
  return type(behind) == 'string' and is_ours(behind) and follows_redisson(KEYS[1], place) and behind
end
if KEYS[5] then
  local behind = redis.call('zrem', KEYS[3], ARGV[1]) == 1 and comes_behind_redisson()
  redis.call('lrem', KEYS[2], 0, ARGV[1])
  if behind then
    tell_turn(KEYS[1], behind, ARGV[3])
  end
end
-- Whether the lock is there. While its slot migrates, the node refuses a command for a key that it does not have, and so
-- for one that was just deleted here. Nobody is granted the lock then: the one that is told asks until the slot has moved.
local function is_there()
  local there = redis.pcall('exists', KEYS[1])
  return there == 1 or type(there) == 'table' and not string.find(there.err, 'non local key', 1, true)
end
if own == 1 then
  redis.pcall('del', KEYS[4] or named('tidelock:granted:', KEYS[1]))
end
local answer = own
if redis.pcall('hexists', KEYS[1], 'mode') == 1 then
  look_after_others(KEYS[1], ARGV[3], own == 1)
  answer = own * 4
elseif not is_there() then
  hand_over(KEYS[1], ARGV[3], nil, true)
  -- Waiters for a lock without a queue, under the same name, listen to the lock's own channel.
  if own == 1 and not is_there() then
    tell(ARGV[2], ARGV[3])
  end
end
if refused and answer ~= 0 and string.find(refused.err, 'OOM', 1, true) then
  return 3
end
return refused or answer
