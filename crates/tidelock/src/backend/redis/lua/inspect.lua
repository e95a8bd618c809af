-- Looks at a lock at one instant. What the rights forbid is left out.
-- KEYS: lock
-- ARGV: fencing counter, channel, what counts who listens: 'numsub', 'shardnumsub'
-- Answers {fields and values, milliseconds left, token or nothing, number of subscribers or -1}
local fields = redis.pcall('hgetall', KEYS[1])
if fields.err then
  return fields
end
local function allowed(answer, otherwise)
  if type(answer) == 'table' and answer.err then
    return otherwise
  end
  return answer
end
local count = -1
for i = 3, #ARGV do
  local listeners = redis.pcall('pubsub', ARGV[i], ARGV[2])
  if not listeners.err then
    count = math.max(count, 0) + listeners[2]
  end
end
return {fields, redis.call('pttl', KEYS[1]), allowed(redis.pcall('get', ARGV[1]), false), count}
