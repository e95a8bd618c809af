-- Ends what one owner holds and wakes the waiters. Uses nothing that is denied when memory is full.
-- KEYS: lock, tombstone of this owner (only to withdraw)
-- ARGV: owner, channel, how to tell, milliseconds the tombstone stays (only to withdraw)
-- Answers 1: freed, and nobody waits. {how many processes wait, how many of them are tidelock's or -1}: freed.
--         2: freed, but a message was refused. 0: not held by this owner. 3: freed, but no tombstone stands, because memory is full.
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
if own == 1 then
  -- While the slot is on its way to another node, asking for what has just gone is refused: it is as gone.
  if redis.pcall('exists', KEYS[1]) ~= 1 then
    local all, ours, muted = tell(ARGV[2], ARGV[3])
    answer = muted and 2 or all == 0 and 1 or {all, ours}
  end
end
if refused and answer ~= 0 and string.find(refused.err, 'OOM', 1, true) then
  return 3
end
return refused or answer
