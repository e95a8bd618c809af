-- Reads the state of a lock atomically. Values that the user is not allowed to read are left out.
-- KEYS: lock
-- ARGV: fencing counter, channel, subcommands of PUBSUB that count listeners: 'numsub', 'shardnumsub'
-- Returns {fields and values without those of readers that have died, milliseconds left, token or nil, number of waiters
-- or -1, the first owners in the queue of a fair lock}. The number of waiters has the processes that wait for a release,
-- and each waiter in a queue.
local fields = redis.pcall('hgetall', KEYS[1])
if fields.err then
  return fields
end
local mode
for i = 1, #fields, 2 do
  mode = fields[i] == 'mode' and fields[i + 1] or mode
end
local alive = {}
for i = 1, #fields, 2 do
  if not is_dead_reader(KEYS[1], mode, fields[i], fields[i + 1]) then
    -- The hash may be of another program. The fields of a lock are fewer and shorter, and the client ends its connection at
    -- an answer of many megabytes. Without its mode a read-write lock would be shown as another kind.
    if #alive < 20000 or fields[i] == 'mode' then
      alive[#alive + 1], alive[#alive + 2] = string.sub(fields[i], 1, 512), string.sub(fields[i + 1], 1, 64)
    end
  end
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
local fair, sides = named('redisson_lock_queue:', KEYS[1]), named('tidelock:rw_queue:', KEYS[1])
for _, length in ipairs({redis.pcall('llen', fair), redis.pcall('zcard', sides)}) do
  if type(length) == 'number' and length > 0 then
    count = math.max(count, 0) + length
  end
end
local first = redis.pcall('lrange', fair, 0, 99)
return {alive, redis.call('pttl', KEYS[1]), token, count, first.err and {} or first}
