-- Ends what one owner holds and wakes the waiters. Uses nothing that is denied when memory is full.
-- KEYS: lock, tombstone of this owner (only to withdraw)
-- ARGV: owner, channel, how to tell, milliseconds the tombstone stays (only to withdraw)
-- Answers 1: freed, and nobody waits. {how many processes wait, how many of them are tidelock's or -1}: freed.
--         2: freed, but a message was refused. 0: not held by this owner. 3: freed, but no tombstone stands, because memory is full.
--         4: given up, but a lock of another kind had been taken at the same key.
local refused = nil
if KEYS[2] then
  -- First: from here on an acquire of this owner that arrives late takes no effect.
  local set = redis.pcall('set', KEYS[2], '1', 'px', ARGV[4])
  if set.err then
    refused = set -- memory may be full; the lock is given back all the same, and the caller hears of it
  end
end
-- Written without a look before: a server that has become a replica refuses, and does not say that what it has not
-- heard of is not held.
local own = redis.pcall('hdel', KEYS[1], ARGV[1])
if type(own) == 'table' then
  return own
end
local answer = own
-- One question about the lock and the queue of Redisson's fair lock: most locks have neither. An answer that is no number
-- counts as present: the user may not look at the queue, or the slot is on its way to another node, where asking for a key
-- that has just gone is refused.
local others = redis.pcall('exists', KEYS[1], named('redisson_lock_queue:', KEYS[1])) ~= 0
local mixed = others and redis.pcall('hexists', KEYS[1], 'mode') == 1
local all, ours, muted = 0, 0, false
if own == 1 and not mixed and not (others and redis.pcall('exists', KEYS[1]) == 1) then
  all, ours, muted = tell(ARGV[2], ARGV[3])
end
if others then
  local _, heard = look_after_others(KEYS[1], ARGV[3], own == 1)
  all = all + heard
end
if mixed then
  answer = own * 4
elseif own == 1 then
  answer = muted and 2 or all == 0 and 1 or {all, ours}
end
if refused and answer ~= 0 and string.find(refused.err, 'OOM', 1, true) then
  return 3
end
return refused or answer
