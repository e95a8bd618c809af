-- The rest of the script that acquires a lock: it is fenced, or the key or the tombstone exists.
local left = present == 0 and -2 or redis.call('pttl', KEYS[1])
if present == 2 or present == 1 and left == -2 then
  return {2} -- there is a tombstone
end
local own = redis.pcall('hget', KEYS[1], ARGV[2])
if type(own) == 'table' then
  return own -- the key is not a hash: return the error
end
if left ~= -2 then
  local mode = redis.call('hget', KEYS[1], 'mode')
  if mode then
    if not sweep(KEYS[1]) then
      return {3, string.sub(mode, 1, 64)}
    end
  elseif own then
    -- A repeated request whose reply was lost. It must neither count twice nor shorten the lease. It writes in any
    -- case, because a later `WAIT` covers only writes of its own connection.
    if left ~= -1 then
      redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1])))
    end
    -- Only a holder increments the counter, so it still has the last token of this owner.
    return {1, KEYS[3] and (redis.call('get', KEYS[3]) or redis.call('incr', KEYS[3])) or 0, 0}
  else
    if ARGV[3] ~= 'sleeps' and ARGV[3] ~= 'spins' then
      return {0, left}
    end
    -- A tidelock holder, whose client id is a UUID of version 8, is the only one known to publish its release.
    -- Redisson's fair lock publishes only to the head of its queue, and its spin lock never publishes.
    local holder = redis.pcall('hrandfield', KEYS[1])
    if ARGV[3] == 'spins' then
      return {0, left, type(holder) == 'string' and string.sub(holder, 1, 128) or ''}
    end
    if type(holder) == 'string' and string.sub(holder, 15, 15) == '8' then
      return {0, left}
    end
    local head = redis.pcall('lindex', named('redisson_lock_queue:', KEYS[1]), 0)
    return {0, left, type(head) == 'string' and string.sub(head, 1, 128) or ''}
  end
end
local token, more = 0, 0
if KEYS[3] then
  token, more = take_tokens(KEYS[3], ARGV[4])
  if not token then
    return more
  end
end
return granted(token, more)
