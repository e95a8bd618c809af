-- Keeps many plain locks: compare and expire. Each is handled apart: one bad key harms no other.
-- KEYS: locks, then as many tombstones of their owners
-- ARGV: for each lock its lease in milliseconds and its owner
-- Answers a list: 1 kept, 0 not held by this owner, or the text of an error.
local answers = {}
local count = #KEYS / 2
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
      -- Never less than what stands, and written in any case: a `WAIT` behind it speaks only of what its own connection
      -- has written.
      answer = redis.pcall('pexpire', KEYS[i], math.max(left, tonumber(lease)))
    end
  else
    -- A server that has become a replica may only not have heard of it: it refuses this. A tombstone that stands loses
    -- nothing by it: it is given as long as a lease at least.
    local stands = redis.call('pttl', KEYS[count + i])
    local gone = redis.pcall('pexpire', KEYS[count + i], math.max(stands, tonumber(lease)))
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
