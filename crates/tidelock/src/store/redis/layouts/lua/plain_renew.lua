-- Renews many plain locks: compare and expire. Each is handled separately: an error of one key does not affect the
-- others.
-- KEYS: locks
-- ARGV: for each lock its lease in milliseconds and its owner; then the tombstones of their owners, in the same order
-- Returns a list: 1 renewed, 0 not held by this owner, or the text of an error.
local answers = {}
local count = #KEYS
for i = 1, count do
  local lease, owner = ARGV[2 * i - 1], ARGV[2 * i]
  local own = redis.pcall('get', KEYS[i])
  local answer = 0
  if type(own) == 'table' then
    answer = own
  elseif own == owner then
    local left = redis.call('pttl', KEYS[i])
    answer = 1
    if left ~= -1 then
      -- Never shorten the lease. Write in any case, because a later `WAIT` covers only writes of its own connection.
      answer = redis.pcall('pexpire', KEYS[i], math.max(left, tonumber(lease)))
    end
  else
    -- A server that has become a replica may not have the lock yet. It refuses this write. On a primary it does no
    -- harm: a tombstone that exists is never shortened.
    local tombstone = ARGV[2 * count + i]
    local stands = redis.pcall('pttl', tombstone)
    local gone = stands
    if type(stands) == 'number' then
      gone = redis.pcall('pexpire', tombstone, math.max(stands, tonumber(lease)))
    end
    if type(gone) == 'table' then
      answer = gone
    end
  end
  if type(answer) == 'table' then
    answer = answer.err
  end
  answers[i] = answer
end
return answers
