-- Records a claim: the period in which a holder is sure to have a lock. Two claims that overlap are a failure.
-- ARGV: name, claim, who, slot, from, until (microseconds of the monotonic clock), token (0: none), 'new' or 'kept'
local name, claim, who, slot = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local from, till, token = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local deleted = tonumber(redis.call('HGET', 'deleted', name) or '0')

-- True if the lock was deleted after this claim's grant. In a process a hold passes from task to task, so a claim can begin
-- after the deletion and still belong to the deleted hold. So we also compare the owner, the part of the id before the '#'.
local function void(id, since)
  local owner = string.match(id, '^(.-)#')
  return since <= deleted or (owner and redis.call('HEXISTS', 'gone', owner) == 1)
end

local function broken(what, other, other_from, other_till)
  redis.call('HINCRBY', 'counts', what, 1)
  redis.call('RPUSH', 'broken', table.concat({what, name, who, claim, ARGV[5], ARGV[6], ARGV[7], 'against', other, other_from, other_till}, ' '))
end

local claims = redis.call('HGETALL', 'claims ' .. name)
for at = 1, #claims, 2 do
  local other, text = claims[at], claims[at + 1]
  local a, b, by = string.match(text, '(%S+) (%S+) (.*)')
  local other_from, other_till = tonumber(a), tonumber(b)
  if other ~= claim and math.max(from, other_from) < math.min(till, other_till) then
    if void(claim, from) or void(other, other_from) then
      redis.call('HINCRBY', 'counts', 'overlaps after a deletion', 1)
    elseif who == 'Redisson 3.15.6' or by == 'Redisson 3.15.6' then
      redis.call('HINCRBY', 'counts', 'overlaps of Redisson 3.15.6', 1)
      redis.call('RPUSH', 'noted', table.concat({name, who, claim, ARGV[5], ARGV[6], 'against', by, other, a, b}, ' '))
    else
      broken('overlap', by .. ' ' .. other, a, b)
    end
  end
  if other_till < from - 60000000 then redis.call('HDEL', 'claims ' .. name, other) end
end
redis.call('HSET', 'claims ' .. name, claim, ARGV[5] .. ' ' .. ARGV[6] .. ' ' .. who)

if ARGV[8] == 'new' then
  redis.call('HINCRBY', 'acquired', who, 1)
  redis.call('RPUSH', 'held ' .. name, table.concat({ARGV[5], slot, who}, ' '))
  redis.call('LTRIM', 'held ' .. name, -20, -1)
  if token > 0 then
    local last = redis.call('HMGET', 'tokens', name, name .. ' from', name .. ' of')
    local seen, seen_from = tonumber(last[1] or '0'), tonumber(last[2] or '0')
    if token > seen then
      redis.call('HSET', 'tokens', name, ARGV[7], name .. ' from', ARGV[5], name .. ' of', claim)
      redis.call('HINCRBY', 'counts', 'tokens', 1)
    elseif token < seen and (till <= from or seen_from >= till or void(claim, from) or void(last[3], seen_from)) then
      redis.call('HINCRBY', 'counts', 'late holders refused by their token', 1)
    else
      broken('token', tostring(seen), tostring(seen_from), '')
    end
  end
end
return 'ok'
