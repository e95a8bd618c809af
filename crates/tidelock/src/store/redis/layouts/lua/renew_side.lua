-- Renews holds of read-write locks. Each is handled separately: an error of one key does not affect the others.
-- KEYS: locks; then for each the key of its read hold (the lock again: a write hold)
-- ARGV: for each lock its lease in milliseconds and its owner; then how to publish
-- Returns a list: 1 renewed, 0 not held by this owner, or the text of an error.
local answers = {}
local how = ARGV[#KEYS + 1]
for i = 1, #KEYS / 2 do
  local key, hold, lease, owner = KEYS[i], KEYS[#KEYS / 2 + i], tonumber(ARGV[2 * i - 1]), ARGV[2 * i]
  local reads = hold ~= key
  local field = reads and owner or owner .. ':write'
  local answer = redis.pcall('hexists', key, field)
  if answer == 1 and reads then
    -- The hold ends with its own key, also while other readers keep the lock. An extension may have made it longer. We
    -- give the lock that time again, because the watchdog of a Java reader gives it the lease of Java.
    lease = math.max(redis.call('pttl', hold), lease)
    answer = redis.pcall('pexpire', hold, lease)
  end
  if answer == 1 then
    -- Never shorten the lease. Write in any case, because a later `WAIT` covers only writes of its own connection.
    local left = redis.call('pttl', key)
    if left ~= -1 then
      answer = redis.pcall('pexpire', key, math.max(left, lease))
    end
  elseif answer == 0 then
    -- A server that has become a replica may not have the lock yet. It refuses this write, which has no effect on a
    -- primary unless the hold has ended.
    local gone = redis.pcall('hdel', key, field)
    if type(gone) == 'table' then
      answer = gone
    elseif gone == 1 and settle(key) then
      tell_sides(key, how)
    end
  end
  answers[i] = type(answer) == 'table' and answer.err or answer
end
return answers
