-- How many connections listen to a channel in a form, 'numsub' or 'shardnumsub'. Nothing: it is not allowed to ask.
local function listeners(form, channel)
  local said = redis.pcall('pubsub', form, channel)
  if said.err then
    return nil
  end
  return said[2]
end
-- The channel by which tidelock's waiters on a lock's channel are counted. Nothing is ever published there.
local function own_channel(channel)
  return (string.gsub(channel, '^redisson_lock__channel', 'tidelock:waiting'))
end
-- How many processes wait, from the listeners of each form and the number of tidelock's processes, which listen in every
-- form. Nothing: not to be known.
local function waiting(plain, sharded, ours)
  if plain and sharded then
    return ours and plain + sharded - ours or math.max(plain, sharded)
  end
  return plain or sharded
end
