-- Tells those who wait that a lock is free.
-- channel: the lock's.
-- how: 'publish'; 'spublish'; 'both'; 'auto': sharded, and plain too if somebody listens who hears only that;
--      'settling': as 'both', because listeners of the plain form may still be at another node, where nobody counts them
-- Answers how many processes wait, how many of them are tidelock's or -1, and whether a message was refused.
local function tell(channel, how)
  local plain, sharded, ours, muted = nil, nil, nil, false
  local twice = how == 'both' or how == 'settling'
  if how == 'auto' then
    plain = listeners('numsub', channel)
    ours = plain == 0 and 0 or listeners('shardnumsub', own_channel(channel))
    twice = not plain or not ours or plain > ours
  end
  if twice or how == 'publish' then
    local heard = redis.pcall('publish', channel, '0')
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
    -- Marked, and after the plain one: a client that hears both takes them for one release.
    sharded = redis.pcall('spublish', channel, twice and '00' or '0')
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
