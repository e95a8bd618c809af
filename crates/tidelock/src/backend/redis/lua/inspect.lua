-- Looks at a lock at one instant. What the rights forbid is left out.
-- KEYS: lock
-- ARGV: fencing counter, channel, what counts who listens: 'numsub', 'shardnumsub'
-- Answers {fields and values, milliseconds left, token or nothing, number of processes that wait or -1}
local fields = redis.pcall('hgetall', KEYS[1])
if fields.err then
  return fields
end
local token = redis.pcall('get', ARGV[1])
if type(token) == 'table' and token.err then
  token = false
end
local heard = {}
for i = 3, #ARGV do
  heard[ARGV[i]] = listeners(ARGV[i], ARGV[2])
end
local plain, sharded = heard['numsub'], heard['shardnumsub']
local ours = plain and sharded and listeners('shardnumsub', own_channel(ARGV[2]))
return {fields, redis.call('pttl', KEYS[1]), token, waiting(plain, sharded, ours) or -1}
