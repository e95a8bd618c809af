-- Renews many locks. Each is handled separately: an error of one key does not affect the others.
-- KEYS: locks
-- ARGV: for each lock its lease in milliseconds and its owner; then how to publish
-- Returns a list: 1 renewed, 0 not held by this owner, 2 held, but another kind of lock was taken under the same key,
-- or the text of an error.
local answers = {}
local how = ARGV[2 * #KEYS + 1]
for i = 1, #KEYS do
  local lease, owner = ARGV[2 * i - 1], ARGV[2 * i]
  local answer = redis.pcall('hexists', KEYS[i], owner)
  if answer == 1 then
    local left = redis.call('pttl', KEYS[i])
    if redis.call('hexists', KEYS[i], 'mode') == 1 then
      answer = 2
    elseif left ~= -1 then
      -- Never shorten the lease. Write in any case, because a later `WAIT` covers only writes of its own connection.
      answer = redis.pcall('pexpire', KEYS[i], math.max(left, tonumber(lease)))
    end
  end
  if answer == 0 then
    -- A server that has become a replica may not have the lock yet. It refuses this write, which has no effect on a
    -- primary.
    local gone = redis.pcall('hdel', KEYS[i], owner)
    if type(gone) == 'table' then
      answer = gone
    else
      look_after_others(KEYS[i], how, false)
    end
  end
  if type(answer) == 'table' then
    answer = answer.err
  end
  answers[i] = answer
end
return answers
