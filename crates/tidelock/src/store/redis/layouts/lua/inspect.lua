-- Reads the state of a lock atomically. Values that the user is not allowed to read are left out.
-- KEYS: lock
-- ARGV: fencing counter, channel, subcommands of PUBSUB that count listeners: 'numsub', 'shardnumsub'
-- Returns {fields and values, milliseconds left, token or nil, number of waiting processes or -1}
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
