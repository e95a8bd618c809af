-- The number of connections that listen to a channel in a form, 'numsub' or 'shardnumsub'. nil: the user is not
-- allowed to count them.
local function listeners(form, channel)
  local said = redis.pcall('pubsub', form, channel)
  if said.err then
    return nil
  end
  return said[2]
end
-- The channel by which tidelock's waiters on a lock's channel are counted. Nothing is published on it.
local function own_channel(channel)
  return (string.gsub(channel, '^redisson_lock__channel', 'tidelock:waiting'))
end
-- Whether somebody may listen to a channel. While the cluster is settling, a plain listener may be on another node.
local function is_heard(channel, how)
  return how == 'settling'
    or how ~= 'spublish' and listeners('numsub', channel) ~= 0
    or how ~= 'publish' and listeners('shardnumsub', channel) ~= 0
end
-- The number of waiting processes, from the listeners of each form and the number of tidelock's processes, each of
-- which listens in both forms. nil: unknown.
local function waiting(plain, sharded, ours)
  if plain and sharded then
    return ours and plain + sharded - ours or math.max(plain, sharded)
  end
  return plain or sharded
end
