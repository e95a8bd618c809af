-- Reads the state of a lock atomically. Values that the user is not allowed to read are left out.
-- KEYS: lock
-- ARGV: fencing counter, channel, subcommands of PUBSUB that count listeners: 'numsub', 'shardnumsub'
-- Returns {fields and values, milliseconds left, token or nil, number of waiters or -1}: the processes that wait for a
-- release, and tidelock's waiters in the queue of a read-write lock
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
local count = waiting(plain, sharded, ours) or -1
local queue = redis.pcall('zcard', named('tidelock:rw_queue:', KEYS[1]))
if type(queue) == 'number' and queue > 0 then
  count = math.max(count, 0) + queue
end
return {fields, redis.call('pttl', KEYS[1]), token, count}
