-- Ends what one owner holds and wakes the waiters. Uses nothing that is denied when memory is full.
-- KEYS: lock, tombstone of this owner (only to withdraw)
-- ARGV: owner, channel, 'publish' or 'spublish' or 'both', milliseconds the tombstone stays (only to withdraw)
-- Answers 10 + n: freed, and the message reached n connections. 2: freed, but the message was refused. 0: not held by this owner.
--         3: freed, but no tombstone stands, because memory is full. 4: given up, but a lock of another kind had been taken at the same key.
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
-- One question about the lock and the queue of Redisson's fair lock: of most locks neither stands. What is no number stands for
-- something too: the user may not look at the queue, or the slot is on its way to another node, where asking for what has just
-- gone is refused.
local others = redis.pcall('exists', KEYS[1], named('redisson_lock_queue:', KEYS[1])) ~= 0
local mixed = others and redis.pcall('hexists', KEYS[1], 'mode') == 1
if mixed then
  answer = own * 4
elseif own == 1 then
  answer = 10
  local muted = false
  if not others or redis.pcall('exists', KEYS[1]) ~= 1 then
    for _, how in ipairs({'publish', 'spublish'}) do
      if ARGV[3] == how or ARGV[3] == 'both' then
        local heard = redis.pcall(how, ARGV[2], '0')
        if type(heard) == 'table' then
          muted = true
        else
          answer = answer + heard
        end
      end
    end
  end
  if muted then
    answer = 2
  end
end
if others then
  local _, heard = look_after_others(KEYS[1], ARGV[3], own == 1)
  if answer >= 10 then
    answer = answer + heard
  end
end
if refused and answer ~= 0 and string.find(refused.err, 'OOM', 1, true) then
  return 3
end
return refused or answer
