-- Publishes that a lock is free.
-- channel: the lock's channel
-- how: 'publish'; 'spublish'; 'both'; 'auto': sharded, and also plain if a client hears only that;
--      'settling': like 'both', because plain listeners may still be on another node, where they are not counted
-- turn: the message on a channel of turns, which only tidelock reads; nil on any other channel
-- told: the answer to PUBLISH, if the message was published already; otherwise nil
-- Returns the number of waiting processes, the number of tidelock's among them or -1, and whether the server refused
-- a message.
local function tell(channel, how, turn, told)
  local plain, sharded, ours, muted = nil, nil, nil, false
  local twice = how == 'both' or how == 'settling'
  if how == 'auto' then
    plain = listeners('numsub', channel)
    ours = plain == 0 and 0 or listeners('shardnumsub', own_channel(channel))
    twice = not plain or not ours or plain > ours
  end
  if twice or how == 'publish' then
    local heard = told or redis.pcall('publish', channel, turn or '0')
    if type(heard) == 'table' then
      twice = false
      muted = how ~= 'settling'
    else
      -- The answer to PUBLISH counts pattern subscribers too. They do not wait, and a process that took them for waiters
      -- would hold back for them.
      plain = plain or heard > 0 and listeners('numsub', channel) or heard
    end
  end
  if how ~= 'publish' then
    -- The sharded message goes second and has a mark, so that a client that hears both counts one release.
    sharded = redis.pcall('spublish', channel, turn or (twice and '00' or '0'))
    if type(sharded) == 'table' then
      sharded = nil
      muted = true
    end
  end
  local all = waiting(plain, sharded, ours) or 0
  if all > 0 and not ours then
    ours = listeners(how == 'publish' and 'numsub' or 'shardnumsub', own_channel(channel))
    all = waiting(plain, sharded, ours)
  end
  return all, ours or (all == 0 and 0 or -1), muted
end
